"""A table of our own, CSV or Parquet, that carries everything the policies know about a job.

Columns: job_id, submit, cpus, run; and, where known, limit (empty: none), account, class, method, memory,
swap. Times are seconds, sizes bytes. Facts of the whole workload (origin, cpus of the machine) precede a CSV
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
from omfs_daemon.simulate.workload.cells import Cells, NumberColumn, TextColumn, understood
from omfs_daemon.simulate.workload.read_report import Loaded, ReadOptions, TraceFacts
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload, workload

_CLASSES = ("regular", "urgent")
_MODES = tuple(mode.name.lower() for mode in PreemptMode)
_RULES = (
    NumberColumn("job_id", bounds.NUMBER, whole=True),
    NumberColumn("submit", bounds.SECONDS),
    NumberColumn("cpus", bounds.CPUS, 1, whole=True),
    NumberColumn("run", bounds.SECONDS),
    NumberColumn("limit", bounds.SECONDS, default=inf),
    TextColumn("account", "all"),
    TextColumn("class", "regular", _CLASSES),
    TextColumn("method", "", _MODES),
    NumberColumn("memory", bounds.BYTES, default=0),
    NumberColumn("swap", bounds.BYTES, default=0),
)


def table_workload(cells: Cells, options: ReadOptions) -> Loaded:
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
    otherwise = np.where(urgent, PreemptMode.NEVER, options.mode)
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
        mode=np.select([columns["method"] == mode for mode in _MODES], list(PreemptMode), otherwise),
        memory=columns["memory"],
        swap=columns["swap"],
    )
    cpus = _remark(cells, "cpus")
    facts = TraceFacts(cpus=None if cpus is None else int(cpus), start=jobs.origin or None)
    return Loaded(jobs, report, facts)


def write_table(jobs: Workload, path: Path, cpus: int | None = None) -> None:
    """Write what ``table_workload`` reads back as it was; ``path`` ends in .csv, .csv.gz or .parquet.

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
            "method": np.array(_MODES)[jobs.mode],
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
