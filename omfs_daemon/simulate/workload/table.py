"""A table of our own, CSV or Parquet, that carries everything the policies know about a job.

Columns: job_id, submit, cpus, run; and, where they say something, limit (empty: none), account, class, method, memory,
swap. Times are seconds, sizes bytes. What a workload says as a whole (origin, cpus of the machine) stands before a CSV
file's header in lines like ``# origin: 0.0``, and in a Parquet file's metadata.
"""

from __future__ import annotations

import gzip
from math import inf
from pathlib import Path

import numpy as np
import polars as pl

from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.workload import bounds
from omfs_daemon.simulate.workload.cells import Cells
from omfs_daemon.simulate.workload.cells import Number
from omfs_daemon.simulate.workload.cells import Word
from omfs_daemon.simulate.workload.cells import understood
from omfs_daemon.simulate.workload.read_report import Facts
from omfs_daemon.simulate.workload.read_report import Loaded
from omfs_daemon.simulate.workload.read_report import Options
from omfs_daemon.simulate.workload.workload import Way
from omfs_daemon.simulate.workload.workload import Workload
from omfs_daemon.simulate.workload.workload import workload

_CLASSES = ("regular", "urgent")
_WAYS = tuple(way.name.lower() for way in Way)
_RULES = (
    Number("job_id", bounds.NUMBER, whole=True),
    Number("submit", bounds.SECONDS),
    Number("cpus", bounds.CPUS, 1, whole=True),
    Number("run", bounds.SECONDS),
    Number("limit", bounds.SECONDS, default=inf),
    Word("account", "all"),
    Word("class", "regular", _CLASSES),
    Word("method", "", _WAYS),
    Number("memory", bounds.BYTES, default=0),
    Number("swap", bounds.BYTES, default=0),
)


def from_cells(cells: Cells, options: Options) -> Loaded:
    """The jobs; where no method is given: never for an urgent job, else the options'.

    ConfigError if the file cannot be used.
    """
    unknown = [name for name in cells.names if name not in {rule.name for rule in _RULES}]
    if unknown:
        allowed = ", ".join(rule.name for rule in _RULES)
        raise ConfigError(f"{cells.path}: column {unknown[0]!r} is not known: allowed are {allowed}")
    columns, report = understood(cells, _RULES, options.strict)
    accounts, account = np.unique(columns["account"].astype(str), return_inverse=True)
    urgent = columns["class"] == "urgent"
    otherwise = np.where(urgent, Way.NEVER, options.way)
    jobs = workload(
        cells.path.name,
        columns["submit"],
        columns["cpus"],
        columns["run"],
        origin=_remark(cells, "origin") or 0.0,
        accounts=tuple(accounts.tolist()),
        job_id=columns["job_id"],
        limit=columns["limit"],
        account=account,
        urgent=urgent,
        way=np.select([columns["method"] == way for way in _WAYS], list(Way), otherwise),
        memory=columns["memory"],
        swap=columns["swap"],
    )
    cpus = _remark(cells, "cpus")
    facts = Facts(cpus=None if cpus is None else int(cpus), start=jobs.origin or None)
    return Loaded(jobs, report, facts)


def write(jobs: Workload, path: Path, cpus: int | None = None) -> None:
    """Write what ``from_cells`` reads back as it was; ``path`` ends in .csv, .csv.gz or .parquet.

    cpus: of the machine, if known. ConfigError for another name, if the file cannot be written, and for CSV if an
    account's name has a line break, since a row is a line there.
    """
    accounts = np.array(jobs.accounts, dtype=object)
    frame = pl.DataFrame(
        {
            "job_id": jobs.job_id,
            "submit": jobs.submit,
            "cpus": jobs.cpus,
            "run": jobs.run,
            "limit": pl.Series(jobs.limit).replace(inf, None),
            "account": pl.Series(accounts[jobs.account].tolist(), dtype=pl.String),
            "class": np.array(_CLASSES)[jobs.urgent.astype(np.int64)],
            "method": np.array(_WAYS)[jobs.way],
            "memory": jobs.memory,
            "swap": jobs.swap,
        }
    )
    remarks = {"origin": repr(float(jobs.origin))} | ({} if cpus is None else {"cpus": str(cpus)})
    try:
        if path.suffix == ".parquet":
            frame.write_parquet(path, metadata=remarks)
        elif path.name.endswith((".csv", ".csv.gz")):
            if any("\n" in name or "\r" in name for name in jobs.accounts):
                raise ConfigError(f"{path}: an account's name has a line break, which only .parquet can hold")
            text = "".join(f"# {key}: {value}\n" for key, value in remarks.items()) + frame.write_csv()
            path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())
        else:
            raise ConfigError(f"{path}: the name must end in .csv, .csv.gz or .parquet")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror or error})") from None


def _remark(cells: Cells, key: str) -> float | None:
    text = cells.remarks.get(key)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = inf
    if not 0 <= value <= bounds.SECONDS:
        raise ConfigError(f"{cells.path}: {key}: {text!r} is not allowed, only a number from 0 to {bounds.SECONDS:,}")
    return value
