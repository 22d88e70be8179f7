"""Jobs from Slurm's accounting: queried with sacct(1), or its saved output (``.sacct``).

The file is what this prints, times as seconds since the epoch or as sacct prints them by itself (then local):

    SLURM_TIME_FORMAT=%s sacct -a -X -P -n -D -S 2026-03-01 -E 2026-04-01 --format=JobIDRaw,JobID,Submit,Start,End,\
ElapsedRaw,TimelimitRaw,AllocCPUS,Account,Partition,QOS,State,Comment > march.sacct

The comment is a user's: any text, newlines and separators too. It stands last, so that separators in it do no harm; a
newline in it makes malformed lines in a file, which could even forge a job. A query therefore uses a secret separator,
which no comment can contain.

Array tasks and parts of heterogeneous jobs are jobs of their own, as they are for the daemon. A requeued job has a
record for each run (-D), each with a submission of its own: it is one job here, with the submission of the first and
the run of the last. Time in suspension is not run time (sacct's Elapsed leaves it out).
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omfs_daemon.cluster.jobs import Job, JobRequest, JobState
from omfs_daemon.errors import ParseError
from omfs_daemon.policy.rules.classes import Rules, classify
from omfs_daemon.simulate.workload import bounds
from omfs_daemon.simulate.workload.lines import lines
from omfs_daemon.simulate.workload.read_report import (
    Loaded,
    Malformed,
    Progress,
    ReadOptions,
    ReadReport,
    require_usable,
)
from omfs_daemon.simulate.workload.workload import PreemptMode, workload
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.run_command import run_command

_FIELDS = (
    *("JobIDRaw", "JobID", "Submit", "Start", "End", "ElapsedRaw", "TimelimitRaw", "AllocCPUS"),
    *("Account", "Partition", "QOS", "State", "Comment"),
)
_LONGEST = 300.0
"""Seconds that slurmdbd may take for the answer; a year of a large site takes it a minute or two."""

_NUMBER = re.compile(r"[0-9]{1,15}")
_CAME_BACK = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL"})
"""States of a record whose job ran again under the same number (sacct(1), JOB STATE CODES)."""

_Row = tuple[int, Sequence[str]]
"""Its line in a file, or its number from 1 in an answer; and its fields."""


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


def is_accounting(path: Path) -> bool:
    """Whether the name is that of saved sacct output."""
    return path.name.lower().removesuffix(".gz").endswith(".sacct")


def read_sacct(path: Path, options: ReadOptions, progress: Progress | None = None) -> Loaded:
    """The jobs of a file; ConfigError if it cannot be used."""
    return _loaded(path, "line", _rows_of_file(lines(path, progress)), options, since=-inf)


def ask(since: float, until: float, conf: Path | None, options: ReadOptions) -> Loaded:
    """The jobs that were submitted from ``since`` to ``until`` (seconds since the epoch) and have ended.

    ``conf``: the slurm.conf of the cluster. GatewayError if Slurm does not answer, ConfigError if there are no jobs.
    """
    secret = f"<{secrets.token_hex(16)}>"
    printed = run_command(arguments(since, until, secret), timeout=_LONGEST, conf=conf).stdout
    return _loaded(Path("sacct"), "record", _rows_of_answer(printed, secret), options, since)


def arguments(since: float, until: float, separator: str) -> list[str]:
    """The command; sacct takes no seconds since the epoch, only local times."""
    begin, end = (datetime.fromtimestamp(time).strftime("%Y-%m-%dT%H:%M:%S") for time in (since, until))
    span = ["--starttime", begin, "--endtime", end]
    return ["sacct", "-a", "-X", "-P", "-n", "-D", *span, f"--delimiter={separator}", f"--format={','.join(_FIELDS)}"]


def _rows_of_file(text: Iterable[str]) -> Iterator[_Row]:
    for number, line in enumerate(text, start=1):
        if not line.isspace():
            yield number, line.rstrip("\r\n").split("|", len(_FIELDS) - 1)


def _rows_of_answer(printed: str, secret: str) -> Iterator[_Row]:
    """A newline between a comment and the next record's first field ends each record."""
    parts, width = printed.split(secret), len(_FIELDS) - 1
    if (len(parts) - 1) % width:
        raise ParseError(f"sacct printed a part of a job: {printed[-80:]!r}")
    first = parts[0]
    for number, at in enumerate(range(1, len(parts), width), start=1):
        comment, _, following = parts[at + width - 1].rpartition("\n")
        yield number, (first, *parts[at : at + width - 1], comment)
        first = following


def _loaded(path: Path, unit: str, rows: Iterable[_Row], options: ReadOptions, since: float) -> Loaded:
    records, wrong = _records(rows)
    total = len(records) + len(wrong)
    last, again = _last_runs(records)
    wrong |= again
    dropped: Counter[str] = Counter()
    if superseded := len(records) - len(again) - len(last):
        dropped["a later run (requeued; the job counts from its first submission)"] = superseded
    reasons = [_why_not(record, since) for record in last]
    dropped.update(filter(None, reasons))
    malformed = tuple(Malformed(f"{unit} {place}", wrong[place]) for place in sorted(wrong))
    report = ReadReport(path, total, tuple(dropped.items()), malformed)
    require_usable(report, options.strict)
    kept = [record for record, reason in zip(last, reasons, strict=True) if not reason]
    return _as_workload(kept, report, options)


def _records(rows: Iterable[_Row]) -> tuple[list[_Record], dict[int, str]]:
    """The good ones; and what is wrong with the others, by place."""
    records, wrong = [], {}
    for place, fields in rows:
        try:
            records.append(_record(place, fields))
        except ValueError as error:
            wrong[place] = str(error)
    return records, wrong


def _record(place: int, fields: Sequence[str]) -> _Record:
    if len(fields) != len(_FIELDS):
        raise ValueError(f"{len(fields)} fields, not {len(_FIELDS)}")
    job, _, submit, start, end, elapsed, limit, cpus, account, partition, qos, state, comment = fields
    submitted = _time("Submit", submit)
    if submitted is None or not state:
        raise ValueError("no time of submission" if submitted is None else "no state")
    return _Record(
        place,
        _number("JobIDRaw", job, bounds.NUMBER),
        submitted,
        _time("Start", start),
        _time("End", end),
        float(_number("ElapsedRaw", elapsed, bounds.SECONDS)),
        _limit(limit),
        _number("AllocCPUS", cpus, bounds.CPUS),
        account,
        partition,
        qos,
        state.partition(" ")[0],
        comment,
    )


def _number(name: str, text: str, most: int) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{name}: {text[:40]!r} is no whole number")
    if int(text) > most:
        raise ValueError(f"{name}: {text} is more than {most:,}")
    return int(text)


def _time(name: str, text: str) -> float | None:
    """Seconds since the epoch; local time if it is written out."""
    if not values.text(text):
        return None
    if _NUMBER.fullmatch(text):
        return float(_number(name, text, bounds.SECONDS))
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{name}: {text[:40]!r} is no time") from None


def _limit(text: str) -> float:
    """Minutes as seconds; a job that was never given a limit counts as one without."""
    return (
        inf
        if text in ("", "UNLIMITED", "Partition_Limit")
        else 60.0 * _number("TimelimitRaw", text, bounds.SECONDS // 60)
    )


def _last_runs(records: Sequence[_Record]) -> tuple[list[_Record], dict[int, str]]:
    """The last record of each job, with its first submission; and by place the records of other jobs whose number
    stood before (Slurm reuses job numbers, but hardly within a period that one replays)."""
    last: dict[int, _Record] = {}
    again = {}
    for record in sorted(records, key=lambda record: record.submit):
        before = last.get(record.job)
        if before is None:
            last[record.job] = record
        elif before.state in _CAME_BACK:
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
