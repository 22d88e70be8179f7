"""Job arrays updated from earlier ones equal new ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.jobs import Hold, Job, JobState, with_run_time
from omfs_daemon.policy.arrays.job_arrays import JobArrays
from omfs_daemon.policy.arrays.node_arrays import NodeArrays
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.rules.queue_order import BAND_STEP
from tests.support.policy_builders import nodes, running, snapshot, waiting

STATES = tuple(JobState)


@st.composite
def any_job(draw: st.DrawFn) -> Job:
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


def contents(job_arrays: JobArrays, cluster: NodeArrays) -> dict[str, object]:
    """All contents; patterns by what they stand for, since their numbers may differ."""
    tables: dict[str, object] = {"suspended": job_arrays.suspended, "completing": job_arrays.completing}
    for name, jobs in (("waiting", job_arrays.waiting), ("running", job_arrays.running)):
        columns = {column: values.tolist() for column, values in jobs._asdict().items()}
        first = [job_arrays.patterns.first[number] for number in columns["alike"]]
        columns["alike"] = [(job.account, job.state is JobState.PENDING, job.hold, job.comment) for job in first]
        tables[name] = columns
    tables["allocations"] = [column.tolist() for column in job_arrays.allocations_on(cluster)]
    return tables


numbers = st.sets(st.integers(1, 9), max_size=3)


@given(st.lists(st.tuples(st.lists(any_job(), max_size=4), numbers, numbers), max_size=6))
def test_updated_arrays_equal_new_ones(steps: list[tuple[list[Job], set[int], set[int]]]) -> None:
    seen = snapshot(nodes(2), [])
    cluster = NodeArrays(seen.nodes, seen.partitions)
    arrays = SnapshotArrays(seen)
    job_arrays = arrays.job_arrays
    for number, (changed, removed, ran) in enumerate(steps):
        again = {job.id for job in changed} | removed
        for job in seen.jobs.values():
            if job.id in ran and job.id not in again:
                changed.append(with_run_time(job, number) if job.id % 2 else replace(job, priority=job.priority + 1))
        before, stayed = contents(job_arrays, cluster), job_arrays.running
        seen = seen.with_jobs(float(number), changed, removed)
        later = JobArrays(seen.jobs, job_arrays)
        assert contents(later, cluster) == contents(JobArrays(seen.jobs), cluster)
        assert contents(job_arrays, cluster) == before, "the earlier arrays are unchanged"
        if not any(job.runs for job in changed) and not removed and not {j.id for j in changed} & set(stayed.ids):
            assert later.running is stayed
        job_arrays = later
    assert contents(SnapshotArrays(seen, arrays).job_arrays, cluster) == contents(job_arrays, cluster)
    assert SnapshotArrays(seen, arrays).node_arrays is arrays.node_arrays
