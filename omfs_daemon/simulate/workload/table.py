"""The workload of a table of our own, and back."""

from __future__ import annotations

import gzip
from math import inf
from pathlib import Path

import numpy as np
import polars as pl

from omfs_daemon.accounting.cells import Cells, understood
from omfs_daemon.accounting.read_report import TraceFacts
from omfs_daemon.accounting.table_columns import (
    TABLE_CLASSES,
    TABLE_COLUMNS,
    TABLE_METHODS,
    require_known_columns,
    table_remark,
)
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.workload.read_options import Loaded, ReadOptions
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload, workload


def table_workload(cells: Cells, options: ReadOptions) -> Loaded:
    """The jobs; where no method is given: never for an urgent job, else the options'.

    ConfigError if the file cannot be used.
    """
    require_known_columns(cells)
    columns, report = understood(cells, TABLE_COLUMNS, options.strict)
    accounts, account = np.unique(columns["account"].astype(str), return_inverse=True)
    users, user = np.unique(columns["user"].astype(str), return_inverse=True)
    names, name = np.unique(columns["name"].astype(str), return_inverse=True)
    urgent = columns["class"] == "urgent"
    otherwise = np.where(urgent, PreemptMode.NEVER, options.mode)
    jobs = workload(
        cells.path.name,
        columns["submit"],
        columns["cpus"],
        columns["run"],
        origin=table_remark(cells, "origin") or 0.0,
        accounts=tuple(accounts.tolist()),
        job_id=columns["job_id"],
        limit=columns["limit"],
        account=account,
        urgent=urgent,
        mode=np.select([columns["method"] == mode for mode in TABLE_METHODS], list(PreemptMode), otherwise),
        memory=columns["memory"],
        swap=columns["swap"],
        realtime=columns["class"] == "realtime",
        users=tuple(users.tolist()),
        user=user,
        job_names=tuple(names.tolist()),
        job_name=name,
    )
    cpus = table_remark(cells, "cpus")
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
            "class": np.array(TABLE_CLASSES)[np.where(jobs.realtime, 2, jobs.urgent.astype(np.int64))],
            "method": np.array(TABLE_METHODS)[jobs.mode],
            "memory": jobs.memory,
            "swap": jobs.swap,
        }
    )
    for column, names, index in (("user", jobs.users, jobs.user), ("name", jobs.job_names, jobs.job_name)):
        if names != ("",):
            frame = frame.with_columns(pl.Series(column, [names[one] for one in index.tolist()], dtype=pl.String))
    remarks = {"origin": repr(float(jobs.origin))} | ({} if cpus is None else {"cpus": str(cpus)})
    try:
        if path.suffix == ".parquet":
            frame.write_parquet(path, metadata=remarks)
        elif path.name.endswith((".csv", ".csv.gz")):
            if any(set("\n\r") & set(name) for name in (*jobs.accounts, *jobs.users, *jobs.job_names)):
                raise ConfigError(f"{path}: a name has a line break, which only .parquet can hold")
            text = "".join(f"# {key}: {value}\n" for key, value in remarks.items()) + frame.write_csv()
            path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())
        else:
            raise ConfigError(f"{path}: the name must end in .csv, .csv.gz or .parquet")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror or error})") from None
