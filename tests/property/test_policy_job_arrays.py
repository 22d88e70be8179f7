"""A crowd made from the one before tells the same as one made afresh."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.policy.arrays.job_arrays import Crowd
from omfs_daemon.policy.arrays.node_arrays import Machine
from omfs_daemon.policy.rules.queue_order import BAND_STEP
from omfs_daemon.policy.arrays.snapshot_arrays import Scene
from tests.unit.policy.policy_builders import nodes
from tests.unit.policy.policy_builders import running
from tests.unit.policy.policy_builders import snapshot
from tests.unit.policy.policy_builders import waiting

STATES = tuple(JobState)


@st.composite
def one(draw: st.DrawFn) -> Job:
    number, state = draw(st.integers(1, 9)), draw(st.sampled_from(STATES))
    fields: dict[str, Any] = {
        "account": draw(st.sampled_from(("bio", "physics"))),
        "priority": draw(st.integers(0, 3)),
        "nice": draw(st.sampled_from((0, 5, -2 * BAND_STEP))),
        "requeue": draw(st.booleans()),
    }
    if state is JobState.PENDING:
        return waiting(
            number, **fields, hold=draw(st.sampled_from(tuple(Hold))), reason=draw(st.sampled_from(("", "x")))
        )
    return replace(running(number, on=draw(st.sampled_from(("n0", "n1", "gone"))), **fields), state=state)


def told(crowd: Crowd, machine: Machine) -> dict[str, object]:
    """All that it tells; patterns by what they stand for, since their numbers are its own."""
    tables: dict[str, object] = {"suspended": crowd.suspended, "completing": crowd.completing}
    for name, roll in (("waiting", crowd.waiting), ("running", crowd.running)):
        columns = {column: values.tolist() for column, values in roll._asdict().items()}
        first = [crowd.patterns.first[number] for number in columns["alike"]]
        columns["alike"] = [(job.account, job.state is JobState.PENDING, job.hold, job.comment) for job in first]
        tables[name] = columns
    tables["places"] = [column.tolist() for column in crowd.places(machine)]
    return tables


@settings(max_examples=200, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.lists(one(), max_size=4), st.sets(st.integers(1, 9), max_size=3)), max_size=6))
def test_a_crowd_that_moved_on_is_as_one_made_afresh(steps: list[tuple[list[Job], set[int]]]) -> None:
    seen = snapshot(nodes(2), [])
    machine = Machine(seen.nodes, seen.partitions)
    scene = Scene(seen)
    crowd = scene.crowd
    for number, (changed, removed) in enumerate(steps):
        before, stayed = told(crowd, machine), crowd.running
        seen = seen.with_jobs(float(number), changed, removed)
        later = Crowd(seen.jobs, crowd)
        assert told(later, machine) == told(Crowd(seen.jobs), machine)
        assert told(crowd, machine) == before, "the one before is left as it was"
        if not any(job.runs for job in changed) and not removed and not {j.id for j in changed} & set(stayed.ids):
            assert later.running is stayed
        crowd = later
    assert told(Scene(seen, scene).crowd, machine) == told(crowd, machine)
    assert Scene(seen, scene).machine is scene.machine
