"""Grid Engine's accounting as Tachyon2 converts it: 22 fields a line (Yoon et al. 2020, Table 2).

Printed waits, runs, and core seconds contradict the dates even in the published example, so all are computed from the
dates; where the printed ones differ, that is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import tzinfo
from itertools import chain
from math import inf
from pathlib import Path

import polars as pl

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.job_records import (
    Disagreement,
    JobRecords,
    malformed_records,
    record_frame,
    with_runs,
    without_absurd,
)
from omfs_daemon.accounting.local_times import clock_seconds, epochs, notes_on_twice
from omfs_daemon.accounting.read_report import ReadReport
from omfs_daemon.accounting.record_period import ALWAYS, OUTSIDE, RecordPeriod, RecordsInPeriod
from omfs_daemon.accounting.split_lines import NumberedLines, numbered_lines, split_columns
from omfs_daemon.errors import ConfigError

CONVERTED_FIELDS = (
    *("DATE", "JOBID", "GID", "UID", "JOBNAME", "QNAME", "SUBMIT", "START", "END", "WAIT", "RUN", "CPUS"),
    *("CPU_USAGE", "MEM_USAGE", "MAX_VMEM", "STATUS", "E_CPU", "E_RUN", "EXIT_CODE", "FAILED"),
    *("OMP_NUM_THREADS", "TASK_NUM"),
)
_SEPARATORS = ("|", ",", "\t")
_DATES = ("SUBMIT", "START", "END")
_DATE = "%Y%m%d%H%M%S"
_SHOWN = 5
_CODE = r"^\s*(-?[0-9]{1,9})"


def separator_of(line: str) -> str | None:
    """What stands between the 22 fields of this line, ``" "`` for any blanks; None if it has not so many."""
    found = [one for one in _SEPARATORS if line.count(one) == len(CONVERTED_FIELDS) - 1]
    if found:
        return found[0]
    return " " if len(line.split()) == len(CONVERTED_FIELDS) else None


def converted_records(
    path: Path, text: Iterable[str], zone: tzinfo | None, separator: str | None = None,
    period: RecordPeriod = ALWAYS, now: float = inf,
) -> JobRecords:  # fmt: skip
    """The jobs of a file that were there in the period; dates are of ``zone``, None: the machine's own; ``now``: of
    ``without_absurd``. ConfigError without a separator, NothingFound without a job in the period."""
    parts = numbered_lines(text)
    first = next(parts, None)
    if first is None:
        raise ConfigError(f"{path}: no record of a job")
    separator = separator or separator_of(str(first.text[0]))
    if separator is None:
        raise ConfigError(f"{path}: line 1: no separator leaves {len(CONVERTED_FIELDS)} fields; --separator says which")
    records = RecordsInPeriod(period, frozenset())
    wrong: dict[int, str] = {}
    total = twice = 0
    for lines in chain((first,), parts):
        total += len(lines.text)
        raw = _sound(lines, separator, wrong)
        if raw["place"].first() == 1 and raw["JOBID"].first() == "JOBID":
            raw, total = raw[1:], total - 1
        frame, doubtful = _as_records(raw, zone, wrong)
        twice += doubtful
        records.add(frame)
    everything = records.frame(path)
    disagreements = tuple(_disagreements(everything))
    frame = without_absurd(everything.drop("WAIT", "RUN", "E_RUN"), wrong, now)
    frame, again = with_runs(frame, frozenset())
    wrong |= again
    dropped = ((OUTSIDE, records.outside),) if records.outside else ()
    report = ReadReport(path, total, dropped, malformed_records(wrong, "line"), notes_on_twice(twice))
    return JobRecords(frame, report, disagreements=disagreements)


def _sound(lines: NumberedLines, separator: str, wrong: dict[int, str]) -> pl.DataFrame:
    texts = lines.text
    if separator == " ":
        texts = texts.str.strip_chars().str.replace_all(r"\s+", " ")
    counts = texts.str.count_matches(separator, literal=True) + 1
    right = counts == len(CONVERTED_FIELDS)
    for row in (~right).arg_true().to_list():
        wrong[int(lines.place[row])] = f"{counts[row]} fields, not {len(CONVERTED_FIELDS)}"
    raw = split_columns(texts.filter(right), separator, list(CONVERTED_FIELDS))
    return raw.with_columns(pl.all().str.strip_chars()).with_columns(lines.place.filter(right).cast(pl.Int64))


def _as_records(raw: pl.DataFrame, zone: tzinfo | None, wrong: dict[int, str]) -> tuple[pl.DataFrame, int]:
    """With the printed figures beside; and how many dates clocks showed twice."""
    clocks = {name: clock_seconds(raw[name], _DATE) for name in _DATES}
    numbers = {
        name: raw[name].cast(pl.Float64, strict=False)
        for name in ("CPUS", "CPU_USAGE", "MEM_USAGE", "WAIT", "RUN", "E_CPU", "E_RUN")
    }
    checks = [(f"{name}: no date", clocks[name].is_not_null()) for name in _DATES]
    checks += [("JOBID: no number", raw["JOBID"].str.contains(r"^[0-9]{1,15}$"))]
    for name in ("CPUS", "E_CPU"):
        checks.append((f"{name}: no number of CPUs", numbers[name].is_between(1, bounds.CPUS).fill_null(False)))
    good = pl.Series([True] * len(raw), dtype=pl.Boolean)
    for why, holds in checks:
        for row in (good & ~holds).arg_true().to_list():
            wrong[int(raw["place"][row])] = why
        good &= holds
    raw, numbers = raw.filter(good), {name: values.filter(good) for name, values in numbers.items()}
    found = {name: epochs(clocks[name].filter(good).to_numpy(), zone) for name in _DATES}
    submit, start, end = (pl.Series(found[name].seconds, dtype=pl.Float64) for name in _DATES)
    exit_code, failed = (
        raw[name].str.extract(_CODE).cast(pl.Int64, strict=False).fill_null(0) for name in ("EXIT_CODE", "FAILED")
    )
    state = pl.Series(["FAILED"] * len(raw), dtype=pl.String).set((exit_code == 0) & (failed == 0), "COMPLETED")
    task = raw["TASK_NUM"].str.contains(r"^[1-9][0-9]{0,14}$")
    frame = record_frame(
        {
            "place": raw["place"],
            "job_id": (raw["JOBID"] + "." + raw["TASK_NUM"]).zip_with(task, raw["JOBID"]),
            "array": raw["JOBID"].set(~task, ""),
            "name": raw["JOBNAME"],
            "user": raw["UID"],
            "account": raw["GID"],
            "partition": raw["QNAME"],
            "submit": submit,
            "start": start,
            "end": end,
            "run": end - start,
            "cpus": numbers["E_CPU"],
            "state": state,
            "code": raw["EXIT_CODE"] + ":" + raw["FAILED"],
            "cpu_seconds": numbers["CPU_USAGE"],
            "memory_used": numbers["MEM_USAGE"] * 1024,
        },
        raw,
    )
    printed = [numbers[name].alias(name) for name in ("WAIT", "RUN", "E_RUN")]
    return frame.with_columns(printed), sum(int(times.twice.sum()) for times in found.values())


def _disagreements(frame: pl.DataFrame) -> Iterator[Disagreement]:
    for name, computed in (
        ("WAIT", pl.col("start") - pl.col("submit")),
        ("RUN", pl.col("end") - pl.col("start")),
        ("E_RUN", (pl.col("end") - pl.col("start")) * pl.col("cpus")),
    ):
        differs = frame.select("place", name, computed.alias("computed")).filter(
            (pl.col(name) - pl.col("computed")).abs() > 1
        )
        if len(differs):
            first = tuple(
                f"line {place}: {name} {printed:.0f}, by its dates {ours:.0f}"
                for place, printed, ours in differs.head(_SHOWN).iter_rows()
            )
            yield Disagreement(name, len(differs), first)
