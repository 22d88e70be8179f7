"""What ``omfs optimum`` writes: schedule.csv and optimum.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from omfs_daemon.simulate.optimum.instance import Part
from omfs_daemon.simulate.optimum.solve import Optimum, OptimumOptions
from omfs_daemon.simulate.results.result_files import save

_SCHEDULE = {
    "log": pl.String,
    "job_id": pl.Int64,
    "part": pl.Int64,
    "place": pl.String,
    "start": pl.Int64,
    "end": pl.Int64,
    "overhead": pl.Int64,
}


def optimum_row(found: Optimum) -> dict[str, Any]:
    """The figures of one log."""
    return {
        "batch_sd": found.batch_sd,
        "realtime_sd": found.realtime_sd,
        "status": found.status,
        "bound": found.bound,
        "gap": found.gap,
        "seconds": round(found.seconds, 3),
        "stops": found.stopped,
        "limit": found.limit,
    }


def optimum_summary(results: Sequence[Optimum], options: OptimumOptions) -> dict[str, Any]:
    """Of a file with one log its figures; else these by log, and how many are proven."""
    asked = {"asked_limit": options.limit, "tick": options.tick, "notes": optimum_notes(results, options)}
    if [found.log.name for found in results] == [""]:
        return optimum_row(results[0]) | asked
    rows = [{"log": found.log.name} | optimum_row(found) for found in results]
    proven = sum(found.status in ("optimal", "infeasible") for found in results)
    return {"logs": rows, "proven": proven} | asked


def optimum_notes(results: Sequence[Optimum], options: OptimumOptions) -> list[str]:
    """Sentences for people on what is not as was asked."""
    notes = []
    for found in results:
        prefix = f"log {found.log.name}: " if found.log.name else ""
        if not found.log.realtime:
            notes.append(f"{prefix}no real-time jobs: their limit is left out")
        elif found.status == "infeasible":
            notes.append(f"{prefix}no limit up to 2 can be held")
        elif found.limit is not None and found.limit > options.limit:
            notes.append(f"{prefix}a limit of {options.limit:g} cannot be held; the least that can is {found.limit:g}")
        if found.status in ("feasible", "unknown"):
            notes.append(f"{prefix}not proven within {options.seconds:g} s")
    return notes


def write_optimum(directory: Path, results: Sequence[Optimum], summary: dict[str, Any]) -> None:
    """Both files, whole; ConfigError if one cannot be written."""
    rows = [_part_row(found.log.name, part) for found in results for part in found.schedule]
    table = pl.DataFrame(rows, schema=_SCHEDULE, orient="row")
    if all(found.log.name == "" for found in results):
        table = table.drop("log")
    save(directory / "schedule.csv", lambda file: table.write_csv(file))
    text = json.dumps(summary, indent=2, allow_nan=False) + "\n"
    save(directory / "optimum.json", lambda file: file.write(text.encode()))


def _part_row(log: str, part: Part) -> tuple[Any, ...]:
    """``place``: its first and its last CPU."""
    place = f"{part.place}-{part.place + part.job.size - 1}"
    return log, part.job.job_id, part.number, place, part.start, part.end, part.overhead
