"""Standard Workload Format: 18 numbers per line, facts in comments (Chapin et al. 1999; Parallel Workloads Archive)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.arrays import Bools, Floats
from omfs_daemon.accounting.lines import lines
from omfs_daemon.accounting.read_report import Malformed, Progress, TraceFacts, repeated


class Field(IntEnum):
    """The columns that are used."""

    JOB = 0
    SUBMIT = 1
    WAIT = 2
    RUN = 3
    ALLOCATED = 4
    CPU_TIME = 5
    MEMORY = 6
    REQUESTED = 7
    LIMIT = 8
    MEMORY_REQUESTED = 9
    STATUS = 10
    USER = 11
    GROUP = 12
    EXECUTABLE = 13
    QUEUE = 14
    PARTITION = 15


_FIELDS = 18
_WHOLE = [
    Field.JOB,
    Field.ALLOCATED,
    Field.REQUESTED,
    Field.STATUS,
    Field.USER,
    Field.GROUP,
    Field.EXECUTABLE,
    Field.QUEUE,
]
_TIMES = [Field.SUBMIT, Field.RUN, Field.LIMIT]
PARTS = (2, 3, 4)
"""The status of a part of a job that is recorded whole as well."""
_CHUNK = 50_000
_HEADER = re.compile(r";\s*(\w+):\s*(.*)")


class SwfRows(NamedTuple):
    """``rows``: the good lines' numbers; ``total``: how many lines there are that are neither empty nor comments."""

    rows: Floats
    comments: list[str]
    malformed: tuple[Malformed, ...]
    total: int


def read_swf_rows(path: Path, progress: Progress | None) -> SwfRows:
    """The records of a file; ConfigError if it cannot be read."""
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
    return SwfRows(table, comments, malformed, count)


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
    odd |= kilobytes(rows) > bounds.BYTES / 1024 / np.maximum(procs, 1)
    yield odd, f"more than {bounds.SECONDS:,} s, {bounds.CPUS:,} processors or {bounds.BYTES:,} bytes of memory"
    rows = rows[~odd]
    parts = np.isin(rows[:, Field.STATUS], PARTS)
    again = np.zeros(len(rows), dtype=np.bool_)
    again[~parts] = repeated(rows[~parts, Field.JOB])
    yield again, "its job number stood in a line before"


def kilobytes(rows: Floats) -> Floats:
    """Memory of each processor: used, else requested."""
    used, requested = rows[:, Field.MEMORY], rows[:, Field.MEMORY_REQUESTED]
    return np.where(used > 0, used, np.maximum(requested, 0))


def swf_facts(comments: list[str]) -> TraceFacts:
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
