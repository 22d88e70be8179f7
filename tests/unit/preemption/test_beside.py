"""Of two preemptions for the same job, which nodes count, and how each ends."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from omfs_daemon.cluster.jobs import Allocation, Job, JobRequest, JobState
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.policy.plan import Plan
from omfs_daemon.preemption.desired import desired_state
from omfs_daemon.preemption.next_step import Circumstances, next_state
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.ownership import JobField
from omfs_daemon.preemption.preemption import Preemption, PreemptionOutcome, Preemptor, Step
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import State

NOW = 1000.0
WAITING = Job(7, "7", "ann", 1, "alarm", JobState.PENDING, JobRequest(4), submit=0.0, reason="Resources")
NODES = {name: Node(name, 4, 100) for name in ("n1", "n2")}


def preemption(number: int, node: str, step: Step = Step.STOPPING, since: float = NOW - 10) -> Preemption:
    preemptor = Preemptor("7", "alarm", "ann", True, False, 0.0, (Allocation(node, 4, 0),), nice=-5)
    return Preemption(number, step, NOW - 10, since, "urgent", preemptor, (), beside=3 - number)


FIRST, SECOND = preemption(1, "n1"), preemption(2, "n2")


def observed(job: Job) -> Observation:
    return Observation(Snapshot(NOW, {7: job}, NODES, {}))


def pinned_to(*preemptions: Preemption) -> object:
    state = State(preemptions={one.id: one for one in preemptions})
    found = desired_state(state, observed(WAITING), Settings(), NOW, Plan(NOW, NOW), {})
    return found.fields["7", JobField.NODES].value


@pytest.mark.parametrize("order", [*permutations((0, 1))])
def test_the_nodes_that_were_free_first_count(order: tuple[int, int]) -> None:
    def pinned(*preemptions: Preemption) -> object:
        return pinned_to(*(preemptions[at] for at in order))

    assert pinned(FIRST, SECOND) == ("n2",), "its victims are expected to be faster"
    free = preemption(1, "n1", Step.STARTING, NOW - 2)
    assert pinned(free, SECOND) == ("n1",)
    assert pinned(free, preemption(2, "n2", Step.STARTING, NOW - 1)) == ("n1",)
    assert pinned(free, preemption(2, "n2", Step.STARTING, NOW - 3)) == ("n2",)


def test_only_one_of_them_has_started_it() -> None:
    job = replace(WAITING, state=JobState.RUNNING, start=NOW - 1, allocations=(Allocation("n2", 4, 0),))
    view, settings = observed(job), Settings().method_settings
    found = {}
    for one in (preemption(1, "n1", Step.STARTING), preemption(2, "n2", Step.STARTING)):
        over = next_state(one, Circumstances(view, NOW, settings, is_fresh=True, is_held=False))
        found[one.id] = over.outcome
        assert over.step is Step.DONE
    assert found == {1: PreemptionOutcome.STARTED_ELSEWHERE, 2: PreemptionOutcome.STARTED}
