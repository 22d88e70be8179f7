"""The daemon is killed while a careful preemption is under way, and is started again.

At the first act of each kind; in a soak between any two acts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from tests.support.amounts import sample
from tests.support.fake_omfs_node import GB
from tests.support.fake_site import Fuse, Site
from tests.support.preemption_cases import Act, check_peace, lost, methods_site, play, preemptor, victim

Scenario = Sequence[tuple[float, Act]]

START_LIMIT = 60.0
"""Seconds after which every preemptor of these scenarios must run, besides the time in which the daemon is dead."""


def scenario_of(method: str) -> Scenario:
    """A job on each of two nodes; two urgent ones, the second while the first is being made room for."""
    return [
        *((0.0, partial(victim, method=method, node=f"n{number}", run_time=14.0)) for number in (1, 2)),
        (2.0, partial(preemptor, method=method, run_time=4.0)),
        (6.0, partial(preemptor, method=method, run_time=4.0)),
    ]


def scenario_of_mixed() -> Scenario:
    """One wide urgent job for a requeued, a launched and a swapped one."""
    return [
        (0.0, partial(Site.submit, account="bio", method="requeue", on="n1", run_time=10.0)),
        (0.0, partial(victim, method="dmtcp", on="n2", run_time=10.0, launched=OmfsRunBehavior(seconds=3))),
        (0.0, partial(victim, method="ve_swap", node="n3", run_time=40.0, size=12 * GB)),
        (2.0, partial(preemptor, method="", cpus=12, hosts=3, run_time=4.0)),
    ]


def scenario_of_entitled() -> Scenario:
    """An account takes back what it owns."""
    return [
        *((0.0, partial(victim, method="pageout", node=f"n{number}", run_time=14.0)) for number in (1, 2, 3)),
        (2.0, partial(Site.submit, account="physics", method="requeue", run_time=5.0)),
    ]


def scenario_of_warned() -> Scenario:
    """Jobs that take no heed of their warning, and are requeued in the end."""
    warned = partial(Site.submit, account="bio", method="requeue omfs:signal=USR2", run_time=14.0)
    return [
        *((0.0, partial(warned, on=f"n{number}")) for number in (1, 2)),
        (2.0, partial(preemptor, method="requeue", run_time=4.0)),
        (6.0, partial(preemptor, method="requeue", run_time=4.0)),
    ]


SCENARIOS: dict[str, tuple[int, Scenario]] = {
    "dmtcp": (2, scenario_of("dmtcp")),
    "application": (2, scenario_of("application")),
    "pageout": (2, scenario_of("pageout")),
    "ve_swap": (2, scenario_of("ve_swap")),
    "mixed": (3, scenario_of_mixed()),
    "entitled": (3, scenario_of_entitled()),
    "warned": (2, scenario_of_warned()),
}


def site_of(name: str, directory: Path, **more: object) -> Site:
    directory.mkdir()
    timeouts = {"preempt_timeouts": {"requeue": 5.0}} if name == "warned" else {}
    return methods_site(directory, hosts=SCENARIOS[name][0], **timeouts, **more)  # type: ignore[arg-type]


def check(site: Site, *where: object, away: float = 0.0) -> None:
    """No work is lost beyond the rules, and everything has come to rest."""
    assert set(site.outcomes().values()) == {"COMPLETED"}, (*where, site.outcomes())
    # Slurm lets no suspended job hold licenses: who needs its VE may get it just when the job has been brought in.
    check_peace(site, may_be_crowded=True)
    kept = [job for job in site.submitted if "omfs:method=requeue" not in site.slurm.records[job].comment]
    assert lost(site, kept) == 0, where
    for job in site.submitted:
        history = site.slurm.history[job]
        if "omfs:signal" in site.slurm.records[job].comment:
            assert len(history.signals) <= len(history.starts), (*where, job, "warned once in a run", history)
        assert len(history.starts) <= 4, (*where, job, history)
        if site.slurm.records[job].what.account == "alarm":
            waited = history.starts[0] - site.slurm.records[job].submitted
            assert waited < START_LIMIT + away, (*where, job, waited)


def acts_of(name: str, directory: Path) -> Fuse:
    """The acts of a case in which nobody is killed."""
    site = site_of(name, directory)
    play(site, SCENARIOS[name][1])
    check(site, "nobody is killed")
    assert site.history_database.preemptions(10, 0.0)
    return site.fuse


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("away", [0.2, 30.0])
def test_killed_at_any_act_nothing_is_lost(name: str, away: float, tmp_path: Path) -> None:
    acts = acts_of(name, tmp_path / "whole")
    assert acts.acts > 20
    for kill_at in acts.crash_points(step=2):  # dead after an act is dead before the next
        site = site_of(name, tmp_path / str(kill_at))
        site.fuse.kill_at = kill_at
        play(site, SCENARIOS[name][1], away)
        check(site, kill_at, away=away)


@pytest.mark.parametrize("name", ["pageout", "ve_swap"])
def test_the_nodes_hear_that_the_daemon_is_gone(name: str, tmp_path: Path) -> None:
    """A connection that breaks makes omfs-node put back what it was moving out."""
    acts = acts_of(name, tmp_path / "whole")
    for kill_at in acts.crash_points(step=2):
        site = site_of(name, tmp_path / str(kill_at))
        site.nodes.hears_hang_up = True
        site.fuse.kill_at = kill_at
        play(site, SCENARIOS[name][1], away=3.0)
        check(site, kill_at)


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_again_and_again(name: str, tmp_path: Path) -> None:
    """Dies at every n-th act, until it was started ten times."""
    for every in sample((7, 11, 16, 23), 2):
        site = site_of(name, tmp_path / str(every))
        acts = [*SCENARIOS[name][1]]
        lives = 0
        while lives < 10 and (acts or site.gateway.jobs()):
            site.fuse.kill_at = site.fuse.acts + every
            begun = site.now
            play(site, acts, away=1.0)
            acts, lives = [], lives + 1
            assert site.now - begun < 3600
        check(site, every, away=10.0)
