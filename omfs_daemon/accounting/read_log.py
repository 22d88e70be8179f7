"""Read any log of jobs; its name or its first line gives the format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from itertools import chain, islice
from math import inf
from pathlib import Path
from typing import Literal, get_args

from omfs_daemon.accounting.grid_engine import end_of_line, grid_engine_records, is_grid_engine
from omfs_daemon.accounting.grid_engine_table import CONVERTED_FIELDS, converted_records, separator_of
from omfs_daemon.accounting.job_records import JobRecords, require_good
from omfs_daemon.accounting.lines import lines
from omfs_daemon.accounting.nearly_sorted import first_byte
from omfs_daemon.accounting.read_report import Progress
from omfs_daemon.accounting.record_period import ALWAYS, RecordPeriod
from omfs_daemon.accounting.records_of_sacct import sacct_records
from omfs_daemon.accounting.records_of_traces import swf_records, table_records
from omfs_daemon.accounting.sacct_rows import SHORT_FIELDS, sacct_rows_of_file
from omfs_daemon.errors import ConfigError

LogFormat = Literal["auto", "sge", "sge22", "sacct", "swf", "table"]

_OUT_OF_ORDER = 86400.0
"""Seconds by which the ends of jobs in Grid Engine's file may be out of order: qmaster writes them as they come in."""

_FIRST = 100
"""Lines that may be comments before the one that tells the format."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log is read.

    zone       of times that are written without one; None: the machine's own
    separator  of the converted format alone; None: found from the first line
    strict     whether a malformed line is an error
    lenient    whether many of them are none
    period     of which records are kept of files that may be larger than memory: Grid Engine's and sacct's
    now        seconds since the epoch, later than which times in these files hardly are; inf: not known
    """

    format: str = "auto"
    zone: tzinfo | None = None
    separator: str | None = None
    strict: bool = False
    lenient: bool = False
    period: RecordPeriod = ALWAYS
    now: float = inf

    def __post_init__(self) -> None:
        if self.format not in get_args(LogFormat):
            raise ConfigError(f"--format = {self.format!r}: must be one of {', '.join(get_args(LogFormat))}")
        if self.separator == "":
            raise ConfigError("--separator = '': must be at least one character")


def read_log(path: Path, options: LogOptions, progress: Progress | None = None) -> JobRecords:
    """The jobs of a file; ConfigError if it is missing, of an unknown kind, or wrong."""
    kind = options.format if options.format != "auto" else _kind_of(path)
    if options.separator is not None and kind != "sge22":
        raise ConfigError(f"--separator = {options.separator!r}: {path} is read as {kind}, and it is for sge22 only")
    match kind:
        case "swf":
            records = swf_records(path, progress)
        case "table":
            records = table_records(path, progress)
        case "sacct":
            rows = sacct_rows_of_file(lines(path, progress), options.zone)
            records = sacct_records(path, "line", rows, options.zone, options.period, options.now)
        case "sge":
            begin, unit = 0, "line"
            if options.period.since > 0 and path.suffix.lower() != ".gz":
                begin = first_byte(path, options.period.since, _OUT_OF_ORDER, end_of_line)
                unit = f"after byte {begin:,}, line" if begin else unit
            records = grid_engine_records(path, lines(path, progress, begin), options.period, unit, options.now)
        case _:
            text = lines(path, progress)
            records = converted_records(path, text, options.zone, options.separator, options.period, options.now)
    require_good(records, options.strict, options.lenient)
    return records


def _kind_of(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    for end, kind in ((".swf", "swf"), (".sacct", "sacct"), (".parquet", "table")):
        if name.endswith(end):
            return kind
    if path.is_fifo():
        raise ConfigError(f"{path}: a pipe, which can be read once only: --format must say what it holds")
    first = _first_line(lines(path, None))
    if not first:
        raise ConfigError(f"{path}: no record of a job")
    if is_grid_engine(first):
        return "sge"
    if separator_of(first.rstrip("\r\n")) is not None:
        return "sge22"
    if first.startswith("JobIDRaw|") or (first[:1].isdigit() and first.count("|") >= len(SHORT_FIELDS) - 1):
        return "sacct"
    if name.endswith(".csv"):
        return "table"
    raise ConfigError(
        f"{path}: of no known format: not sge (43 or more fields between colons, "
        f"{first.count(':') + 1} in the first line), not sge22 ({len(CONVERTED_FIELDS)} fields), not sacct "
        f"({len(SHORT_FIELDS)} or more fields between |, {first.count('|') + 1}), and the name ends in none of .swf, "
        ".sacct, .csv, .parquet; --format says which it is"
    )


def _first_line(text: Iterator[str]) -> str:
    """The first that is neither blank nor a comment."""
    some = chain(islice(text, _FIRST))
    return next((line for line in some if len(line.strip()) > 1 and not line.startswith(("#", ";"))), "")
