"""Standard Workload Format: 18 numbers per line, facts in comments (Chapin et al. 1999; Parallel Workloads Archive)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.arrays import Bools, Floats
from omfs_daemon.accounting.lines import lines
from omfs_daemon.accounting.read_report import Malformed, Progress, TraceFacts, repeated
from omfs_daemon.accounting.split_lines import numbered_lines


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
    for place, text in numbered_lines(lines(path, progress)):
        is_comment = text.str.starts_with(";")
        comments += text.filter(is_comment).to_list()
        place, text = place.filter(~is_comment), text.filter(~is_comment)
        fields = text.str.extract_all(r"\S+")
        whole = fields.list.len() == _FIELDS
        numbers = fields.filter(whole).explode().cast(pl.Float64, strict=False)
        rows.append(numbers.to_numpy().reshape(-1, _FIELDS))  # NaN for what is no number
        places.append(place.filter(whole).to_numpy())
        lengths = zip(place.filter(~whole), fields.filter(~whole).list.len(), strict=True)
        bad |= {at: f"{length} fields, not {_FIELDS}" for at, length in lengths}
        count += len(text)
    table, place_of_row = np.concatenate(rows), np.concatenate(places)
    for wrong_rows, why in _implausible(table):
        bad |= dict.fromkeys(place_of_row[wrong_rows].tolist(), why)
        table, place_of_row = table[~wrong_rows], place_of_row[~wrong_rows]
    malformed = tuple(Malformed(f"line {number}", bad[number]) for number in sorted(bad))
    return SwfRows(table, comments, malformed, count)


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
