"""No job is preempted on a decision that was made before a crash or an outage."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK, MarkWord
from omfs_daemon.preemption.preemption import Step
from omfs_daemon.preemption.state import PreemptionChanged
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from tests.support.fake_site import Killed, Site
from tests.support.preemption_cases import word_of


def dies_once_on_record(site: Site, step: Step) -> None:
    """Kill the daemon when this step is in the journal, before its orders are given."""
    write = site.journal.write

    def dying(*records: object) -> None:
        write(*records)
        if any(isinstance(record, PreemptionChanged) and record.preemption.step is step for record in records):
            raise Killed

    site.journal.write = dying  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("step", [Step.STOPPING])
def test_after_two_hours_nobody_is_preempted_for_a_preemptor_that_is_gone(tmp_path: Path, step: Step) -> None:
    site = Site(tmp_path)
    bio = [site.submit("bio", run_time=20_000) for _ in range(4)]
    site.run(2)
    physics = site.submit("physics")
    dies_once_on_record(site, step)
    with pytest.raises(Killed):
        site.run(2)
    site.die()
    site.slurm.cancel(physics)
    site.now += 7200
    site.start_daemon()
    site.run(10)
    assert site.runs(*bio)
    assert not site.journal.state.preemptions
    assert all(site.slurm.history[job].lost == 0 for job in bio)
    assert {word_of(site, job) for job in bio} <= {None, MarkWord.RELEASED}


@pytest.mark.parametrize("step", [Step.STOPPING])
def test_an_account_that_fell_to_its_entitlement_meanwhile_gives_nothing(tmp_path: Path, step: Step) -> None:
    site = Site(tmp_path)
    bio = [site.submit("bio", run_time=20_000) for _ in range(4)]
    site.run(2)
    physics = site.submit("physics", run_time=20_000)
    dies_once_on_record(site, step)
    with pytest.raises(Killed):
        site.run(2)
    site.die()
    (victim,) = next(iter(site.journal.state.preemptions.values())).victims
    for job in bio:
        if str(job) != victim.ref:
            site.slurm.cancel(job)
    site.now += 7200
    site.start_daemon()
    site.run(20)
    assert site.runs(int(victim.ref), physics)
    assert site.slurm.history[int(victim.ref)].lost == 0


def test_an_outage_while_the_preemptor_is_prepared_preempts_nobody(tmp_path: Path) -> None:
    site = Site(tmp_path)
    bio = [site.submit("bio", run_time=20_000) for _ in range(4)]
    site.run(2)
    site.gateway.faults.inject(Fault.DEAD, ("pin",), times=1)
    physics = site.submit("physics", method="", hold=Hold.USER, admin_comment=SUBMIT_MARK)
    site.step()
    site.gateway.faults.inject(Fault.DEAD)
    site.run(600, step=10)
    site.slurm.cancel(physics)
    site.gateway.faults.clear()
    site.run(10)
    assert site.runs(*bio)
    assert not site.journal.state.preemptions


def test_a_suspended_preemptor_gets_its_cpus_before_a_backlog_does(tmp_path: Path) -> None:
    site = Site(tmp_path)
    physics = [site.submit("physics", method="suspend", run_time=300, time_limit=1000) for _ in range(2)]
    bio = [site.submit("bio", run_time=300, time_limit=500) for _ in range(2)]
    site.run(2)
    backlog = [site.submit("bio", run_time=100, time_limit=500) for _ in range(20)]
    urgent = site.submit("alarm", urgent=True, method="", run_time=10)
    site.run_until(lambda: site.runs(urgent), limit=5)
    (preempted,) = [job for job in physics if site.state(job) is JobState.SUSPENDED]
    site.run_until(lambda: site.state(urgent) is JobState.ENDED, limit=60)
    site.run_until(lambda: site.runs(*physics), limit=30)
    assert max(site.slurm.processes().values()) <= 4
    assert site.slurm.history[preempted].lost == 0
    lost = sum(site.slurm.history[job].lost > 0 for job in (*bio, *backlog))
    assert lost <= 1, "one job had to give, once"
    assert all(preemption.outcome == "started" for preemption in site.history_database.preemptions(10, 0))


def test_a_lost_unpin_is_given_again_until_it_is_seen(tmp_path: Path) -> None:
    site = Site(tmp_path)
    [site.submit("bio", run_time=50) for _ in range(4)]
    site.run(2)
    physics = site.submit("physics", run_time=100)
    site.run_until(lambda: site.runs(physics) and not site.journal.state.preemptions, limit=10)
    (node,) = site.job(physics).on_nodes
    site.gateway.faults.inject(Fault.IGNORE, ("pin",), times=2)
    site.slurm.node_down(node)
    site.run_until(lambda: site.runs(physics), limit=200)
    assert site.job(physics).on_nodes != (node,)
