"""The files of a result, letter by letter."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.engine.conventions import Conventions
from omfs_daemon.simulate.engine.outcome import Outcome, undisturbed
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.results.measure import measure
from omfs_daemon.simulate.results.result_files import prepare, save, write_outcome
from omfs_daemon.simulate.workload.workload import workload


@pytest.fixture
def outcome() -> Outcome:
    """One that ends early, one that is cut at its limit, an urgent one without a limit, one that is too wide."""
    jobs = workload(
        "tiny",
        np.array([0.0, 1.0, 2.5, 3.0]),
        np.array([2, 4, 1, 9]),
        np.array([10.0, 100.0, 0.5, 7.0]),
        job_id=np.array([7, 8, 9, 10]),
        limit=np.array([20.0, 50.0, np.inf, 60.0]),
        accounts=("bio", 'odd, "name"'),
        account=np.array([0, 1, 0, 0]),
        urgent=np.array([False, False, True, False]),
    )
    start, run = np.array([0.0, 10.0, 2.5, np.nan]), np.array([10.0, 50.0, 0.5, 7.0])
    return undisturbed(jobs, "easy", Machine(4), Conventions(), start, run)


def test_jobs_csv(tmp_path: Path, outcome: Outcome):
    write_outcome(tmp_path, outcome, {})
    assert (tmp_path / "jobs.csv").read_text() == (
        "job_id,submission_time,requested_number_of_resources,requested_time,final_state,starting_time,execution_time,"
        "finish_time,waiting_time,turnaround_time,stretch,urgent,preemptions,account\n"
        "7,0.0,2,20.0,COMPLETED_SUCCESSFULLY,0.0,10.0,10.0,0.0,10.0,1.0,0,0,bio\n"
        '8,1.0,4,50.0,COMPLETED_WALLTIME_REACHED,10.0,50.0,60.0,9.0,59.0,1.18,0,0,"odd, ""name"""\n'
        "9,2.5,1,-1.0,COMPLETED_SUCCESSFULLY,2.5,0.5,3.0,0.0,0.5,0.5,1,0,bio\n"
        "10,3.0,9,60.0,REJECTED,,,,,,,0,0,bio\n"
    )


def test_parquet_holds_the_same_and_the_segments(tmp_path: Path, outcome: Outcome):
    write_outcome(tmp_path, outcome, {})
    jobs = pl.read_parquet(tmp_path / "jobs.parquet")
    assert jobs.equals(pl.read_csv(tmp_path / "jobs.csv"))
    segments = pl.read_parquet(tmp_path / "segments.parquet")
    assert segments.rows() == [(7, 0.0, 10.0, "work", 2), (9, 2.5, 3.0, "work", 1), (8, 10.0, 60.0, "work", 4)]


def test_a_job_of_no_length_has_no_segment(tmp_path: Path):
    jobs = workload("short", np.zeros(2), np.ones(2), np.array([0.0, 1.0]))
    write_outcome(tmp_path, undisturbed(jobs, "fcfs", Machine(4), Conventions(), np.zeros(2), jobs.run), {})
    assert pl.read_parquet(tmp_path / "segments.parquet")["job_id"].to_list() == [2]
    assert pl.read_parquet(tmp_path / "jobs.parquet")["finish_time"].to_list() == [0.0, 1.0]


def test_segments_hold_whole_nodes(tmp_path: Path):
    """Five CPUs are two nodes of four."""
    jobs = workload("nodes", np.array([0.0]), np.array([5]), np.array([1.0]))
    write_outcome(tmp_path, undisturbed(jobs, "fcfs", Machine(12, 3), Conventions(), np.zeros(1), jobs.run), {})
    assert pl.read_parquet(tmp_path / "segments.parquet")["cpus"].to_list() == [8]
    assert pl.read_parquet(tmp_path / "jobs.parquet")["requested_number_of_resources"].to_list() == [5]


def test_summary_is_strict_json(tmp_path: Path, outcome: Outcome):
    """No NaN and no Infinity, which strict readers refuse."""
    write_outcome(tmp_path, outcome, measure(outcome, AccountTree(())).as_json())

    def refuse(word: str) -> None:
        raise AssertionError(word)

    found = json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse)
    assert found["U_L"] == 0.5
    assert found["rejected"] == 1
    assert found["cut"] == 1


def test_nothing_ran_at_all(tmp_path: Path):
    jobs = workload("wide", np.array([0.0]), np.array([9]), np.array([1.0]))
    outcome = undisturbed(jobs, "fcfs", Machine(4), Conventions(), np.array([np.nan]), jobs.run)
    write_outcome(tmp_path, outcome, measure(outcome, AccountTree(())).as_json())
    assert "REJECTED" in (tmp_path / "jobs.csv").read_text()
    assert json.loads((tmp_path / "summary.json").read_text())["makespan"] is None


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path):
    (tmp_path / "old.txt").write_text("old")

    def fail(file) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(ConfigError, match=r"old\.txt: cannot be written: No space left on device"):
        save(tmp_path / "old.txt", fail)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.txt", "old")]


def test_prepare_makes_the_directory_and_leaves_nothing_in_it(tmp_path: Path):
    prepare(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_prepare_says_where_nothing_can_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file/result: cannot be written: Not a directory"):
        prepare(tmp_path / "file" / "result")
