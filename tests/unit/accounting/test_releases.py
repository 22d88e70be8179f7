"""What each release of Slurm was recorded to say of the same jobs in accounting: one expectation for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import polars as pl
import pytest

from omfs_daemon.accounting.asked_events import SlurmUtilization
from omfs_daemon.accounting.asked_sacct import asked_records
from omfs_daemon.accounting.asked_steps import with_step_use
from omfs_daemon.accounting.ended_days import AccountedEnd
from omfs_daemon.accounting.job_records import JobRecords
from omfs_daemon.accounting.nodes_away import AwayRow
from omfs_daemon.accounting.sacct_rows import PARSED, SacctRows
from omfs_daemon.predict.prediction import HowEnded
from omfs_daemon.slurm import releases
from omfs_daemon.slurm.releases import SlurmRelease
from tests.support.accounting_recording import FORMULA, ask_accounting, ask_sreport
from tests.support.recorded_slurm import EPOCH, FIXTURES, Replay, read_ids
from tests.support.recording_scenarios import HOSTILE

DAY = 86400.0
RELEASES = [str(release) for release in releases.TESTED]
NODE_FAILS_WITH_A_CODE = SlurmRelease(24, 11)
"""Since then, or a release before, a run that a node's failure ended has exit code 1; in 22.05 it has 0."""
ONCE = {
    "timeout": ("TIMEOUT", "0:0", 1),
    "running": ("RUNNING", "0:0", 4),
    "never ran": ("CANCELLED", "0:0", 2),
    "completed": ("COMPLETED", "0:0", 2),
    "failed": ("FAILED", "3:0", 1),
    "killed": ("FAILED", "0:9", 1),
    "gpu": ("COMPLETED", "0:0", 1),
    "array task 1": ("COMPLETED", "0:0", 1),
    "array task 2": ("FAILED", "1:0", 1),
    "array task 3": ("COMPLETED", "0:0", 1),
    "het": ("COMPLETED", "0:0", 1),
    "het part": ("COMPLETED", "0:0", 2),
    "steps": ("COMPLETED", "0:0", 2),
    "hostile": ("COMPLETED", "0:0", 1),
    "formula": ("COMPLETED", "0:0", 1),
    "cancelled": ("CANCELLED", "0:0", 1),
    "suspended": ("COMPLETED", "0:0", 1),
    "preemptor": ("COMPLETED", "0:0", 4),
    "waiting": ("PENDING", "0:0", 1),
    "waiting array": ("PENDING", "0:0", 1),
}
"""State, code, CPUs of each job that ran once or never; one that was held until it was canceled is not on record."""
TWICE = {
    "went on": ("REQUEUED", "101:0", 1),
    "requeued": ("REQUEUED", "0:0", 2),
    "preempted": ("PREEMPTED", "0:0", 4),
    "node failed": ("NODE_FAIL", "", 1),
}
"""The first run of each job that completed in its second."""
WITHOUT_START = {"never ran", "waiting", "waiting array"}
WITHOUT_END = {"running", "waiting", "waiting array"}


class Recorded:
    """All questions put to what a release answered."""

    def __init__(self, release: str) -> None:
        directory = FIXTURES / release / "accounting"
        self.release = SlurmRelease.of(release)
        self.ids = read_ids(directory)
        replay = Replay(directory)
        questions = {**ask_accounting(EPOCH - DAY, EPOCH + DAY), **ask_sreport(EPOCH)}
        self.answers: dict[str, Any] = {what: question(None, replay) for what, question in questions.items()}
        assert not replay.left, "recorded, and never asked for"
        rows: SacctRows = self.answers["report"]
        self.records: JobRecords = asked_records(EPOCH, EPOCH + 1, lambda begin, end: rows, EPOCH + DAY)
        first = str(self.ids["array"])
        tasks = dict(self.rows.frame.select("job", "JobID").iter_rows())
        self._names = {number: name for name, number in self.ids.items() if name != "array"}
        self._names[self.ids["het"] + 1] = "het part"
        for number, text in tasks.items():
            if text.startswith(f"{first}_"):
                self._names[number] = f"array task {text.partition('_')[2]}"

    @property
    def rows(self) -> SacctRows:
        rows: SacctRows = self.answers["report"]
        return rows

    def name(self, job: int | str) -> str:
        return self._names[int(job)]

    def runs(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The name of each run's job, and the run; those of a job in order."""
        for row in self.records.frame.iter_rows(named=True):
            yield self.name(row["job_id"]), row

    def run(self, name: str) -> dict[str, Any]:
        (found,) = (row for job, row in self.runs() if job == name)
        return found


@cache
def recorded(release: str) -> Recorded:
    return Recorded(release)


@pytest.fixture(params=RELEASES)
def site(request: pytest.FixtureRequest) -> Recorded:
    return recorded(request.param)


def test_every_run_is_read(site: Recorded) -> None:
    found: dict[str, list[tuple[str, str, int]]] = {}
    for name, row in site.runs():
        found.setdefault(name, []).append((row["state"], row["code"], row["cpus"]))
    expected = {name: [run] for name, run in ONCE.items()}
    failed = "1:0" if site.release >= NODE_FAILS_WITH_A_CODE else "0:0"
    for name, (state, code, cpus) in TWICE.items():
        expected[name] = [(state, code or failed, cpus), ("COMPLETED", "0:0", cpus)]
    assert found == expected
    assert not site.records.report.malformed


def test_times_of_every_run(site: Recorded) -> None:
    for name, row in site.runs():
        assert (row["start"] is None) == (name in WITHOUT_START), name
        assert (row["end"] is None) == (name in WITHOUT_END), name
        assert EPOCH <= row["submit"] <= row["eligible"] < EPOCH + 600, name
        if row["start"] is not None:
            assert row["eligible"] <= row["start"], name
            if row["end"] is not None and name != "suspended":
                assert row["run"] == row["end"] - row["start"], name
    assert 60 <= site.run("timeout")["run"] < 600
    suspended = site.run("suspended")
    assert 0 < suspended["run"] <= suspended["end"] - suspended["start"] - 2
    for name in TWICE:
        first, second = (row for job, row in site.runs() if job == name)
        assert (first["is_last"], second["is_last"]) == (False, True)
        assert first["end"] <= second["submit"] < second["eligible"], "a requeued job waits before it is eligible"
        for column in ("submit", "eligible", "start"):
            assert second[f"first_{column}"] == first[column]


def test_what_jobs_asked_for_and_had(site: Recorded) -> None:
    limits = {name: row["limit"] for name, row in site.runs() if name not in WITHOUT_START}
    assert (limits["timeout"], limits["failed"], limits["completed"]) == (60.0, 300.0, DAY)
    gpu = site.run("gpu")
    assert (gpu["gpus"], gpu["memory_asked"]) == (2, 200 * 1024**2)
    assert {name for name, row in site.runs() if row["gpus"]} == {"gpu"}
    assert {row["account"] for name, row in site.runs() if name in ("completed", "preemptor")} == {"physics"}
    assert site.run("preemptor")["partition"] == "first"
    assert {row["user"] for _, row in site.runs()} == {"nobody"}
    assert {row["array"] for name, row in site.runs() if name.startswith("array")} == {str(site.ids["array"])}


def test_users_text_is_read_whole(site: Recorded) -> None:
    """sacct shows a quotation mark of a name as another. What MariaDB before 11.6 keeps is latin1, by itself."""

    def kept(text: str) -> str:
        return text.replace("\N{CJK UNIFIED IDEOGRAPH-732B}", "?") if site.release < (24, 11) else text

    assert site.run("hostile")["name"] == kept(HOSTILE.replace('"', "`"))
    assert site.run("formula")["name"] == FORMULA
    for what in ("report", "replay"):
        comments = dict(site.answers[what].frame.select("job", "Comment").iter_rows())
        assert comments[site.ids["hostile"]] == kept(HOSTILE)


def test_a_replay_sees_the_same_runs(site: Recorded) -> None:
    """But for how long the one that still ran had run: it is asked for a little later."""
    for column in PARSED:
        ours, theirs = (site.answers[what].frame for what in ("report", "replay"))
        if column == "run":
            ours, theirs = (frame.filter(pl.col("state") != "RUNNING") for frame in (ours, theirs))
        elif column == "cpus":
            # Of a job that never started, 22.05 says what it asked for, the others 0.
            ours, theirs = (frame.filter(pl.col("start").is_not_null()) for frame in (ours, theirs))
        assert ours[column].equals(theirs[column]), column


def test_runs_that_teach(site: Recorded) -> None:
    ends: list[AccountedEnd] = site.answers["learning"]
    found: dict[str, list[HowEnded | None]] = {}
    for end, goes_on in ends:
        name = site.name(end.job)
        found.setdefault(name, []).append(end.how)
        assert goes_on == (name == "went on")
        of_report = [row for job, row in site.runs() if job == name and row["start"] == end.start]
        assert [(row["end"], row["run"], row["cpus"]) for row in of_report] == [
            (end.ended, end.run, end.features.cpus)
        ], name
    by_state = {"TIMEOUT": HowEnded.AT_LIMIT, "CANCELLED": HowEnded.CANCELLED}
    once = {name: state for name, (state, _, _) in ONCE.items() if name not in WITHOUT_START | WITHOUT_END}
    expected: dict[str, list[HowEnded | None]] = {
        name: [by_state.get(state, HowEnded.BY_ITSELF)] for name, state in once.items()
    }
    expected |= {name: [None, HowEnded.BY_ITSELF] for name in TWICE}
    expected["node failed"] = [HowEnded.NODE_FAILED, HowEnded.BY_ITSELF]
    assert found == expected
    (gpu,) = (end.features for end, _ in ends if site.name(end.job) == "gpu")
    assert (gpu.gres, gpu.limit, gpu.nodes, gpu.user, gpu.account) == ("gpu:2", 300.0, 1, "nobody", "bio")


def test_what_steps_used(site: Recorded) -> None:
    """Two tasks computed for at least two seconds; a step that is not measured counts as unknown."""
    steps: pl.DataFrame = site.answers["steps"]
    assert {site.name(job) for job in steps["job_id"]} == (ONCE.keys() | TWICE.keys()) - WITHOUT_START - {"het part"}
    frame = with_step_use(site.records, steps).frame
    (row,) = (row for row in frame.iter_rows(named=True) if site.name(row["job_id"]) == "steps")
    assert 1 < row["cpu_seconds"] < 60
    assert 1024**2 < row["memory_used"] < 1024**3
    assert frame["gpu_use"].null_count() == len(frame), "nothing measured the use of GPUs"


def test_when_nodes_were_away(site: Recorded) -> None:
    """One that failed, the same one when it was drained, and another in a reservation for maintenance."""
    rows: list[AwayRow] = site.answers["away"]
    assert [row.cpus for row in rows] == [4, 4, 4]
    assert all(EPOCH <= row.begin <= row.end < EPOCH + 600 for row in rows)
    assert sum(row.end - row.begin >= 1 for row in rows) >= 2


def test_what_slurm_adds_up(site: Recorded) -> None:
    use: SlurmUtilization = site.answers["sreport"]
    assert use.reported == 16 * 3600
    # One job has held four CPUs from the first minute of the hour on.
    assert 4 * 3400 < use.allocated < 5 * 3600
    assert 0 < use.down < 600
