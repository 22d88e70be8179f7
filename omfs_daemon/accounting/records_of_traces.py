"""Records of jobs from traces: Standard Workload Format, Mira's log, and tables of results of a simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.cells import Cells, NumberColumn, TextColumn, read_cells, understood
from omfs_daemon.accounting.job_records import (
    JobRecords,
    malformed_records,
    record_frame,
    with_runs,
    without_absurd,
)
from omfs_daemon.accounting.mira_columns import MIRA_COLUMNS, is_mira, mira_facts
from omfs_daemon.accounting.read_report import Malformed, Progress, ReadReport, TraceFacts
from omfs_daemon.accounting.swf_rows import PARTS, Field, kilobytes, read_swf_rows, swf_facts
from omfs_daemon.errors import ConfigError

_STATUS = {0: "FAILED", 1: "COMPLETED", 5: "CANCELLED"}
_SIMULATED = ("submission_time", "starting_time", "requested_number_of_resources")


def swf_records(path: Path, progress: Progress | None = None) -> JobRecords:
    """The jobs of a trace, their accounts by group; ConfigError if the file cannot be used.

    Times are those of the header's UnixStartTime on, else of 1970. A job that was cancelled before it started has no
    start.
    """
    found = read_swf_rows(path, progress)
    rows, facts = found.rows, swf_facts(found.comments)
    cpus = np.where(rows[:, Field.ALLOCATED] > 0, rows[:, Field.ALLOCATED], rows[:, Field.REQUESTED])
    status, wait, run = rows[:, Field.STATUS], rows[:, Field.WAIT], rows[:, Field.RUN]
    never = (status == 5) & ((run <= 0) & (rows[:, Field.ALLOCATED] <= 0) | (run < 0))
    dropped, kept = [], np.ones(len(rows), dtype=np.bool_)
    for reason, holds in (
        ("a status of 2 to 4 (a part of a job)", np.isin(status, PARTS)),
        ("unknown submission", rows[:, Field.SUBMIT] < 0),
        ("unknown wait", wait < 0),
        ("unknown run time", (run < 0) & ~never),
        ("unknown processors", cpus <= 0),
    ):
        if count := int((kept & holds).sum()):
            dropped.append((reason, count))
        kept &= ~holds
    rows, cpus, status, wait, run, never = (part[kept] for part in (rows, cpus, status, wait, run, never))
    begin = rows[:, Field.SUBMIT] + (facts.start or 0.0)
    start = np.where(never, np.nan, begin + wait)
    used, asked = rows[:, Field.CPU_TIME] * cpus, kilobytes(rows) * 1024.0 * cpus
    frame = record_frame(
        {
            "place": pl.Series(np.arange(1, len(rows) + 1)),
            "job_id": pl.Series(rows[:, Field.JOB].astype(np.int64)),
            "user": _numbered("user", rows[:, Field.USER]),
            "account": _numbered("group", rows[:, Field.GROUP]),
            "partition": _numbered("partition", rows[:, Field.PARTITION]),
            "qos": _numbered("queue", rows[:, Field.QUEUE]),
            "submit": pl.Series(begin),
            "start": _known(start),
            "end": pl.Series(begin + wait + np.where(never, 0.0, np.maximum(run, 0.0))),
            "run": pl.Series(np.where(never, 0.0, run)),
            "cpus": pl.Series(cpus.astype(np.int64)),
            "limit": _known(np.where(rows[:, Field.LIMIT] > 0, rows[:, Field.LIMIT], np.nan)),
            "state": pl.Series(status.astype(np.int64)).replace_strict(_STATUS, default="UNKNOWN"),
            "cpu_seconds": _known(np.where(rows[:, Field.CPU_TIME] > 0, used, np.nan)),
            "memory_used": _known(np.where(rows[:, Field.MEMORY] > 0, asked, np.nan)),
        },
        pl.DataFrame({"row": np.arange(len(rows))}),
    )
    return _complete(frame, path, found.total, tuple(dropped), {}, facts, found.malformed)


def table_records(path: Path, progress: Progress | None = None) -> JobRecords:
    """The jobs of Mira's log or of a simulation's jobs.csv or jobs.parquet; ConfigError if it is neither."""
    cells = read_cells(path, progress)
    if is_mira(cells):
        return _mira(cells)
    if set(_SIMULATED) <= set(cells.names):
        return _simulated(cells)
    raise ConfigError(
        f"{path}: not Mira's log ({', '.join(rule.name for rule in MIRA_COLUMNS)}) and not a simulation's jobs.csv "
        f"({', '.join(_SIMULATED)}); a table without starts can be simulated, which writes one"
    )


def _mira(cells: Cells) -> JobRecords:
    rules = (*MIRA_COLUMNS, NumberColumn("wait_time", bounds.SECONDS), TextColumn("state", ""))
    columns, report = understood(cells, rules, strict=False)
    start = columns["submit_time"] + columns["wait_time"]
    frame = record_frame(
        {
            "place": pl.Series(np.arange(1, len(start) + 1)),
            "job_id": pl.Series(columns["job"]),
            "user": _numbered("user", columns["user"]),
            "account": _numbered("project", columns["project"]),
            "submit": pl.Series(columns["submit_time"]),
            "start": pl.Series(start),
            "end": pl.Series(start + columns["run_time"]),
            "run": pl.Series(columns["run_time"]),
            "cpus": pl.Series(columns["node_num"]),
            "limit": _known(np.where(columns["wall_time"] > 0, columns["wall_time"], np.nan)),
            "state": pl.Series(np.where(columns["state"] == "0", "COMPLETED", "FAILED")),
            "code": pl.Series(columns["state"].astype(str)),
        },
        pl.DataFrame({"row": np.arange(len(start))}),
    )
    return _complete(frame, cells.path, report.records, (), {}, mira_facts(cells), report.malformed)


def _simulated(cells: Cells) -> JobRecords:
    rules = (
        NumberColumn("job_id", bounds.NUMBER, whole=True),
        NumberColumn("submission_time", bounds.SECONDS),
        NumberColumn("requested_number_of_resources", bounds.CPUS, 1, whole=True),
        NumberColumn("requested_time", bounds.SECONDS, -1, default=-1),
        NumberColumn("starting_time", bounds.SECONDS, default=np.nan),
        NumberColumn("execution_time", bounds.SECONDS, default=np.nan),
        NumberColumn("finish_time", bounds.SECONDS, default=np.nan),
        TextColumn("final_state", ""),
        TextColumn("account", ""),
    )
    columns, report = understood(cells, rules, strict=False)
    states = {"COMPLETED_SUCCESSFULLY": "COMPLETED", "COMPLETED_WALLTIME_REACHED": "TIMEOUT", "REJECTED": "CANCELLED"}
    frame = record_frame(
        {
            "place": pl.Series(np.arange(1, len(columns["job_id"]) + 1)),
            "job_id": pl.Series(columns["job_id"]),
            "account": pl.Series(columns["account"].astype(str)),
            "submit": pl.Series(columns["submission_time"]),
            "start": _known(columns["starting_time"]),
            "end": _known(columns["finish_time"]),
            "run": _known(columns["execution_time"]),
            "cpus": pl.Series(columns["requested_number_of_resources"]),
            "limit": _known(np.where(columns["requested_time"] >= 0, columns["requested_time"], np.nan)),
            "state": pl.Series(columns["final_state"].astype(str)).replace(states),
        },
        pl.DataFrame({"row": np.arange(len(columns["job_id"]))}),
    )
    return _complete(frame, cells.path, report.records, (), {}, TraceFacts(), report.malformed)


def _complete(
    frame: pl.DataFrame, path: Path, total: int, dropped: tuple[tuple[str, int], ...], wrong: dict[int, str],
    facts: TraceFacts, malformed: tuple[Malformed, ...],
) -> JobRecords:  # fmt: skip
    frame, again = with_runs(without_absurd(frame, wrong), frozenset())
    found = (*malformed, *malformed_records(wrong | again, "record"))
    return JobRecords(frame, ReadReport(path, total, dropped, found), facts)


def _known(values: np.ndarray) -> pl.Series:
    """null for what is no number."""
    return pl.Series(values).fill_nan(None)


def _numbered(kind: str, numbers: np.ndarray) -> pl.Series:
    """``user12``; empty below 0, which is unknown."""
    distinct, at = np.unique(np.maximum(numbers.astype(np.int64), -1), return_inverse=True)
    names = np.array([f"{kind}{number}" if number >= 0 else "" for number in distinct.tolist()], dtype=object)
    return pl.Series(names[at].tolist(), dtype=pl.String)
