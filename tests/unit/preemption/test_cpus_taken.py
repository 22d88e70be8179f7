"""CPUs that were freed for a job, and that Slurm has given to another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omfs_daemon.cluster.jobs import Allocation, Job, JobState
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.preemption.back_off import preemptor_backoff
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.preemption.next_step import Circumstances, next_state
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.preemption import Preemption, PreemptionOutcome, Preemptor, Step, VictimState
from omfs_daemon.preemption.preemptor_backoffs import PreemptorBackoffs
from omfs_daemon.preemption.progress import MethodSettings
from omfs_daemon.preemption.state import State
from omfs_daemon.preemption.state_fold import state_after
from tests.support.policy_builders import nodes, request, waiting

BEGUN, NOW = 100.5, 103.0
PREEMPTOR = waiting(9, cpus=4, reason="Resources")
WANTED = (Allocation("n0", 4, 0),)
SETTINGS = MethodSettings(installed(), preempt_timeout=60.0, start=60.0)


def on_n0(number: int, cpus: int, start: float, state: JobState = JobState.RUNNING) -> Job:
    job = waiting(number, request=request(cpus))
    return replace(job, state=state, start=start, allocations=(Allocation("n0", cpus, 0),))


def victim(job: Job, method: str = "application") -> VictimState:
    return VictimState(job.ref, job.account, job.user, method, 2, job.start or 0.0)


GONE = waiting(1, cpus=2)
SAVING = on_n0(2, 2, start=50.0)
TAKER = on_n0(3, 2, start=100.0)
"""Slurm's times are whole seconds: it has started after the preemption began."""


def preemption(step: Step, *victims: VictimState, suspended: bool = False) -> Preemption:
    preemptor = Preemptor(PREEMPTOR.ref, "bio", "u", False, suspended, 0.0, WANTED, 0)
    return Preemption(1, step, BEGUN, BEGUN, "realtime", preemptor, victims)


def after(before: Preemption, *jobs: Job) -> Preemption:
    seen = {job.id: job for job in (PREEMPTOR, *jobs)}
    view = Observation(Snapshot(NOW, seen, {node.name: node for node in nodes(2)}, {}))
    return next_state(before, Circumstances(view, NOW, SETTINGS, is_fresh=True, is_held=False))


FREED = (victim(replace(GONE, start=50.0)), victim(SAVING))


def test_a_job_that_has_started_there_ends_the_preemption() -> None:
    found = after(preemption(Step.STOPPING, *FREED), GONE, SAVING, TAKER)
    assert (found.step, found.outcome) == (Step.UNDONE, PreemptionOutcome.CPUS_TAKEN)
    assert found.refused == (("9", "Slurm has started 3 there"),)


LEFT = replace(GONE, id=2, ref="2")
STARTS = replace(preemption(Step.STARTING, *FREED), since=NOW - 1)
LATER = replace(TAKER, start=NOW)


def test_slurm_does_not_want_the_job_if_it_starts_another_when_all_victims_have_left() -> None:
    assert after(STARTS, GONE, LEFT, LATER) is STARTS


def test_where_a_bound_is_in_danger_it_is_chance_once_that_it_had_started_before_all_were_seen_to_have_left() -> None:
    found = after(STARTS, GONE, LEFT, TAKER)
    assert (found.step, found.outcome) == (Step.UNDONE, PreemptionOutcome.CPUS_TAKEN)
    for before in (replace(STARTS, retried=True), replace(STARTS, reason="entitled")):
        assert after(before, GONE, LEFT, TAKER) is before


@pytest.mark.parametrize(
    "jobs",
    [
        (GONE, SAVING),
        (GONE, SAVING, on_n0(3, 2, start=99.0)),
        (GONE, SAVING, replace(TAKER, allocations=(Allocation("n1", 2, 0),))),
        (GONE, SAVING, replace(TAKER, state=JobState.COMPLETING)),
        (on_n0(1, 2, start=102.0), SAVING),
    ],
    ids=["nobody", "was there", "elsewhere", "leaving", "its own victim again"],
)
def test_who_takes_them(jobs: tuple[Job, ...]) -> None:
    """A victim that has started again is on CPUs that were to be free, too."""
    before = preemption(Step.STOPPING, *FREED)
    found = after(before, *jobs)
    is_victim = jobs[0].runs
    assert (found.outcome is PreemptionOutcome.CPUS_TAKEN) == is_victim
    assert (found is before) != is_victim


def test_a_suspended_preemptor_has_cpus_of_its_own() -> None:
    before = preemption(Step.STARTING, victim(SAVING), suspended=True)
    assert after(before, GONE, waiting(2, cpus=2), TAKER) is before


def test_it_is_planned_anew_at_once_and_after_that_with_a_pause() -> None:
    seen = Observation(Snapshot(NOW, {PREEMPTOR.id: PREEMPTOR}, {}, {}))
    failed = replace(preemption(Step.UNDONE, *FREED), outcome=PreemptionOutcome.CPUS_TAKEN)
    first = preemptor_backoff(failed, State(), seen, NOW, 300.0)
    assert first.until == NOW
    state = state_after(State(), [first])
    assert state.backoff == replace(PreemptorBackoffs(), until={"9": NOW})
    assert preemptor_backoff(failed, state, seen, NOW, 300.0).until == NOW + 300.0
