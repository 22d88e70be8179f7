"""Records of jobs that have ended, of any source: one row per run of a job, one column per property."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

import numpy as np
import polars as pl

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.read_report import Malformed, ReadReport, TraceFacts
from omfs_daemon.errors import ConfigError

_MOST_BAD = 0.05

RECORD_SCHEMA: Mapping[str, type[pl.DataType]] = {
    **{"place": pl.Int64, "job_id": pl.String, "array": pl.String, "name": pl.String},
    **{"user": pl.String, "account": pl.String, "partition": pl.String, "qos": pl.String},
    **{"submit": pl.Float64, "eligible": pl.Float64, "start": pl.Float64, "end": pl.Float64, "run": pl.Float64},
    **{"cpus": pl.Int64, "limit": pl.Float64, "state": pl.String, "code": pl.String, "reason": pl.String},
    **{"cpu_seconds": pl.Float64, "memory_used": pl.Float64, "memory_asked": pl.Float64},
    **{"gpus": pl.Int64, "gpu_use": pl.Int64},
    **{"is_last": pl.Boolean, "first_submit": pl.Float64, "first_eligible": pl.Float64, "first_start": pl.Float64},
}
"""Columns and their kinds.

place              line or number in the source
array              job of which this is a task; empty: none
submit … end       seconds since the epoch; null: unknown, or not yet
eligible           from when on the job could have started; null: as submitted
run                seconds between start and end in which it was not suspended
cpus               CPUs that it had, or asked for if it never ran
limit              seconds; null: unknown or none
state              COMPLETED, FAILED, CANCELLED, TIMEOUT, ... as Slurm names them
code               exit code or what the source has beside it
cpu_seconds        that its processes used; null: unknown
memory_used, _asked  bytes, the greatest of the whole job; null: unknown
gpus               that it had; null: unknown
gpu_use            the greatest use of them that was measured, in percent; null: it was not measured
is_last            whether it is the last run of its job; the ``first_`` columns are of the job's first run
"""


class Disagreement(NamedTuple):
    """Printed figures that differ from those computed: how often, and the first few in words."""

    what: str
    often: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class JobRecords:
    """``frame`` has the columns of ``RECORD_SCHEMA``, in the order of submission."""

    frame: pl.DataFrame
    report: ReadReport
    facts: TraceFacts = field(default_factory=TraceFacts)
    disagreements: tuple[Disagreement, ...] = ()


def record_frame(columns: Mapping[str, pl.Series | pl.Expr | None], source: pl.DataFrame) -> pl.DataFrame:
    """A frame of the schema from what is known; texts that are not known are empty, all else is null."""
    chosen = []
    for name, kind in RECORD_SCHEMA.items():
        value = columns.get(name)
        if isinstance(value, pl.Series | pl.Expr):
            chosen.append(value.cast(kind).alias(name))
        else:
            chosen.append(pl.lit("" if kind == pl.String else None, dtype=kind).alias(name))
    return source.select(chosen) if len(source) else pl.DataFrame(schema=dict(RECORD_SCHEMA))


def with_runs(frame: pl.DataFrame, came_back: frozenset[str]) -> tuple[pl.DataFrame, dict[int, str]]:
    """Rows of one job as its runs, in order of submission; and, by place, rows of a job that had ended before.

    came_back  states of a run after which the same job runs again
    """
    frame = _in_order(frame)
    firsts = [pl.col(name).alias(f"first_{name}") for name in ("submit", "eligible", "start")]
    # Distinct hashes are of distinct numbers; sorting them takes a tenth of the memory of a set of texts.
    hashes = np.sort(frame["job_id"].hash().to_numpy())
    if not (hashes[1:] == hashes[:-1]).any():
        return frame.with_columns(*firsts, pl.lit(True).alias("is_last")), {}
    before = pl.col("state").shift(1).over("job_id")
    anew = (before.is_not_null() & ~before.is_in(list(came_back))).fill_null(False)
    # All that follows a job's end under its number is another job's.
    again = frame.with_columns(anew.alias("anew")).select(pl.col("anew").cum_sum().over("job_id") > 0).to_series()
    wrong = dict.fromkeys(frame["place"].filter(again).to_list(), "its job number stood in a record before")
    frame = frame.filter(~again)
    firsts = [
        pl.col(name).drop_nulls().first().over("job_id").alias(f"first_{name}")
        for name in ("submit", "eligible", "start")
    ]
    last = (pl.int_range(pl.len()).over("job_id") == pl.len().over("job_id") - 1).alias("is_last")
    return frame.with_columns(*firsts, last), wrong


def _in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """By submission, start, place, what is unknown last. Not a copy if it is so already, as most logs are."""
    submit, start = (frame[name].fill_null(np.nan).to_numpy() for name in ("submit", "start"))
    order = np.lexsort((frame["place"].to_numpy(), start, submit))
    return frame if (order[1:] > order[:-1]).all() else frame[order]


def without_absurd(frame: pl.DataFrame, wrong: dict[int, str], now: float = inf) -> pl.DataFrame:
    """Leave out rows that cannot be a job's, and say in ``wrong`` why. ``now``: seconds since the epoch, later than
    which times hardly are; inf: not known."""
    late = pl.max_horizontal("submit", "start", "end") > now + bounds.AHEAD
    for holds, why in (
        (late, "a time more than a year from now"),
        (pl.col("end") < pl.col("start"), "END before START"),
        (pl.col("start") < pl.col("submit") - 1, "START before SUBMIT"),
        (pl.col("start").is_not_null() & (pl.col("cpus") <= 0), "no CPUs"),
    ):
        bad = frame.select(holds.fill_null(False)).to_series()
        if bad.any():
            wrong |= dict.fromkeys(frame["place"].filter(bad).to_list(), why)
            frame = frame.filter(~bad)
    return frame


def malformed_records(wrong: Mapping[int, str], unit: str) -> tuple[Malformed, ...]:
    return tuple(Malformed(f"{unit} {place}", wrong[place]) for place in sorted(wrong))


def require_good(records: JobRecords, strict: bool, lenient: bool) -> None:
    """ConfigError if there is no record, if one is malformed although ``strict``, or if too many are."""
    report = records.report
    bad = len(report.malformed)
    if strict and bad:
        raise ConfigError(f"{report.path}: {bad:,} malformed: {report.malformed_in_short()}")
    if bad > _MOST_BAD * report.records and not lenient:
        first = replace(report, malformed=report.malformed[:3]).malformed_in_short()
        raise ConfigError(
            f"{report.path}: {bad:,} of {report.records:,} records are malformed, more than {_MOST_BAD:.0%}: {first}; "
            "--lenient leaves them out"
        )
    if not len(records.frame):
        raise ConfigError(f"{report.path}: no record of a job")
