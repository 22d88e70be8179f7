"""Records that Slurm's sacct printed: with -P and no steps, one line each.

A file holds one of two lists of fields, with a header line or without; times as seconds since the epoch or as sacct
prints them by itself (then local). The last field is the comment, a user's: any text, newlines and separators too. So
separators in it do no harm; a newline makes malformed lines in a file, which could even forge a job. A query therefore
uses a secret separator, which no comment can contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from math import inf
from typing import Any, NamedTuple

import polars as pl

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.local_times import clock_seconds, epochs
from omfs_daemon.accounting.split_lines import digits, numbered_lines, split_columns
from omfs_daemon.errors import ConfigError, ParseError
from omfs_daemon.slurm.commands import values

SHORT_FIELDS = (
    *("JobIDRaw", "JobID", "Submit", "Start", "End", "ElapsedRaw", "TimelimitRaw", "AllocCPUS"),
    *("Account", "Partition", "QOS", "State", "Comment"),
)
"""What a replay needs."""

FULL_FIELDS = (
    *("JobIDRaw", "JobID", "User", "Account", "Partition", "QOS", "Submit", "Eligible", "Start", "End", "ElapsedRaw"),
    *("TimelimitRaw", "ReqCPUS", "AllocCPUS", "AllocNodes", "AllocTRES", "ReqTRES", "State", "ExitCode"),
    *("Suspended", "NodeList", "Reason", "TotalCPU", "MaxRSS", "JobName", "Comment"),
)
"""What a report needs, all of them known to Slurm 22.05."""

CAME_BACK = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL"})
"""States of a record whose job ran again under the same number (sacct(1), JOB STATE CODES)."""

_NUMBER = re.compile(r"[0-9]{1,15}")
_NO_LIMIT = ("", "UNLIMITED", "Partition_Limit")
_NO_TIME = sorted(values.NOTHING)
_ISO = "%Y-%m-%dT%H:%M:%S"
_ISO_TEXT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}$"

PARSED = {
    "job": pl.Int64, "submit": pl.Float64, "start": pl.Float64, "end": pl.Float64, "run": pl.Float64,
    "limit": pl.Float64, "cpus": pl.Int64, "state": pl.String,
}  # fmt: skip
"""Columns that are parsed: ``start``, ``end`` null where there is none (yet), ``limit`` inf: none. The others are text
under Slurm's name of the field."""


def columns_of(fields: Sequence[str]) -> list[str]:
    """Those of ``SacctRows.frame``."""
    return ["place", *PARSED, *(name for name in fields if name not in _PARSED_FIELDS)]


class SacctRows(NamedTuple):
    """``frame``: the good records, with ``place``; ``wrong``: what is wrong with the others, by place; ``twice``: how
    many of the good ones' times of submission, start, and end clocks showed twice."""

    frame: pl.DataFrame
    wrong: dict[int, str]
    twice: int = 0


class WrittenTimes(NamedTuple):
    """``seconds`` since the epoch, null where a text is in none of the usual forms; ``none``: where it says that there
    is no time; ``twice``: where clocks showed the time twice, and the first is taken."""

    seconds: pl.Series
    none: pl.Series
    twice: pl.Series


def sacct_rows_of_file(text: Iterable[str], zone: tzinfo | None = None) -> Iterator[SacctRows]:
    """The records of a file, many at a time; ConfigError for a header without a needed field."""
    fields: Sequence[str] | None = None
    for lines in numbered_lines(text):
        place, texts = lines
        if fields is None:
            fields, is_header = _fields_of(str(texts[0]))
            if is_header:
                place, texts = place[1:], texts[1:]
        if len(texts):
            yield _parsed(split_columns(texts, "|", list(fields)), place, fields, zone, texts)


def sacct_rows_of_answer(printed: str, secret: str, fields: Sequence[str] = SHORT_FIELDS) -> SacctRows:
    """A newline between a comment and the next record's first field ends each record."""
    parts, width = printed.split(secret), len(fields) - 1
    if (len(parts) - 1) % width:
        raise ParseError(f"sacct printed a part of a job: {printed[-80:]!r}")
    count = (len(parts) - 1) // width
    last_and_first = [text.rpartition("\n") for text in parts[width::width]]
    columns: dict[str, list[str]] = {fields[0]: [parts[0], *(after for _, _, after in last_and_first)][:count]}
    for at, name in enumerate(fields[1:-1], start=1):
        columns[name] = parts[at::width][:count]
    columns[fields[-1]] = [comment for comment, _, _ in last_and_first]
    frame = pl.DataFrame(columns, schema=dict.fromkeys(fields, pl.String))
    return _parsed(frame, pl.int_range(1, count + 1, eager=True).alias("place"), fields, None, None)


def _fields_of(line: str) -> tuple[Sequence[str], bool]:
    """The fields of a file by its first line, and whether that is a header."""
    words = line.split("|")
    if words[0] in FULL_FIELDS and not _NUMBER.fullmatch(words[0]):
        needed = [name for name in SHORT_FIELDS[:-1] if name not in words]
        if needed or len(set(words)) < len(words):
            raise ConfigError(f"sacct's header: {'no field ' + needed[0] if needed else 'a field occurs twice'}")
        return words, True
    return (FULL_FIELDS if len(words) >= len(FULL_FIELDS) and not _is_time(words[2]) else SHORT_FIELDS), False


def _is_time(text: str) -> bool:
    try:
        return _time("Submit", text, None) is not None
    except ValueError:
        return False


def _parsed(
    raw: pl.DataFrame, place: pl.Series, fields: Sequence[str], zone: tzinfo | None, texts: pl.Series | None
) -> SacctRows:
    """What is usual is parsed many at once; each other record by itself."""
    good = raw[fields[-1]].is_not_null()
    columns: dict[str, pl.Series] = {"place": place.cast(pl.Int64)}
    for name, field, most in (("job", "JobIDRaw", bounds.NUMBER), ("cpus", "AllocCPUS", bounds.CPUS)):
        columns[name] = digits(raw[field], most)
        good &= columns[name].is_not_null()
    columns["run"] = digits(raw["ElapsedRaw"], bounds.SECONDS).cast(pl.Float64)
    good &= columns["run"].is_not_null()
    twice = pl.Series([0] * len(raw), dtype=pl.Int64)
    for name, field in (("submit", "Submit"), ("start", "Start"), ("end", "End")):
        times = written_times(raw[field], zone)
        columns[name] = times.seconds
        good &= times.seconds.is_not_null() | (times.none if name != "submit" else False)
        twice += times.twice.cast(pl.Int64)
    limits = digits(raw["TimelimitRaw"], bounds.SECONDS // 60).cast(pl.Float64) * 60.0
    unlimited = raw["TimelimitRaw"].is_in(_NO_LIMIT)
    columns["limit"] = limits.set(unlimited, inf)
    good &= columns["limit"].is_not_null()
    columns["state"] = raw["State"].str.splitn(" ", 2).struct.field("field_0")
    good &= raw["State"] != ""
    good = good.fill_null(False)
    others = [name for name in fields if name not in _PARSED_FIELDS]
    frame = pl.DataFrame([columns[name].alias(name) for name in ("place", *PARSED)] + [raw[name] for name in others])
    if good.all():
        return SacctRows(frame, {}, int(twice.sum()))
    wrong: dict[int, str] = {}
    patched = []
    for row in (~good).arg_true().to_list():
        try:
            found = _record(raw.row(row, named=True), fields, zone, None if texts is None else str(texts[row]))
        except ValueError as error:
            wrong[int(place[row])] = str(error)
            twice[row] = 0
        else:
            patched.append({"place": int(place[row])} | found | {name: raw[name][row] for name in others})
    kept = frame.filter(good)
    if patched:
        kept = pl.concat((kept, pl.DataFrame(patched, schema=frame.schema))).sort("place")
    return SacctRows(kept, wrong, int(twice.sum()))


_PARSED_FIELDS = {"JobIDRaw", "AllocCPUS", "ElapsedRaw", "Submit", "Start", "End", "TimelimitRaw", "State"}


def written_times(texts: pl.Series, zone: tzinfo | None) -> WrittenTimes:
    """Of seconds since the epoch, or of times as sacct prints them by itself, then of the zone."""
    none = texts.is_in(_NO_TIME)
    times = digits(texts, bounds.SECONDS).cast(pl.Float64)
    written = texts.str.contains(_ISO_TEXT).fill_null(False)
    twice = pl.Series([False] * len(texts), dtype=pl.Boolean)
    if written.any():
        clock = clock_seconds(texts.set(~written, None), _ISO)
        there = clock.is_not_null()
        found = epochs(clock.filter(there).to_numpy(), zone)
        times = times.scatter(there.arg_true(), pl.Series(found.seconds))
        twice = twice.scatter(there.arg_true(), pl.Series(found.twice))
    return WrittenTimes(times, none, twice)


def _record(
    row: Mapping[str, str | None], fields: Sequence[str], zone: tzinfo | None, line: str | None
) -> dict[str, Any]:
    """One record; ValueError says what is wrong with it."""
    if row[fields[-1]] is None:
        raise ValueError(f"{1 if line is None else line.count('|') + 1} fields, not {len(fields)}")
    text = {name: value or "" for name, value in row.items()}
    submitted = _time("Submit", text["Submit"], zone)
    if submitted is None or not text["State"]:
        raise ValueError("no time of submission" if submitted is None else "no state")
    return {
        "job": _number("JobIDRaw", text["JobIDRaw"], bounds.NUMBER),
        "submit": submitted,
        "start": _time("Start", text["Start"], zone),
        "end": _time("End", text["End"], zone),
        "run": float(_number("ElapsedRaw", text["ElapsedRaw"], bounds.SECONDS)),
        "limit": _limit(text["TimelimitRaw"]),
        "cpus": _number("AllocCPUS", text["AllocCPUS"], bounds.CPUS),
        "state": text["State"].partition(" ")[0],
    }


def _number(name: str, text: str, most: int) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{name}: {text[:40]!r} is no whole number")
    if int(text) > most:
        raise ValueError(f"{name}: {text} is more than {most:,}")
    return int(text)


def _time(name: str, text: str, zone: tzinfo | None) -> float | None:
    """Seconds since the epoch; of the zone if it is written out."""
    if not values.text(text):
        return None
    if _NUMBER.fullmatch(text):
        return float(_number(name, text, bounds.SECONDS))
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo or zone is None else time.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{name}: {text[:40]!r} is no time") from None


def _limit(text: str) -> float:
    """Minutes as seconds; a job that was never given a limit counts as one without."""
    return inf if text in _NO_LIMIT else 60.0 * _number("TimelimitRaw", text, bounds.SECONDS // 60)
