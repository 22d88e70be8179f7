"""The offline optimum against an independent checker, another solver, and values found elsewhere."""

from __future__ import annotations

import csv
import time
from dataclasses import replace
from random import Random

import pytest

from omfs_daemon.simulate.experiments.nickolay2021.small_log_maker import make_small_log
from omfs_daemon.simulate.optimum.instance import Part, SmallJob, SmallLog, checkpoint_overhead
from omfs_daemon.simulate.optimum.solve import Optimum, OptimumOptions, find_optimum
from tests.support.amounts import is_soak
from tests.support.optimum_check import faults_of
from tests.support.optimum_milp import in_own_process
from tests.support.traces import DIRECTORY, needs_traces

SMALL = DIRECTORY.parent / "experiments" / "nickolay2021"
QUICK = (0, 2, 4, 5, 9, 25)
"""Logs of which the optimum is proven at once."""


def solved(log: SmallLog, **options: float) -> Optimum:
    return find_optimum(log, OptimumOptions(**options), time.monotonic)


def job(job_id: int, submit: int, run: int, size: int, realtime: bool = False, overhead: int = 60) -> SmallJob:
    return SmallJob(job_id, submit, run, size, realtime, overhead)


@needs_traces
def test_the_optimum_of_published_substitutes_is_found_and_holds() -> None:
    with (SMALL / "small-logs-optimum.csv").open() as file:
        known = {int(row["log"]): row for row in csv.DictReader(file)}
    for seed in range(60) if is_soak() else QUICK:
        log = make_small_log(seed)
        found = solved(log)
        assert faults_of(log, found.schedule, found.limit) == []
        if known[seed]["status"] == "INFEASIBLE":
            assert found.limit is not None
            assert found.limit > 1.2
            continue
        assert found.limit == 1.2
        assert found.batch_sd is not None
        value = float(known[seed]["batch_sd"])
        assert found.batch_sd <= value + 0.01
        if known[seed]["status"] == "OPTIMAL":
            assert found.status == "optimal"
            assert found.batch_sd == pytest.approx(value, abs=0.01)


@needs_traces
def test_small_logs_are_made_as_those_of_the_table() -> None:
    with (SMALL / "small-logs.csv").open() as file:
        rows = list(csv.DictReader(file))
    for seed in (0, 31, 59):
        assert [(job.submit, job.run, job.size, job.realtime) for job in make_small_log(seed).jobs] == [
            (int(row["submit"]), int(row["run"]), int(row["cpus"]), row["class"] == "realtime")
            for row in rows
            if int(row["log"]) == seed
        ]


def test_another_solver_finds_the_same_on_four_blocks() -> None:
    tick, problems, results = 600, [], []
    for seed in range(40) if is_soak() else (4, 9, 11):
        random = Random(seed)
        jobs = tuple(
            job(
                number,
                tick * random.randint(0, 4),
                tick * (random.randint(3, 5) if number < 4 else 1),
                random.choice((1, 2, 4)),
                realtime=number > 3,
                overhead=500,
            )
            for number in range(1, 5)
        )
        found = solved(SmallLog("", 4, 1, jobs), tick=tick)
        assert found.status == "optimal"
        assert found.limit is not None
        assert faults_of(found.log, found.schedule, found.limit) == []
        results.append(found)
        problems.append((found.log, found.limit, tick, max(part.end for part in found.schedule) // tick + 1))
    assert any(found.stopped for found in results)
    assert [found.batch_sd for found in results] == pytest.approx(in_own_process(problems), abs=1e-3)


def test_a_batch_job_is_stopped_for_a_realtime_job_that_could_not_wait() -> None:
    log = SmallLog("", 4, 1, (job(1, 0, 6000, 4), job(2, 1200, 600, 4, realtime=True)))
    found = solved(log)
    # Until 1,140 s, a checkpoint, the other job, and back: 600 s and both overheads later than without it.
    assert (found.status, found.stopped, found.realtime_sd) == ("optimal", 1, 1.0)
    assert found.batch_sd == pytest.approx((6000 + 600 + 120) / 6000)
    without = solved(log, stops=0)
    assert without.stopped == 0
    assert without.batch_sd == pytest.approx((1800 + 6000) / 6000)  # it waits for it from the beginning


def test_the_least_limit_is_found_and_said_where_the_limit_cannot_be_held() -> None:
    log = SmallLog("", 4, 1, (job(1, 0, 600, 4), job(2, 0, 1200, 4, True), job(3, 0, 1200, 2, True), job(4, 0, 60, 1)))
    found = solved(log)
    assert (found.status, found.limit, found.realtime_sd) == ("optimal", 1.5, 1.5)
    hopeless = replace(log, jobs=tuple(job(n, 0, 1200, 4, True) for n in range(1, 5)))
    assert (solved(hopeless).status, solved(hopeless).schedule) == ("infeasible", ())


def test_a_log_without_realtime_jobs_has_no_limit_and_one_without_others_no_batch_slowdown() -> None:
    batch = SmallLog("", 4, 1, (job(1, 0, 600, 4), job(2, 0, 1200, 4)))
    assert (solved(batch).limit, solved(batch).batch_sd) == (None, pytest.approx((1 + 1.5) / 2))
    realtime = SmallLog("", 4, 1, (job(1, 0, 600, 2, True),))
    assert (solved(realtime).realtime_sd, solved(realtime).batch_sd, solved(realtime).gap) == (1.0, None, None)


def test_nothing_is_called_optimal_before_it_is_proven() -> None:
    found = solved(make_small_log(51), seconds=0.3)
    assert found.status in ("feasible", "unknown")
    if found.schedule:
        assert found.gap is not None
        assert found.gap > 0


def test_the_checker_finds_faults() -> None:
    log = SmallLog("", 4, 1, (job(1, 0, 600, 2), job(2, 60, 600, 2, True)))
    batch, realtime = log.jobs
    good = (Part(batch, 1, 0, 0, 600, 0), Part(realtime, 1, 2, 60, 660, 0))
    assert faults_of(log, good, 1.0) == []
    for bad in (
        good[:1],
        (good[0], replace(good[1], place=0)),
        (good[0], replace(good[1], place=1)),
        (good[0], replace(good[1], start=0, end=600)),
        (good[0], replace(good[1], start=600, end=1200)),
        (replace(good[0], end=540), good[1]),
        (Part(batch, 1, 0, 0, 90, 60), Part(batch, 2, 0, 120, 750, 60), good[1]),
        (Part(batch, 1, 0, 0, 300, 0), Part(batch, 2, 0, 300, 600, 0), good[1]),
    ):
        assert faults_of(log, bad, 1.0), bad


@pytest.mark.parametrize(("nodes", "seconds"), [(512, 512), (6912, 512), (8192, 607), (16384, 1214), (49152, 3641)])
def test_a_checkpoint_takes_what_the_paper_computes(nodes: int, seconds: int) -> None:
    assert checkpoint_overhead(nodes, nodes * 16e9) == seconds
