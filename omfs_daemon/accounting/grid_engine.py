"""Grid Engine's own accounting file, accounting(5): colon-separated, 43 to 52 fields by version.

A name of a job may contain colons, so what follows it is counted from the right. Times are seconds since the epoch, in
Univa and Altair Grid Engine milliseconds. Tasks of a tight integration and runs that were moved or rescheduled have
lines of their own; all lines of a task of a job are one job. Jobs deleted while they waited leave no line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
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
from omfs_daemon.accounting.read_report import ReadReport
from omfs_daemon.accounting.record_period import ALWAYS, OUTSIDE, RecordPeriod, RecordsInPeriod
from omfs_daemon.accounting.split_lines import NumberedLines, numbered_lines, split_columns

_FEWEST, _MOST = 43, 60
_MILLISECONDS = 10**11
"""No time in seconds is that late."""

_HEAD = ["qname", "hostname", "group", "owner"]
_TAIL = (
    *("job_number", "account", "priority", "submission_time", "start_time", "end_time", "failed", "exit_status"),
    *("ru_wallclock", "ru_utime", "ru_stime", "ru_maxrss", "ru_ixrss", "ru_ismrss", "ru_idrss", "ru_isrss"),
    *("ru_minflt", "ru_majflt", "ru_nswap", "ru_inblock", "ru_oublock", "ru_msgsnd", "ru_msgrcv", "ru_nsignals"),
    *("ru_nvcsw", "ru_nivcsw", "project", "department", "granted_pe", "slots", "task_number", "cpu", "mem", "io"),
    *("category", "iow", "pe_taskid", "maxvmem"),
)
"""After the name of the job; newer versions have more."""

_NUMBERS = ("job_number", "submission_time", "start_time", "end_time", "slots", "task_number")
_MOVED = (24, 25)
"""``failed`` of a run that was moved or rescheduled: the job runs again."""
_CAME_BACK = frozenset({"REQUEUED"})
_OVER_LIMIT = 37
"""``failed`` of a job that qmaster ended at its limit of run time, processor time, or memory."""
_CANCELLED = 100
"""``failed`` of a job that a signal has ended; exit status 137 is SIGKILL, as qdel and limits send it."""


def is_grid_engine(line: str) -> bool:
    """Whether this is a line of such a file."""
    parts = line.rstrip("\r\n").split(":")
    return any(_excess(parts, fields) is not None for fields in range(_FEWEST, min(len(parts), _MOST) + 1))


def end_of_line(line: str) -> float | None:
    """When the job of a line ended, seconds since the epoch; None if it never ran or the line is no record."""
    words = line.rstrip("\r\n").split(":")
    excess = _excess(words, len(words)) if len(words) >= _FEWEST else None
    if excess is None:
        return None
    end = float(words[5 + excess + _TAIL.index("end_time")])
    return (end if end <= _MILLISECONDS else end / 1000.0) or None


def grid_engine_records(
    path: Path, text: Iterable[str], period: RecordPeriod = ALWAYS, unit: str = "line", now: float = inf
) -> JobRecords:
    """The jobs of a file that were there in the period; of the others nothing stays in memory. NothingFound if there is
    none. ``unit``: what lines are counted as; ``now``: of ``without_absurd``."""
    records = RecordsInPeriod(period, _CAME_BACK)
    wrong: dict[int, str] = {}
    total = fields = 0
    for lines in numbered_lines(text):
        is_data = ~lines.text.str.starts_with("#") & (lines.text.str.len_bytes() > 1)
        data = NumberedLines(lines.place.filter(is_data), lines.text.filter(is_data))
        total += len(data.text)
        if not len(data.text):
            continue
        counts = data.text.str.count_matches(":", literal=True) + 1
        fields = fields or Counter(counts.to_list()).most_common(1)[0][0]
        records.add(_parsed(data, counts, fields, wrong))
    frame = records.frame(path)
    # A run that was rescheduled at once has no times at all: its job has another line.
    timeless = int((frame["submit"] <= 0).sum())
    frame = frame.filter(pl.col("submit") > 0)
    subtasks = int((~frame["is_last"]).sum())
    frame = _without_subtasks(frame)
    frame = without_absurd(frame, wrong, now)
    frame, again = with_runs(frame, _CAME_BACK)
    wrong |= again
    reasons = (
        ("a job's own line as well (tasks of a tight integration)", subtasks),
        ("no time of submission (rescheduled at once)", timeless),
        (OUTSIDE, records.outside),
    )
    dropped = tuple((reason, count) for reason, count in reasons if count)
    return JobRecords(frame, ReadReport(path, total, dropped, malformed_records(wrong, unit)))


def _parsed(lines: NumberedLines, counts: pl.Series, fields: int, wrong: dict[int, str]) -> pl.DataFrame:
    usual = counts == fields if fields >= _FEWEST else pl.Series([False] * len(counts))
    parts = [_split(lines.text.filter(usual), lines.place.filter(usual), 0)] if usual.any() else []
    odd_rows: dict[int, list[int]] = {}
    for row in (~usual).arg_true().to_list():
        words = str(lines.text[row]).split(":")
        excess = _excess(words, fields) if len(words) >= _FEWEST else None
        if excess is None:
            wrong[int(lines.place[row])] = _why_no_record(len(words), fields)
        else:
            odd_rows.setdefault(excess, []).append(row)
    parts += [_split(lines.text.gather(rows), lines.place.gather(rows), excess) for excess, rows in odd_rows.items()]
    raw = pl.concat(parts) if parts else pl.DataFrame(schema=_RAW_SCHEMA)
    return _as_records(_sound(raw, wrong))


def _why_no_record(count: int, usual: int) -> str:
    """Of a line with ``count`` fields in a file that mostly has ``usual`` ones, and may be no Grid Engine's at all."""
    if usual < _FEWEST <= count:
        return "no numbers where a record has them"
    return f"{count} fields, not {usual if usual >= _FEWEST else f'{_FEWEST} or more'}"


_RAW_SCHEMA = dict.fromkeys(("place",), pl.Int64) | dict.fromkeys((*_HEAD, "job_name", *_TAIL), pl.String)


def _split(texts: pl.Series, places: pl.Series, excess: int) -> pl.DataFrame:
    """``excess``: colons in the name of the job."""
    names = [f"name{number}" for number in range(excess + 1)]
    split = split_columns(texts, ":", [*_HEAD, *names, *_TAIL, "rest"])
    job_name = pl.concat_str(names, separator=":").alias("job_name")
    return split.select(places.cast(pl.Int64).alias("place"), *_HEAD, job_name, *_TAIL)


def _excess(words: list[str], fields: int) -> int | None:
    """How many colons the name has; None if the line is no record."""
    for excess in {max(len(words) - fields, 0), 0}:
        places = [5 + excess + _TAIL.index(name) for name in _NUMBERS if name != "task_number"]
        if all(at < len(words) and words[at].isdecimal() for at in places):
            return excess
    return None


def _sound(raw: pl.DataFrame, wrong: dict[int, str]) -> pl.DataFrame:
    """With numbers as such; rows with others go to ``wrong``."""
    numbers = raw.with_columns(pl.col(name).str.strip_chars().cast(pl.Int64, strict=False) for name in _NUMBERS)
    most = {"job_number": bounds.NUMBER, "slots": bounds.CPUS, "task_number": bounds.NUMBER}
    for name in _NUMBERS:
        bad = ~numbers[name].is_between(0, most.get(name, 1000 * bounds.SECONDS)).fill_null(False)
        for row in bad.arg_true().to_list():
            wrong.setdefault(int(raw["place"][row]), f"{name}: {str(raw[name][row])[:40]!r} is no number in range")
    return numbers.filter(~numbers["place"].is_in(list(wrong)))


def _as_records(raw: pl.DataFrame) -> pl.DataFrame:
    times = {name: _seconds(raw[name]) for name in ("submission_time", "start_time", "end_time")}
    start, end = (times[name].set(times[name] <= 0, None) for name in ("start_time", "end_time"))
    failed, status = (_first_number(raw[name]) for name in ("failed", "exit_status"))
    state = (
        pl.when(failed.is_in(_MOVED))
        .then(pl.lit("REQUEUED"))
        .when(start.is_null() | ((failed == _CANCELLED) & (status == 137)))
        .then(pl.lit("CANCELLED"))
        .when(failed == _OVER_LIMIT)
        .then(pl.lit("TIMEOUT"))
        .when((failed != 0) | (status != 0))
        .then(pl.lit("FAILED"))
        .otherwise(pl.lit("COMPLETED"))
    )
    task = raw["task_number"].cast(pl.String)
    job = raw["job_number"].cast(pl.String)
    is_task = raw["task_number"] > 0
    return record_frame(
        {
            "place": raw["place"],
            "job_id": (job + "." + task).zip_with(is_task, job),
            "array": job.set(~is_task, ""),
            "name": raw["job_name"],
            "user": raw["owner"],
            "account": raw["project"].replace("NONE", "").zip_with(raw["project"] != "NONE", raw["account"]),
            "partition": raw["qname"],
            "qos": raw["department"],
            "submit": times["submission_time"],
            "start": start,
            "end": end,
            "run": (end - start),
            "cpus": raw["slots"],
            "limit": _limit(raw["category"]),
            "state": state,
            "code": raw["exit_status"] + ":" + raw["failed"],
            "cpu_seconds": _positive(raw["cpu"]),
            "memory_used": _positive(raw["maxvmem"]),
            "is_last": raw["pe_taskid"].is_in(["NONE", ""]),
        },
        raw.with_columns(state.alias("state")),
    )


def _without_subtasks(frame: pl.DataFrame) -> pl.DataFrame:
    """Their use of processors and memory belongs to their job, which has a line of its own."""
    if frame["is_last"].all():
        return frame
    used = (
        frame.filter(~pl.col("is_last"))
        .group_by("job_id")
        .agg(pl.col("cpu_seconds").sum().alias("task_cpu"), pl.col("memory_used").sum().alias("task_memory"))
    )
    joined = frame.filter("is_last").join(used, on="job_id", how="left", maintain_order="left")
    return joined.with_columns(
        pl.sum_horizontal("cpu_seconds", "task_cpu").alias("cpu_seconds"),
        pl.sum_horizontal("memory_used", "task_memory").alias("memory_used"),
    ).select(frame.columns)


def _seconds(times: pl.Series) -> pl.Series:
    return times.cast(pl.Float64).zip_with(times <= _MILLISECONDS, times / 1000.0)


def _first_number(texts: pl.Series) -> pl.Series:
    """``0(128)`` is 0, ``100 : assumedly after job`` is 100."""
    return texts.str.extract(r"^\s*(-?[0-9]{1,9})").cast(pl.Int64, strict=False).fill_null(0)


def _limit(category: pl.Series) -> pl.Series:
    """Seconds of a hard limit of the run time that the job requested."""
    return category.str.extract(r"h_rt=([0-9]{1,10})").cast(pl.Float64, strict=False)


def _positive(texts: pl.Series) -> pl.Series:
    numbers = texts.cast(pl.Float64, strict=False)
    return numbers.set((numbers <= 0).fill_null(True), None)
