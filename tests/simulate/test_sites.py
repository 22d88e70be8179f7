"""Several sites: the file that names them, where jobs are sent, and what is written."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.kernels.sites_kernel import NOWHERE
from omfs_daemon.simulate.sites.choose_site import CHOICES, Booking, Site, SiteChoice
from omfs_daemon.simulate.sites.read_sites import read_sites
from omfs_daemon.simulate.sites.simulate_sites import simulate_sites, site_figures
from omfs_daemon.simulate.workload.workload import Workload, workload
from tests.support.amounts import sample

GOOD = """
[[site]]
name = "vector"
procs = 8
[[site]]
name = "scalar"
procs = 4
kind = "reservation"
limit = 3600
map = "map.csv"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sites.toml"
    path.write_text(GOOD)
    (tmp_path / "map.csv").write_text("begin,end,processors\n0,100,3\n\n50,200,1\n200,300,4\n")
    return path


def test_sites_are_read_in_order(file: Path) -> None:
    bookings = (Booking(0, 100, 3), Booking(50, 200, 1), Booking(200, 300, 4))
    assert read_sites(file) == (Site("vector", 8), Site("scalar", 4, True, bookings, 3600.0))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "has no site: there must be a table"),
        ("site = 3", "has no site"),
        ("[[site]]\n[[place]]\n", "'place': must be tables [[site]] alone"),
        ("[[site]", "must be TOML"),
        ("[[site]]\nprocs = 4", "site 1: name = None: must be a text"),
        ('[[site]]\nname = "a\\nb"\nprocs = 4', "must be a text of 1 to 100 printable characters"),
        ('[[site]]\nname = "a"\nprocs = 0', "site 1 (a): procs = 0: must be a whole number of at least 1"),
        ('[[site]]\nname = "a"\nprocs = true', "procs = True: must be a whole number"),
        ('[[site]]\nname = "a"\nprocs = 1\nkind = "grid"', "kind = 'grid': must be one of queue, reservation"),
        ('[[site]]\nname = "a"\nprocs = 1\nlimit = nan', "limit = nan: must be seconds, above 0"),
        (f'[[site]]\nname = "a"\nprocs = {"9" * 4301}', "a number is too long"),
        (
            f'[[site]]\nname = "a"\nprocs = 1\nlimit = {"9" * 18}',
            "must be seconds, above 0, 1,000,000,000,000 at most",
        ),
        ("a = " + "[" * 9999, "must be nested in at most 32 levels"),
        (f'[[site]]\nname = "a"\nprocs = 0x{"f" * 9999}', "a number is too long"),
        ('[[site]]\nname = "a"\nprocs = 1\nmap = "m"', "must be the name of a file, of a site of kind reservation"),
        ('[[site]]\nname = "a"\nprocs = 1\ncolor = 1', "'color': must be one of name, procs"),
        ('[[site]]\nname = "a"\nprocs = 1\n' * 2, "name = 'a': must be unique, but 2 sites have it"),
    ],
)
def test_wrong_sites_are_one_line(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "sites.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_sites(path)
    assert error in str(raised.value) and str(raised.value).startswith(str(path)) and len(str(raised.value)) < 400


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("0,10,5\n", "map.csv, line 1: 5 processors: must be at most the site's 4"),
        ("0,100,3\n50,60,2\n", "map.csv, line 2: with those that it overlaps 5 processors are reserved"),
        ("50,60,2\n0,100,3\n", "map.csv, line 1: with those that it overlaps"),
        ("10,5,1\n", "map.csv, line 1: must be begin,end,processors"),
        ("begin,end,processors\n0,inf,1\n", "map.csv, line 2: must be begin,end"),
        ("0,10\n", "must be begin,end,processors"),
        ("0,10,1,9\n", "must be begin,end,processors"),
        ("-1,10,1\n", "must be begin,end,processors"),
        ("0,10,x\n", "must be begin,end,processors"),
        (f"0,10,1\n0,10,{'1' * 131_073}\n", "map.csv, line 2: not CSV: field larger than field limit"),
    ],
)
def test_wrong_maps_are_named_by_line(file: Path, text: str, error: str) -> None:
    file.with_name("map.csv").write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_sites(file)
    assert error in str(raised.value)


def test_what_follows_an_end_does_not_overlap(file: Path) -> None:
    file.with_name("map.csv").write_text("0,10,4\n10,20,4\n")
    assert len(read_sites(file)[1].bookings) == 2


def made(seed: int) -> Workload:
    draw = np.random.default_rng(seed)
    count = int(draw.integers(1, 80))
    run = draw.choice([0.0, 5.0, 60.0, 900.0], count) * draw.uniform(0.5, 2.0, count).round(1)
    return workload(
        "made",
        np.cumsum(draw.choice([0.0, 3.0, 100.0], count)),
        draw.integers(1, 10, count),
        run,
        limit=np.where(draw.random(count) < 0.1, inf, run * draw.choice([0.8, 1.0, 3.0], count) + 1.0),
        job_names=("a", "b", "c"),
        job_name=draw.integers(0, 3, count),
    )


SITES = (Site("queue", 8), Site("reservation", 6, True, (Booking(40.0, 400.0, 4),)), Site("brief", 9, longest=100.0))


@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize("seed", sample(range(60), 6))
def test_no_site_has_more_than_it_has_and_queues_are_served_in_order(seed: int, choose: str) -> None:
    jobs = made(seed)
    outcome = simulate_sites(jobs, SITES, SiteChoice(choose))
    sent, end = outcome.sent, outcome.sent.start + outcome.run
    for index, site in enumerate(SITES):
        mine = np.flatnonzero(sent.site == index)
        start, cpus = sent.start[mine], jobs.cpus[mine]
        assert (cpus <= site.processors).all() and (jobs.limit[mine] <= site.longest).all()
        assert not site.takes_reservations or np.isfinite(jobs.limit[mine]).all()
        for at in start:
            taken = int(cpus[(start <= at) & (at < end[mine])].sum())
            taken += sum(one.processors for one in site.bookings if one.begin <= at < one.end)
            assert taken <= site.processors
        if not site.takes_reservations:
            assert (np.diff(start) >= 0).all(), "first come, first served"
            assert np.isin(start, np.concatenate((end[mine], jobs.submit[mine]))).all(), "nobody waits beyond an end"
    could = np.zeros(len(jobs), dtype=bool)
    for site in SITES:
        fits = (jobs.cpus <= site.processors) & (jobs.limit <= site.longest)
        could |= fits & (np.isfinite(jobs.limit) | (not site.takes_reservations))
    assert ((sent.site == NOWHERE) == ~could).all(), "only jobs that fit nowhere are refused"
    everything, *each = site_figures(outcome, 10.0)
    assert everything.jobs == int(could.sum()) == sum(one.jobs for one in each)


def test_a_job_waits_for_the_first_gap_that_holds_its_limit() -> None:
    jobs = workload("one", np.zeros(1), np.array([4]), np.array([10.0]), limit=np.array([60.0]))
    sites = (Site("r", 4, True, (Booking(30.0, 100.0, 1), Booking(150.0, 170.0, 4))),)
    sent = simulate_sites(jobs, sites, SiteChoice("history")).sent
    assert sent.start.tolist() == [170.0], "100 to 150 is less than its minute"


class Run:
    """The command on thirty jobs, six of which are wider than any site."""

    def __init__(self, directory: Path, file: Path) -> None:
        self.out, self.file = directory / "out", file
        trace = directory / "log.csv"
        lines = [f"{at},{at * 10},{2 if at % 5 else 9},{100 + at},600,{'ab'[at % 2]}\n" for at in range(1, 31)]
        trace.write_text("job_id,submit,cpus,run,limit,name\n" + "".join(lines))
        self.words = ["simulate", "--policy", "fcfs", "--trace", str(trace), "--out", str(self.out)]

    def omfs(self, *words: str) -> Any:
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, [*self.words, *words])


@pytest.fixture
def run(tmp_path: Path, file: Path) -> Run:
    return Run(tmp_path, file)


def test_the_command_writes_where_each_job_went_and_counts_the_refused(run: Run) -> None:
    done = run.omfs("--sites", str(run.file), "--choose", "shortest-queue")
    assert done.exit_code == 0, done.stderr
    assert "6 jobs fit no site: refused" in done.stdout
    jobs = pl.read_csv(run.out / "jobs.csv")
    assert set(jobs["site"].drop_nulls()) - {""} == {"vector", "scalar"}
    refused = jobs.filter(pl.col("final_state") == "REJECTED")
    assert refused["job_id"].to_list() == [5, 10, 15, 20, 25, 30]
    assert refused["starting_time"].null_count() == refused["estimate"].null_count() == len(refused)
    summary = json.loads((run.out / "summary.json").read_text())
    assert (summary["rejected"], summary["choose"], summary["counts_running"]) == (6, "shortest-queue", None)
    assert [one["site"] for one in summary["sites"]] == ["all", "vector", "scalar"]
    answer = json.loads(run.omfs("--sites", str(run.file), "--json").stdout)
    assert (answer["choose"], answer["counts_running"]) == ("history", True)


def test_estimates_by_true_run_times_hold_at_queues(run: Run) -> None:
    run.file.write_text('[[site]]\nname = "a"\nprocs = 9\n[[site]]\nname = "b"\nprocs = 9\n')
    assert run.omfs("--sites", str(run.file), "--choose", "oracle").exit_code == 0
    jobs = pl.read_csv(run.out / "jobs.csv")
    assert jobs["waiting_time"].max() > 100
    assert jobs["estimate"].to_list() == pytest.approx(jobs["waiting_time"].to_list())


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--choose", "coin"], "--choose = 'coin': must be one of round-robin, shortest-queue, history, oracle"),
        (["--quantum", "5"], "--quantum: does not go with --sites"),
        (["--realtime-share", "0.1"], "--realtime-share: does not go with --sites"),
        (["--no-kill"], "--no-kill: with --sites jobs end at their limits"),
        (["--bound", "0"], "--bound = 0: must be seconds above 0, 10,000,000,000 at most"),
        (["--bound", "nan"], "--bound = nan: must be seconds above 0"),
        (["--procs", "4"], "--procs: with --sites only for a generated workload; the file says what sites have"),
        (["--policy", "easy"], "--policy = 'easy': with --sites it must be fcfs"),
    ],
)
def test_options_that_do_not_go_together(run: Run, words: list[str], error: str) -> None:
    done = run.omfs("--sites", str(run.file), *words)
    assert done.exit_code == 2
    assert error in done.stderr and done.stderr.count("\n") == 1
    assert not run.out.exists()


def test_a_choice_needs_sites(run: Run) -> None:
    done = run.omfs("--choose", "oracle")
    assert (done.exit_code, done.stderr) == (2, "omfs: --choose: goes with --sites\n")


def test_a_generated_workload_may_be_of_other_processors_than_the_sites(tmp_path: Path, file: Path) -> None:
    words = ["simulate", "--policy", "fcfs", "--generate", "50", "--procs", "16", "--sites", str(file)]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.stderr
