"""Records of jobs from Slurm's accounting, saved or asked for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import tzinfo
from math import inf
from pathlib import Path

import polars as pl

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.job_records import (
    JobRecords,
    malformed_records,
    record_frame,
    with_runs,
    without_absurd,
)
from omfs_daemon.accounting.local_times import notes_on_twice
from omfs_daemon.accounting.read_report import ReadReport
from omfs_daemon.accounting.record_period import ALWAYS, OUTSIDE, RecordPeriod, RecordsInPeriod
from omfs_daemon.accounting.sacct_rows import CAME_BACK, SacctRows, written_times
from omfs_daemon.accounting.split_lines import digits

_DURATION = r"^(?:([0-9]{1,9})-)?(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,2}(?:\.[0-9]{1,9})?)$"
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}


def sacct_records(
    path: Path,
    unit: str,
    parts: Iterable[SacctRows],
    zone: tzinfo | None = None,
    period: RecordPeriod = ALWAYS,
    now: float = inf,
) -> JobRecords:
    """One row per record of sacct that was there in the period; NothingFound if there is none.

    ``unit``: what places count; ``zone``: of times that are written out; ``now``: of ``without_absurd``
    """
    records = RecordsInPeriod(period, CAME_BACK)
    wrong: dict[int, str] = {}
    twice = 0
    for part in parts:
        eligible = written_times(part.frame["Eligible"], zone) if "Eligible" in part.frame.columns else None
        records.add(_as_records(part.frame, None if eligible is None else eligible.seconds))
        wrong |= part.wrong
        twice += part.twice + (0 if eligible is None else int(eligible.twice.sum()))
    frame = records.frame(path)
    total = len(frame) + len(wrong) + records.outside
    dropped = ((OUTSIDE, records.outside),) if records.outside else ()
    frame = without_absurd(frame, wrong, now)
    frame, again = with_runs(frame, CAME_BACK)
    wrong |= again
    return JobRecords(frame, ReadReport(path, total, dropped, malformed_records(wrong, unit), notes_on_twice(twice)))


def _as_records(raw: pl.DataFrame, eligible: pl.Series | None) -> pl.DataFrame:
    """``eligible``: seconds since the epoch. Slurm writes the present there for a job that is held, and 0 for never."""

    def text(name: str) -> pl.Expr | None:
        return pl.col(name) if name in raw.columns else None

    cpus = raw["cpus"]
    if "ReqCPUS" in raw.columns:
        requested = digits(raw["ReqCPUS"], bounds.CPUS).fill_null(0)
        cpus = cpus.zip_with((cpus > 0) | raw["start"].is_not_null(), requested)
    return record_frame(
        {
            "place": raw["place"],
            "job_id": raw["job"].cast(pl.String),
            "array": _array(raw["JobID"]),
            "name": text("JobName"),
            "user": text("User"),
            "account": text("Account"),
            "partition": text("Partition"),
            "qos": text("QOS"),
            "submit": raw["submit"],
            "eligible": eligible,
            "start": raw["start"].set(_never_ran(raw), None),
            "end": raw["end"],
            "run": raw["run"],
            "cpus": cpus,
            "limit": raw["limit"].set(raw["limit"].is_infinite(), None),
            "state": raw["state"],
            "code": text("ExitCode"),
            "reason": text("Reason"),
            "cpu_seconds": written_durations(raw["TotalCPU"]) if "TotalCPU" in raw.columns else None,
            "memory_used": written_sizes(raw["MaxRSS"]) if "MaxRSS" in raw.columns else None,
            "memory_asked": _memory(raw["ReqTRES"]) if "ReqTRES" in raw.columns else None,
            "gpus": _gpus(raw["AllocTRES"]) if "AllocTRES" in raw.columns else None,
        },
        raw,
    )


def _never_ran(raw: pl.DataFrame) -> pl.Series:
    """Slurm gives a job that was canceled while it waited a start at its end, and the CPUs that it asked for."""
    at_once = (raw["state"] == "CANCELLED") & (raw["start"] == raw["end"]) & (raw["run"] == 0)
    if "NodeList" in raw.columns:
        at_once &= raw["NodeList"].is_in(["None assigned", ""])
    return at_once.fill_null(False)


def _array(ids: pl.Series) -> pl.Series:
    """``12`` of ``12_3``."""
    return ids.str.extract(r"^([0-9]+)_").fill_null("")


def written_durations(texts: pl.Series) -> pl.Series:
    """Seconds of ``[days-][hours:]minutes:seconds[.fraction]``; null where there are none."""
    parts = texts.str.extract_groups(_DURATION)
    days, hours, minutes, seconds = (
        parts.struct.field(name).cast(pl.Float64, strict=False) for name in parts.struct.fields
    )
    total = days.fill_null(0.0) * 86400 + hours.fill_null(0.0) * 3600 + minutes * 60 + seconds
    return total.set(total <= 0, None)


def _memory(tres: pl.Series) -> pl.Series:
    """Bytes of ``cpu=4,mem=2G,node=1``."""
    return written_sizes(tres.str.extract(r"(?:^|,)mem=([^,]*)"))


def _gpus(tres: pl.Series) -> pl.Series:
    """3 of ``gres/gpu=3,gres/gpu:a100=3``; where a site counts GPUs by type only, all types together."""
    total = digits(tres.str.extract(r"(?:^|,)gres/gpu=([0-9]+)"), bounds.CPUS)
    typed = total.is_null() & tres.str.contains("gres/gpu:", literal=True).fill_null(False)
    if not typed.any():
        return total
    by_type = tres.filter(typed).str.extract_all(r"gres/gpu:[^,=]+=[0-9]{1,8}")
    sums = by_type.list.eval(pl.element().str.extract(r"=([0-9]+)$").cast(pl.Int64)).list.sum()
    return total.scatter(typed.arg_true(), sums)


def written_sizes(texts: pl.Series) -> pl.Series:
    """Bytes of ``12.5G``; null where there are none."""
    parts = texts.str.extract_groups(r"^([0-9]{1,15}(?:\.[0-9]{1,9})?)([KMGTP]?)[nc]?$")
    number, unit = (parts.struct.field(name) for name in parts.struct.fields)
    factor = unit.replace_strict(_UNITS, default=None, return_dtype=pl.Float64)
    size = number.cast(pl.Float64, strict=False) * factor
    return size.set(size <= 0, None)
