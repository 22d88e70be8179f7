"""Agung et al. (2021) done again: the tables on small workloads, and the published figures on the recorded ones."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.simulate.engine.preemption_costs import CostModel, simulated_costs
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.experiments.agung2021.agung2021 import (
    on_their_clock,
    one_by_one,
    simulate_agung2021,
    studies,
    write_agung2021,
)
from omfs_daemon.simulate.experiments.agung2021.agung2021_cases import ALL, SWAP_IN, SWAP_OUT, AgungStudy
from omfs_daemon.simulate.experiments.agung2021.published import THEIR_CODE, U_L
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.results.result_rows import COLUMNS, SLOWDOWNS, ResultRow, figures
from omfs_daemon.simulate.workload.workload import workload
from tests.support.traces import DIRECTORY


def study(name: str, jobs: int, urgent: float, seed: int) -> AgungStudy:
    """A busy machine of 16 processors."""
    generator = np.random.default_rng(seed)
    return AgungStudy(
        workload(
            name,
            np.cumsum(generator.exponential(20.0, jobs)),
            generator.integers(1, 17, jobs),
            generator.integers(1, 60, jobs).astype(np.float64),
            urgent=generator.random(jobs) < urgent,
        ),
        Machine(16),
        (f"{jobs} jobs made up",),
    )


def small() -> list[AgungStudy]:
    return [study("FEW", 150, 0.05, 1), study("MANY", 120, 0.5, 2)]


def clock() -> Iterator[float]:
    return (float(second) for second in count())


def written(out: Path) -> Path:
    ticks = clock()
    return write_agung2021(out, simulate_agung2021(small()), 0.0, lambda: next(ticks))


def test_results_have_one_row_a_workload_and_policy_and_exactly_these_columns(tmp_path: Path):
    written(tmp_path)
    header = (
        "workload,policy,jobs,urgent_jobs,mean_response,mean_slowdown,mean_bounded_slowdown,urgent_mean_slowdown,U_L,"
        "preemptions,utilisation,makespan"
    )
    text = (tmp_path / "results.csv").read_text()
    assert text.splitlines()[0] == header == ",".join(COLUMNS)
    table = pl.read_csv(tmp_path / "results.csv")
    for name in ("FEW", "MANY"):
        assert table.filter(pl.col("workload") == name)["policy"].to_list() == list(ALL)
        for slower in (f"{name} 20x swap", f"{name} 40x swap"):
            assert table.filter(pl.col("workload") == slower)["policy"].to_list() == ["ujfb"]
    assert table["jobs"].to_list()[0] == 150
    assert table["U_L"].is_between(1.0, 1e6).all()
    assert pl.read_csv(tmp_path / "their-conventions.csv").columns == list(COLUMNS)


def test_the_same_figures_in_every_run(tmp_path: Path):
    outs = [tmp_path / "first", tmp_path / "second"]
    for out in outs:
        out.mkdir()
        written(out)
    files = sorted(path.name for path in outs[0].iterdir())
    assert files == sorted(path.name for path in outs[1].iterdir())
    for name in files:
        assert (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes(), name


def test_the_page_shows_every_plot_and_where_urgent_jobs_wait_for_urgent_ones(tmp_path: Path):
    page = written(tmp_path).read_text()
    for plot in tmp_path.glob("*.png"):
        assert f"({plot.name})" in page
        assert plot.with_suffix(".svg").is_file()
    assert "MANY: with every regular job taken away, `U_L` is still" in page
    assert "FEW 20x" not in page.split("## Longer swaps")[0]
    assert "nan" not in page


def test_rows_are_what_one_reckons_by_hand():
    """A regular job of 10 s, an urgent one that waits 6 s for it and then runs 4 s, a regular one after both."""
    jobs = workload(
        "three",
        np.array([0.0, 4.0, 4.0]),
        np.array([2, 2, 1]),
        np.array([10.0, 4.0, 5.0]),
        urgent=np.array([False, True, False]),
    )
    found = figures(policy_named("fcfs").simulate(Scenario(jobs, Machine(2))))
    assert found.row == ResultRow("three", "fcfs", 3, 1, 12.5, 2.0, 1.25, 2.5, 2.5, 0, pytest.approx(33 / 38), 19.0)
    assert found.late == 1 / 3
    assert found.urgent == tuple(int(edge == 5.0) for edge in (*SLOWDOWNS, np.inf))
    assert sum(found.regular) == 2


def test_their_clock_takes_the_next_whole_second_of_the_cut_run_and_two_seconds_at_least():
    jobs = workload(
        "runs",
        np.zeros(5),
        np.ones(5, dtype=np.int64),
        np.array([0.0, 1.0, 2.0, 2.5, 90.0]),
        limit=np.array([np.inf, np.inf, np.inf, np.inf, 60.0]),
    )
    assert on_their_clock(jobs).run.tolist() == [2.0, 2.0, 3.0, 3.0, 61.0]


def test_one_by_one_draws_the_same_seconds_and_lets_them_queue():
    jobs = small()[1].workload
    together = simulated_costs(jobs, CostModel(swap_out=SWAP_OUT, swap_in=SWAP_IN), seed=5)
    sized, model = one_by_one(jobs, 1.0, seed=5)
    queued = simulated_costs(sized, model, seed=5)
    assert queued.preemption.tolist() == together.preemption.tolist() == queued.queueing.tolist()
    assert queued.resume.tolist() == together.resume.tolist()
    assert not together.queueing.any()


def test_a_missing_trace_is_one_line_with_its_archive(tmp_path: Path):
    done = CliRunner().invoke(app, ["experiment", "agung2021", "--traces", str(tmp_path), "--out", str(tmp_path / "o")])
    assert done.exit_code == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert f"{tmp_path / 'SDSC-DS-2004-2.1-cln.swf.gz'}: no such file" in line
    assert "Parallel Workloads Archive" in line


@pytest.fixture(scope="module")
def recorded() -> dict[str, AgungStudy]:
    return {found.name: found for found in studies(DIRECTORY, {})}


def test_the_workloads_are_those_of_the_paper(recorded: dict[str, AgungStudy]):
    assert {name: (len(found.workload), int(found.workload.urgent.sum())) for name, found in recorded.items()} == {
        "SDSC-DS": (85_045 + 12, 12),
        "LANL-CM5": (122_057 + 23, 23),
        "SX-ACE": (54_124 + 9, 9),
        "DWD": (5_493 + 8_313, 8_313),
    }


@pytest.mark.parametrize("name", ["SDSC-DS", "LANL-CM5", "SX-ACE"])
def test_urgent_jobs_are_as_punctual_as_published_and_preempted_jobs_many(recorded: dict[str, AgungStudy], name: str):
    found = recorded[name]
    costs = CostModel(swap_out=SWAP_OUT, swap_in=SWAP_IN)
    row = figures(policy_named("ujfb").simulate(Scenario(found.workload, found.machine, costs=costs))).row
    assert 1.0 <= row.U_L <= U_L[name, "ujfb"].value
    assert row.preemptions > 0


@pytest.mark.parametrize("name", ["SDSC-DS", "LANL-CM5"])
@pytest.mark.parametrize("policy", ["fcfs", "conservative"])
def test_their_code_gives_the_same_with_their_clock(recorded: dict[str, AgungStudy], name: str, policy: str):
    found = recorded[name]
    row = figures(policy_named(policy).simulate(Scenario(on_their_clock(found.workload), found.machine))).row
    theirs = THEIR_CODE[name, policy]
    assert row.mean_response == pytest.approx(theirs.response, rel=0.01)
    # LANL-CM5 under conservative backfilling is the farthest: 17.37 against 17.55.
    assert row.mean_slowdown == pytest.approx(theirs.slowdown, rel=0.0105)
    assert pytest.approx(theirs.u_l, rel=0.001) == row.U_L
