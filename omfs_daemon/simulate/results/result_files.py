"""The files of a result: jobs.csv with Batsim's column names, summary.json, and both tables as Parquet.

A file is complete or not there: each is written under a temporary name and then renamed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl

from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.rules.slowdown_laws import CATEGORIES
from omfs_daemon.simulate.engine.outcome import Outcome, Use
from omfs_daemon.simulate.results.measure import per_job, seconds_by_use
from omfs_daemon.simulate.results.prediction_figures import estimates_of, has_predictions
from omfs_daemon.simulate.results.realtime_figures import outcome_categories
from omfs_daemon.simulate.results.timeline import held_units, unit_cpus


def prepare(directory: Path) -> None:
    """Make the directory if needed; ConfigError, before a long run, if nothing can be written there."""
    with _as_fault(directory):
        directory.mkdir(parents=True, exist_ok=True)
        probe = _temporary(directory / "probe")
        probe.touch()
        probe.unlink()


def write_outcome(directory: Path, outcome: Outcome, summary: Mapping[str, Any]) -> None:
    """All files of one simulation into a directory that :func:`prepare` made; ConfigError if that fails."""
    jobs = jobs_table(outcome)
    save(directory / "jobs.csv", lambda file: jobs.write_csv(file))
    save(directory / "jobs.parquet", lambda file: jobs.write_parquet(file))
    save(directory / "segments.parquet", lambda file: segments_table(outcome).write_parquet(file))
    text = json.dumps(summary, indent=2, allow_nan=False) + "\n"
    save(directory / "summary.json", lambda file: file.write(text.encode()))


def jobs_table(outcome: Outcome) -> pl.DataFrame:
    """One row per job, in order of submission.

    starting_time   of the first start; empty, as all that follows from it, for a job that never started
    execution_time  seconds of run time that it needed, without the cost of preemptions
    waiting_time    up to the first start; turnaround_time also counts all waiting after preemptions
    stretch         turnaround_time / execution_time, of at least 1 s
    estimate        seconds that it was predicted to run when it came; only where run times were predicted

    With real-time jobs, also which they are, and of each job its category, seconds of work that were lost, and seconds
    in which checkpoints were written.
    """
    workload = outcome.workload
    wait, response, stretch, _ = per_job(outcome)
    columns = {
        "job_id": workload.job_id,
        "submission_time": workload.submit,
        "requested_number_of_resources": workload.cpus,
        "requested_time": np.where(np.isfinite(workload.limit), workload.limit, -1.0),
        "final_state": _final_states(outcome),
        "starting_time": outcome.start,
        "execution_time": np.where(np.isnan(outcome.finish), np.nan, outcome.run),
        "finish_time": outcome.finish,
        "waiting_time": wait,
        "turnaround_time": response,
        "stretch": stretch,
        "urgent": workload.urgent.astype(np.int64),
        "preemptions": outcome.preemptions,
        "account": np.array(workload.accounts, dtype=np.str_)[workload.account],
    }
    if workload.realtime.any():
        columns |= _realtime_columns(outcome)
    if has_predictions(outcome):
        columns["estimate"] = estimates_of(outcome)
    return pl.DataFrame(columns, nan_to_null=True)


def _realtime_columns(outcome: Outcome) -> dict[str, np.ndarray]:
    workload, seconds = outcome.workload, seconds_by_use(outcome)
    return {
        "realtime": workload.realtime.astype(np.int64),
        "category": np.array(CATEGORIES)[outcome_categories(outcome)],
        "lost_seconds": seconds[:, Use.LOST],
        "checkpoint_seconds": seconds[:, Use.CHECKPOINT] + seconds[:, Use.PREEMPTION],
    }


def segments_table(outcome: Outcome) -> pl.DataFrame:
    """When CPUs were held and for what: one row per segment of nonzero length, in order of begin.

    cpus  of whole nodes where jobs get whole nodes
    """
    segments = outcome.segments
    cpus = (held_units(outcome) * unit_cpus(outcome.machine)).astype(np.int64)
    names = np.array([use.name.lower() for use in Use])
    columns = {
        "job_id": outcome.workload.job_id[segments.job],
        "begin": segments.begin,
        "end": segments.end,
        "use": names[segments.use],
        "cpus": cpus[segments.job],
    }
    held = pl.DataFrame(columns).filter(pl.col("begin") < pl.col("end"))
    return held.sort("begin", "job_id", maintain_order=True)


def _final_states(outcome: Outcome) -> np.ndarray:
    """Batsim's names of states; a job that never starts is SUBMITTED, if the policy did not refuse it."""
    return np.select(
        [outcome.rejected, np.isnan(outcome.finish), outcome.is_cut],
        ["REJECTED", "SUBMITTED", "COMPLETED_WALLTIME_REACHED"],
        "COMPLETED_SUCCESSFULLY",
    )


def save(path: Path, write_to: Callable[[IO[bytes]], object]) -> None:
    """Write a file atomically; ConfigError if it cannot be written."""
    temporary = _temporary(path)
    with _as_fault(path):
        try:
            with temporary.open("wb") as file:
                write_to(file)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


@contextmanager
def _as_fault(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
