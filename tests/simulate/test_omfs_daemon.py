"""The same small workload through the daemon's whole step machine, on the fake Slurm, and through the simulator.

No job ends here: when one does, Slurm gives its CPUs to whoever is first in its own order, before the daemon sees it,
and the daemon may then have to preempt that one again for an owner; the simulated policy decides before anybody starts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from omfs_daemon.simulate.engine.conventions import Conventions, UserLimits
from omfs_daemon.simulate.engine.omfs_case import case_of
from omfs_daemon.simulate.engine.planner_engine import trail_by_plan
from omfs_daemon.simulate.engine.preemption_costs import CostModel
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload, workload
from omfs_daemon.testing.fake_slurm.events import Timing
from tests.support.fake_site import Site, site_rules

POLL = 0.5
SLACK = 8 * POLL
"""Seconds: a preemption takes the daemon a few cycles, one a step."""

OBSERVED = 1000.0
"""Seconds; long after the last job came, long before the first one ends."""


def whole_nodes(seed: int) -> Workload:
    """Jobs of one whole node each, far enough apart that a few seconds do not change their order. They are killed, for
    on which node a job was, and so which job blocks a suspended one, is Slurm's choice."""
    draw = np.random.default_rng(seed)
    count = 12
    run = 5000.0 + 50.0 * draw.permutation(count)
    return workload(
        "whole nodes", 25.0 * np.arange(count), np.full(count, 4), run, accounts=("bio", "physics"), limit=2 * run,
        account=np.where(np.arange(count) < 4, 0, draw.integers(0, 2, count)),
        urgent=(np.arange(count) >= 4) & (draw.random(count) < 0.25), mode=np.full(count, PreemptMode.KILL),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_the_daemon_preempts_and_starts_what_the_simulator_does(seed: int, tmp_path: Path) -> None:
    work, rules = whole_nodes(seed), site_rules(quantum=40.0)
    scenario = Scenario(
        work, Machine(16, 4), Conventions(UserLimits()), CostModel(latency=POLL, kill=1.0), rules
    )  # fmt: skip
    expected = trail_by_plan(scenario, case_of(scenario))
    site = Site(tmp_path, rules)
    site.slurm.timing = Timing(requeue_delay=1.0)
    origin = site.now
    for job in range(len(work)):
        site.run(origin + float(work.submit[job]) - site.now, POLL)
        site.submit(
            work.accounts[work.account[job]],
            method="" if work.urgent[job] else "requeue",
            run_time=float(work.run[job]),
            time_limit=float(work.limit[job]),
            urgent=bool(work.urgent[job]),
        )
    site.run(origin + OBSERVED - site.now, POLL)
    preempted = [
        (int(planned.preemptor) - 1, int(victim.ref) - 1)
        for report in site.reports
        if report.verdict is not None
        for planned in report.verdict.preemptions
        for victim in planned.victims
    ]
    seen = expected.preempted_at < OBSERVED
    assert preempted == list(zip(expected.preemptor[seen].tolist(), expected.victim[seen].tolist(), strict=True))
    assert preempted
    history = site.slurm.history
    for job, number in enumerate(site.submitted):
        starts = [at - origin for at in history[number].starts[:1]]
        assert starts == pytest.approx([expected.start[job]] if expected.start[job] < OBSERVED else [], abs=SLACK)
    site.die()
