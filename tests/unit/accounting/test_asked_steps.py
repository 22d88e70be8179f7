"""What steps used: lines as sacct prints them without -X."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from omfs_daemon.accounting import asked_steps
from omfs_daemon.accounting.asked_steps import step_use, with_step_use
from omfs_daemon.accounting.job_records import JobRecords, record_frame, with_runs
from omfs_daemon.accounting.read_report import ReadReport
from omfs_daemon.slurm.commands.run_command import CommandOutput

DAY = 86400.0
PRINTED = (
    "7||00:00:00||\n7.batch|1|00:10.500|2048K|cpu=00:00:10,gres/gpumem=0,gres/gpuutil=0,mem=2M\n"
    "7.0|8|01:00:00|100M|cpu=01:00:00,gres/gpumem=20586M,gres/gpuutil=98,mem=100M\n7.extern|2|00:00:00||\n"
    "8||00:00:00||\n8.batch|1|00:00:00||gres/gpuutil=18446744073709551614\n9||00:00:00||\n"
)


def used(*answers: str) -> dict[str, tuple[float | None, float | None]]:
    return {job: (cpu, memory) for job, cpu, memory, _ in step_use(answers).iter_rows()}


def test_steps_by_job() -> None:
    assert used(PRINTED) == {"7": (3610.5, 8 * 100 * 1024**2), "8": (None, None)}


def test_the_greatest_use_of_gpus_counts_and_what_was_not_measured_does_not() -> None:
    assert dict(step_use([PRINTED]).select("job_id", "steps_gpu").iter_rows()) == {"7": 98, "8": None}


def test_a_step_of_two_days_counts_once() -> None:
    assert used("7.0|8|00:30:00|50M|\n", PRINTED)["7"] == (3610.5, 8 * 100 * 1024**2)


def test_each_answer_is_parsed_before_the_next_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a year the answers together are more text than what is kept of them."""
    order: list[str] = []
    parsed = asked_steps.split_columns

    def answer(words: Sequence[str], *, timeout: float, conf: Path | None = None, **_: object) -> CommandOutput:
        order.append("asked")
        return CommandOutput(PRINTED.replace("7", str(order.count("asked"))), "", 0)

    def parse(lines: pl.Series, separator: str, fields: list[str]) -> pl.DataFrame:
        order.extend(["parsed"] * bool(len(lines)))
        return parsed(lines, separator, fields)

    monkeypatch.setattr(asked_steps, "split_columns", parse)
    begin = datetime(2026, 3, 1).timestamp()
    found = asked_steps.asked_steps(begin, begin + 3 * DAY, None, answer)
    assert order == ["asked", "parsed"] * 3
    assert sorted(found["job_id"].to_list()) == ["1", "2", "3", "8"]


def test_no_answer_has_no_steps() -> None:
    assert used() == used("") == {}


def test_they_are_those_of_the_last_run() -> None:
    raw = pl.DataFrame(
        {"place": [1, 2, 3], "job_id": ["7", "7", "9"], "submit": [0.0, 50.0, 0.0], "start": [10.0, 60.0, 1.0],
         "end": [40.0, 90.0, 2.0], "cpus": [8, 8, 1], "state": ["REQUEUED", "COMPLETED", "COMPLETED"]}
    )  # fmt: skip
    frame, _ = with_runs(record_frame({name: pl.col(name) for name in raw.columns}, raw), frozenset({"REQUEUED"}))
    found = with_step_use(JobRecords(frame, ReadReport(Path("x"), 3)), step_use([PRINTED])).frame
    assert found.columns == frame.columns
    assert dict(found.select("place", "cpu_seconds").iter_rows()) == {1: None, 2: 3610.5, 3: None}
    assert dict(found.select("place", "memory_used").iter_rows()) == {1: None, 2: 8 * 100 * 1024**2, 3: None}
    assert dict(found.select("place", "gpu_use").iter_rows()) == {1: None, 2: 98, 3: None}
