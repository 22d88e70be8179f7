"""Standard Workload Format: 18 numbers per line, facts in comments (Chapin et al. 1999; Parallel Workloads Archive).

The rule for what is replayed: a record whose submission, run time or processors are unknown is dropped; run time 0 is
kept. Parts of a job that is recorded whole as well (status 2 to 4) are dropped. This gives the job counts of Agung et
al. (2021): SDSC-DS 85,045, LANL-CM5 122,057, DWD 5,493 and 8,313 urgent. Of SX-ACE it keeps all 54,124 records, they
say 54,123: no unknown sets one apart, but their loader stops at a configured number of jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omfs_daemon.simulate.workload import bounds
from omfs_daemon.simulate.workload.lines import lines
from omfs_daemon.simulate.workload.read_report import (
    Loaded,
    Malformed,
    Progress,
    ReadOptions,
    ReadReport,
    TraceFacts,
    numbered_accounts,
    repeated,
    require_usable,
)
from omfs_daemon.simulate.workload.workload import Bools, Floats, PreemptMode, workload


class Field(IntEnum):
    """The columns that are used."""

    JOB = 0
    SUBMIT = 1
    RUN = 3
    ALLOCATED = 4
    MEMORY = 6
    REQUESTED = 7
    LIMIT = 8
    MEMORY_REQUESTED = 9
    STATUS = 10
    USER = 11
    GROUP = 12
    QUEUE = 14


_FIELDS = 18
_WHOLE = [Field.JOB, Field.ALLOCATED, Field.REQUESTED, Field.STATUS, Field.USER, Field.GROUP, Field.QUEUE]
_TIMES = [Field.SUBMIT, Field.RUN, Field.LIMIT]
_OWNERS = {"group": Field.GROUP, "user": Field.USER, "queue": Field.QUEUE, "none": Field.GROUP}
_PARTS = (2, 3, 4)
_CHUNK = 50_000
_HEADER = re.compile(r";\s*(\w+):\s*(.*)")


def read_swf(path: Path, options: ReadOptions, progress: Progress | None = None) -> Loaded:
    """The jobs of a trace; ConfigError if the file cannot be used."""
    records = _records(path, progress)
    rows, facts = records.rows, _facts(records.comments)
    procs, spare = rows[:, Field.ALLOCATED], rows[:, Field.REQUESTED]
    if options.processors == "requested":
        procs, spare = spare, procs
    cpus = np.where(procs > 0, procs, spare)
    dropped, kept = _dropped(rows, cpus)
    notes = _empty_queues(options.urgent_queues or (), rows[kept, Field.QUEUE])
    report = ReadReport(path, records.total, dropped, records.malformed, notes)
    require_usable(report, options.strict)

    rows, cpus = rows[kept], cpus[kept]
    begin = rows[:, Field.SUBMIT].min()
    accounts, account = numbered_accounts(options.accounts, rows[:, _OWNERS[options.accounts]].astype(np.int64))
    queues = facts.urgent_queues if options.urgent_queues is None else options.urgent_queues
    urgent = np.isin(rows[:, Field.QUEUE], queues)
    jobs = workload(
        path.name,
        rows[:, Field.SUBMIT] - begin,
        cpus.astype(np.int64),
        rows[:, Field.RUN],
        origin=0.0 if facts.start is None else facts.start + float(begin),
        accounts=accounts,
        job_id=rows[:, Field.JOB].astype(np.int64),
        limit=np.where(rows[:, Field.LIMIT] > 0, rows[:, Field.LIMIT], np.inf),
        account=account,
        urgent=urgent,
        mode=np.where(urgent, PreemptMode.NEVER, options.mode),
        memory=_kilobytes(rows) * 1024 * cpus,
    )
    return Loaded(jobs, report, facts)


class _Records(NamedTuple):
    """``rows``: the good lines' numbers; ``total``: how many lines there are that are neither empty nor comments."""

    rows: Floats
    comments: list[str]
    malformed: tuple[Malformed, ...]
    total: int


def _records(path: Path, progress: Progress | None) -> _Records:
    comments: list[str] = []
    rows, places, bad, count = [np.empty((0, _FIELDS))], [np.empty(0, dtype=np.int64)], dict[int, str](), 0
    numbered = enumerate(lines(path, progress), start=1)
    while chunk := list(islice(numbered, _CHUNK)):
        comments += [line for _, line in chunk if line.startswith(";")]
        data = [(number, line) for number, line in chunk if not line.startswith(";") and not line.isspace()]
        wrong: list[int] = []
        rows.append(_numbers([line for _, line in data], 0, wrong))
        places.append(np.delete(np.array([number for number, _ in data], dtype=np.int64), wrong))
        bad |= {data[index][0]: _fault(data[index][1]) for index in wrong}
        count += len(data)
    table, place = np.concatenate(rows), np.concatenate(places)
    for wrong_rows, why in _implausible(table):
        bad |= dict.fromkeys(place[wrong_rows].tolist(), why)
        table, place = table[~wrong_rows], place[~wrong_rows]
    malformed = tuple(Malformed(f"line {number}", bad[number]) for number in sorted(bad))
    return _Records(table, comments, malformed, count)


def _numbers(texts: list[str], offset: int, wrong: list[int]) -> Floats:
    """The numbers of these lines; the indices (plus ``offset``) of those that are not 18 numbers go to ``wrong``.

    Lines that do not parse together are halved until the bad one stands alone: one parser decides for all lines, and
    good ones are parsed many at a time.
    """
    if texts:
        try:
            rows = np.loadtxt(texts, comments=None, ndmin=2)
        except ValueError:
            rows = np.empty((0, 0))
        if rows.shape == (len(texts), _FIELDS):
            return rows
    if len(texts) > 1:
        half = len(texts) // 2
        first = _numbers(texts[:half], offset, wrong)
        return np.concatenate((first, _numbers(texts[half:], offset + half, wrong)))
    wrong.extend(range(offset, offset + len(texts)))
    return np.empty((0, _FIELDS))


def _fault(line: str) -> str:
    fields = len(line.split())
    return "a field is no number" if fields == _FIELDS else f"{fields} fields, not {_FIELDS}"


def _implausible(rows: Floats) -> Iterator[tuple[Bools, str]]:
    """Rows whose numbers cannot be a job; each mask is over the rows that no mask before it has chosen."""
    odd = np.asarray(~np.isfinite(rows).all(axis=1))
    yield odd, "a field is no number"
    rows = rows[~odd]
    whole = rows[:, _WHOLE]
    odd = np.asarray(((whole != np.floor(whole)) | (np.abs(whole) > bounds.NUMBER)).any(axis=1))
    yield odd, "job, processors, status, user, group or queue is no whole number"
    rows = rows[~odd]
    procs = rows[:, [Field.ALLOCATED, Field.REQUESTED]].max(axis=1)
    odd = np.asarray((rows[:, _TIMES] > bounds.SECONDS).any(axis=1) | (procs > bounds.CPUS))
    odd |= _kilobytes(rows) > bounds.BYTES / 1024 / np.maximum(procs, 1)
    yield odd, f"more than {bounds.SECONDS:,} s, {bounds.CPUS:,} processors or {bounds.BYTES:,} bytes of memory"
    rows = rows[~odd]
    parts = np.isin(rows[:, Field.STATUS], _PARTS)
    again = np.zeros(len(rows), dtype=np.bool_)
    again[~parts] = repeated(rows[~parts, Field.JOB])
    yield again, "its job number stood in a line before"


def _dropped(rows: Floats, cpus: Floats) -> tuple[tuple[tuple[str, int], ...], Bools]:
    """Reasons and counts, and which rows are kept; a row counts for the first reason that holds."""
    kept = np.ones(len(rows), dtype=np.bool_)
    counts = []
    for reason, holds in (
        ("a status of 2 to 4 (a part of a job)", np.isin(rows[:, Field.STATUS], _PARTS)),
        ("unknown submission", rows[:, Field.SUBMIT] < 0),
        ("unknown run time", rows[:, Field.RUN] < 0),
        ("unknown processors", cpus <= 0),
    ):
        if count := int((kept & holds).sum()):
            counts.append((reason, count))
        kept &= ~holds
    return tuple(counts), kept


def _empty_queues(requested: Sequence[int], queues: Floats) -> tuple[str, ...]:
    """What was requested and may be a mistake."""
    empty = sorted(set(requested) - set(queues.tolist()))
    return (f"no job is in the urgent queue {', '.join(map(str, empty))}",) if empty else ()


def _kilobytes(rows: Floats) -> Floats:
    """Memory of each processor: used, else requested."""
    used, requested = rows[:, Field.MEMORY], rows[:, Field.MEMORY_REQUESTED]
    return np.where(used > 0, used, np.maximum(requested, 0))


def _facts(comments: list[str]) -> TraceFacts:
    """From the header; the first value of a repeated field."""
    header_fields = [(str(match[1]), str(match[2]).strip()) for match in map(_HEADER.match, comments) if match]
    found: dict[str, str] = dict(reversed(header_fields))
    start = _first_whole(found.get("UnixStartTime", ""))
    return TraceFacts(
        cpus=_first_whole(found.get("MaxProcs", "")),
        nodes=_first_whole(found.get("MaxNodes", "")),
        start=None if start is None else float(start),
        computer=found.get("Computer", found.get("Installation", "")),
        acknowledge=tuple(value for name, value in header_fields if name == "Acknowledge"),
        urgent_queues=tuple(int(number) for number in re.findall(r"\b\d{1,15}\b", found.get("UrgentQueues", ""))),
    )


def _first_whole(text: str) -> int | None:
    """``1664 (72, 1368, 224)`` is 1664; None for anything that does not begin with a number above 0
    and of at most 15 digits."""
    match = re.match(r"[1-9]\d{0,14}\b", text)
    return int(match[0]) if match else None
