"""What the steps of jobs used: slurmdbd has processor time, memory, and use of GPUs of steps only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import polars as pl

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.accounting_store import days_between
from omfs_daemon.accounting.job_records import JobRecords
from omfs_daemon.accounting.records_of_sacct import written_durations, written_sizes
from omfs_daemon.accounting.split_lines import digits, split_columns
from omfs_daemon.slurm.commands.run_command import Runner, run_command

_LONGEST = 300.0
_FIELDS = ["JobIDRaw", "NTasks", "TotalCPU", "MaxRSS", "TRESUsageInMax"]
"""None of them is a user's text."""
_GPU_USE = r"(?:^|,)gres/gpuutil=([^,]*)"
_MOST_GPU_USE = 1_000_000
"""Percent; where nothing was measured, Slurm can print the greatest number there is."""


def asked_steps(since: float, until: float, conf: Path | None, runner: Runner = run_command) -> pl.DataFrame:
    """``step_use`` of the steps that ran in the period, asked for day by day, one call running; GatewayError."""
    return step_use(_answers(since, until, conf, runner))


def _answers(since: float, until: float, conf: Path | None, runner: Runner) -> Iterator[str]:
    for day in days_between(since, until):
        begin, end = (
            datetime.fromtimestamp(time).strftime("%Y-%m-%dT%H:%M:%S") for time in (day.begin, min(day.end, until))
        )
        words = ["sacct", "-a", "-P", "-n", "--starttime", begin, "--endtime", end, f"--format={','.join(_FIELDS)}"]
        yield runner(words, timeout=_LONGEST, conf=conf).stdout


def step_use(answers: Iterable[str]) -> pl.DataFrame:
    """By ``job_id``: ``steps_cpu``, the seconds that all steps computed; ``steps_memory``, bytes of the step that used
    most, taken as what its largest task used, times its tasks, for tasks may be on several nodes; ``steps_gpu``, the
    greatest use of GPUs that was measured, in percent.

    A step that two answers have counts once, as in the later one, which knows more of it. Each answer is parsed before
    the next is taken: of its text nothing is kept but the names of its steps.
    """
    steps = pl.concat([_steps(""), *map(_steps, answers)]).unique("step", keep="last", maintain_order=True)
    cpu = pl.when(pl.col("cpu").is_not_null().any()).then(pl.col("cpu").sum())
    job = pl.col("step").str.extract(r"^([0-9]+)\.").alias("job_id")
    return steps.group_by(job).agg(
        cpu.alias("steps_cpu"), pl.col("memory").max().alias("steps_memory"), pl.col("gpu").max().alias("steps_gpu")
    )


def _steps(answer: str) -> pl.DataFrame:
    """One row per step of an answer: ``step``, ``cpu``, ``memory``, ``gpu``."""
    lines = pl.Series("line", answer.splitlines(), dtype=pl.String)
    raw = split_columns(lines, "|", _FIELDS).filter(pl.col("JobIDRaw").str.contains(r"^[0-9]+\."))
    tasks = digits(raw["NTasks"], bounds.CPUS).fill_null(1)
    return pl.DataFrame(
        {
            "step": raw["JobIDRaw"],
            "cpu": written_durations(raw["TotalCPU"]),
            "memory": written_sizes(raw["MaxRSS"]) * tasks,
            "gpu": digits(raw["TRESUsageInMax"].str.extract(_GPU_USE), _MOST_GPU_USE),
        }
    )


def with_step_use(records: JobRecords, steps: pl.DataFrame) -> JobRecords:
    """In the last run of each job, whose steps they are."""
    last = pl.col("is_last")
    joined = records.frame.join(steps, on="job_id", how="left", maintain_order="left").with_columns(
        pl.when(last).then(pl.coalesce(found, known)).otherwise(known).alias(known)
        for found, known in (("steps_cpu", "cpu_seconds"), ("steps_memory", "memory_used"), ("steps_gpu", "gpu_use"))
    )
    return replace(records, frame=joined.select(records.frame.columns))
