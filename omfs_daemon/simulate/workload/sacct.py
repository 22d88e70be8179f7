"""Workloads from Slurm's accounting: what sacct prints, live or saved in a file that ends in .sacct (or .sacct.gz).

A file is what this prints, times as seconds since the epoch or as sacct prints them by itself (then local):

    SLURM_TIME_FORMAT=%s sacct -a -X -P -n -D -S 2026-03-01 -E 2026-04-01 --format=JobIDRaw,JobID,Submit,Start,End,\
ElapsedRaw,TimelimitRaw,AllocCPUS,Account,Partition,QOS,State,Comment > march.sacct

Array tasks and parts of heterogeneous jobs are jobs of their own, as they are for the daemon. A requeued job has a
record for each run (-D), each with a submission of its own: it is one job here, with the submission of the first and
the run of the last. Time in suspension is not run time (sacct's Elapsed leaves it out). If the
fields User and JobName are there too, predictions of run times use them, digits in names folded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from omfs_daemon.accounting.lines import lines
from omfs_daemon.accounting.local_times import notes_on_twice
from omfs_daemon.accounting.read_report import Malformed, Progress, ReadReport, require_usable
from omfs_daemon.accounting.sacct_query import asked_sacct
from omfs_daemon.accounting.sacct_rows import CAME_BACK, SacctRows, sacct_rows_of_file
from omfs_daemon.cluster.jobs import Job, JobRequest, JobState
from omfs_daemon.policy.rules.classes import Rules, classify
from omfs_daemon.predict.features import folded_name
from omfs_daemon.simulate.workload.read_options import Loaded, ReadOptions
from omfs_daemon.simulate.workload.workload import PreemptMode, workload


class _Record(NamedTuple):
    """Times are seconds, ``start`` and ``end`` None where there is none (yet); ``limit`` inf: none."""

    place: int
    job: int
    submit: float
    start: float | None
    end: float | None
    run: float
    limit: float
    cpus: int
    account: str
    partition: str
    qos: str
    state: str
    comment: str
    user: str
    name: str


_COLUMNS = (
    *("place", "job", "submit", "start", "end", "run", "limit", "cpus"),
    *("Account", "Partition", "QOS", "state", "Comment", "User", "JobName"),
)
"""Those of a record, in its order; the last two may be missing."""


def is_accounting(path: Path) -> bool:
    """Whether the name is that of saved sacct output."""
    return path.name.lower().removesuffix(".gz").endswith(".sacct")


def read_sacct(path: Path, options: ReadOptions, progress: Progress | None = None) -> Loaded:
    """The jobs of a file; ConfigError if it cannot be used."""
    return _loaded(path, "line", sacct_rows_of_file(lines(path, progress)), options, since=-inf)


def ask(since: float, until: float, conf: Path | None, options: ReadOptions) -> Loaded:
    """The jobs that were submitted from ``since`` to ``until`` (seconds since the epoch) and have ended.

    ``conf``: the slurm.conf of the cluster. GatewayError if Slurm does not answer, ConfigError if there are no jobs.
    """
    return _loaded(Path("sacct"), "record", [asked_sacct(since, until, conf)], options, since)


def _loaded(path: Path, unit: str, parts: Iterable[SacctRows], options: ReadOptions, since: float) -> Loaded:
    records: list[_Record] = []
    wrong: dict[int, str] = {}
    twice = 0
    for part in parts:
        records += [_Record(*row) for row in _with_names(part.frame).select(_COLUMNS).iter_rows()]
        wrong |= part.wrong
        twice += part.twice
    total = len(records) + len(wrong)
    last, again = _last_runs(records)
    wrong |= again
    dropped: Counter[str] = Counter()
    if superseded := len(records) - len(again) - len(last):
        dropped["a later run (requeued; the job counts from its first submission)"] = superseded
    reasons = [_why_not(record, since) for record in last]
    dropped.update(filter(None, reasons))
    malformed = tuple(Malformed(f"{unit} {place}", wrong[place]) for place in sorted(wrong))
    report = ReadReport(path, total, tuple(dropped.items()), malformed, notes_on_twice(twice))
    require_usable(report, options.strict)
    kept = [record for record, reason in zip(last, reasons, strict=True) if not reason]
    return _as_workload(kept, report, options)


def _with_names(frame: pl.DataFrame) -> pl.DataFrame:
    missing = [name for name in _COLUMNS[-2:] if name not in frame.columns]
    return frame.with_columns(pl.lit("").alias(name) for name in missing)


def _last_runs(records: Sequence[_Record]) -> tuple[list[_Record], dict[int, str]]:
    """The last record of each job, with its first submission; and by place the records of other jobs whose number
    stood before (Slurm reuses job numbers, but hardly within a period that one replays)."""
    last: dict[int, _Record] = {}
    again = {}
    for record in sorted(records, key=lambda record: record.submit):
        before = last.get(record.job)
        if before is None:
            last[record.job] = record
        elif before.state in CAME_BACK:
            last[record.job] = record._replace(submit=before.submit)
        else:
            again[record.place] = "its job number stood in a record before"
    return list(last.values()), again


def _why_not(record: _Record, since: float) -> str:
    """Why a good record cannot be replayed, "" if it can."""
    if record.submit < since:
        return "a submission before the period"
    if record.start is None:
        return "no start (never ran, or waits)"
    if record.end is None:
        return "no end (still runs)"
    return "" if record.cpus else "no CPUs"


def _as_workload(records: Sequence[_Record], report: ReadReport, options: ReadOptions) -> Loaded:
    begin = min(record.submit for record in records)
    accounts, account = np.unique([record.account for record in records], return_inverse=True)
    users, user = np.unique([record.user for record in records], return_inverse=True)
    names, job_name = np.unique([folded_name(record.name) for record in records], return_inverse=True)
    treated = _by_rules(records, options.rules) if options.rules else [(False, options.mode)] * len(records)
    jobs = workload(
        report.path.name,
        np.array([record.submit - begin for record in records]),
        np.array([record.cpus for record in records]),
        np.array([record.run for record in records]),
        origin=begin,
        accounts=tuple(accounts.tolist()),
        job_id=np.array([record.job for record in records]),
        limit=np.array([record.limit for record in records]),
        account=account,
        users=tuple(users.tolist()),
        user=user,
        job_names=tuple(names.tolist()),
        job_name=job_name,
        urgent=np.array([urgent for urgent, _ in treated]),
        mode=np.array([mode for _, mode in treated]),
    )
    return Loaded(jobs, report)


def _by_rules(records: Sequence[_Record], rules: Rules) -> list[tuple[bool, PreemptMode]]:
    """Whether each is urgent, and its first preemption method, as the daemon would have treated it while it ran.

    Accounting does not say which jobs were submitted with --no-requeue; all count as if they may be requeued.
    """

    @cache
    def treated(account: str, partition: str, qos: str, comment: str) -> tuple[bool, PreemptMode]:
        request = JobRequest(cpus=1, partitions=(partition,))
        job = Job(
            id=0, ref="0", user="", uid=0, account=account, state=JobState.ENDED, request=request, submit=0.0,
            partition=partition, qos=qos, comment=comment,
        )  # fmt: skip
        found = classify(rules, job)
        return found.urgent, PreemptMode.of(rules.method(found.methods[0])) if found.methods else PreemptMode.NEVER

    return [treated(record.account, record.partition, record.qos, record.comment) for record in records]
