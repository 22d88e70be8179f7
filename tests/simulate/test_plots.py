"""Plots are drawn of whatever a simulation may come to."""

import xml.etree.ElementTree as ElementTree
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.simulate.engine.conventions import Conventions
from omfs_daemon.simulate.engine.outcome import Outcome, undisturbed
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.results.gantt import preemptions_of
from omfs_daemon.simulate.results.plot_style import time_unit
from omfs_daemon.simulate.results.plots import draw_outcome
from omfs_daemon.simulate.workload.workload import workload
from tests.simulate.test_measure import preempted

TREE = AccountTree((Entitlement("a", Fraction(50)), Entitlement("b", Fraction(25))))
ALWAYS = ["accounts", "slowdown", "utilisation"]


def ran(count: int, run: float = 100.0, wait: float = 10.0, accounts: int = 1) -> Outcome:
    numbers = np.arange(count)
    jobs = workload(
        "w",
        numbers * 50.0,
        np.ones(count),
        np.full(count, run),
        accounts=tuple(f"_$\\bad{{{number}$" for number in range(accounts)),
        account=numbers % accounts,
    )
    return undisturbed(jobs, "fcfs", Machine(4), Conventions(), jobs.submit + wait, jobs.run)


def refused() -> Outcome:
    jobs = workload("w", np.zeros(1), np.array([9]), np.ones(1))
    return undisturbed(jobs, "fcfs", Machine(4), Conventions(), np.array([np.nan]), jobs.run)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (preempted(), [*ALWAYS, "preemptions"]),
        (ran(1), ALWAYS),
        (ran(1, run=0.0, wait=0.0), ALWAYS),
        (ran(60, accounts=30), ALWAYS),
        (refused(), []),
    ],
    ids=["preempted", "one job", "a job of no time", "many accounts with signs in their names", "nothing ran"],
)
def test_each_plot_is_a_picture_in_both_formats(tmp_path: Path, outcome: Outcome, expected: list[str]):
    written = draw_outcome(tmp_path, outcome, TREE)
    assert sorted(written) == sorted(tmp_path.iterdir())
    assert sorted(path.name for path in written) == sorted(
        f"{name}.{end}" for name in expected for end in ("png", "svg")
    )
    for path in written:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
        else:
            assert ElementTree.parse(path).getroot().tag.endswith("svg")  # noqa: S314 - we wrote it


def test_the_same_outcome_gives_the_same_files(tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    for directory in (first, second):
        directory.mkdir()
        draw_outcome(directory, preempted(), TREE)
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes()


def test_plots_do_not_grow_with_the_number_of_jobs(tmp_path: Path):
    few, many = tmp_path / "few", tmp_path / "many"
    for directory, count in ((few, 2_000), (many, 40_000)):
        directory.mkdir()
        draw_outcome(directory, ran(count), TREE)
    for path in few.glob("*.svg"):
        assert (many / path.name).stat().st_size < 1.5 * path.stat().st_size


def test_preemptions_are_the_gaps_between_a_jobs_segments():
    found = preemptions_of(preempted())
    assert found.job.tolist() == [0]
    assert (found.left / 3600).tolist() == [2.5]
    assert (found.back / 3600).tolist() == [5.5]


@pytest.mark.parametrize(
    ("span", "name"), [(0.0, "seconds"), (179.0, "seconds"), (180.0, "minutes"), (9e4, "hours"), (1e7, "days")]
)
def test_units_of_time(span: float, name: str):
    assert time_unit(span).name == name
