"""Which nodes are doubted, and which waiting jobs avoid them."""

from __future__ import annotations

from dataclasses import replace

from omfs_daemon.cluster.job_shape import request_in, shape_of, shape_of_request, shape_on_node
from omfs_daemon.cluster.jobs import Allocation, Hold, Job, JobRequest, JobState
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.preemption.doubts import DoubtedNodes, doubts_after, doubts_over
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.preemption import Preemption, PreemptionOutcome, Preemptor, Step
from omfs_daemon.preemption.preemptor_backoffs import NodeDoubt

NOW = 1000.0
REQUEST = JobRequest(4, partitions=("main",))
PINNED = replace(REQUEST, required_nodes=frozenset(["n1"]))
WAITING = Job(7, "7", "ann", 1, "bio", JobState.PENDING, REQUEST, submit=0.0, reason="Resources")
ON_N1 = (Allocation("n1", 4, 0),)
KEY = shape_on_node(shape_of_request(REQUEST), "n1")
FAILED = Preemption(
    1, Step.UNDONE, 900.0, 950.0, "urgent", outcome=PreemptionOutcome.NOT_STARTED, victims=(),
    preemptor=Preemptor("7", "bio", "ann", True, False, 0.0, ON_N1, 0, shape=shape_of(WAITING)),
)  # fmt: skip


def snapshot(*jobs: Job) -> Snapshot:
    nodes = {name: Node(name, 4, 100) for name in ("n1", "n2")}
    return Snapshot(NOW, {job.id: job for job in jobs}, nodes, {})


def running(number: int, request: JobRequest = REQUEST, start: float = NOW - 10) -> Job:
    return replace(
        WAITING, id=number, ref=str(number), state=JobState.RUNNING, request=request, start=start, allocations=ON_N1
    )


def after(
    job: Job, *others: Job, before: dict[str, NodeDoubt] | None = None, **changes: object
) -> dict[str, NodeDoubt]:
    """Of a preemption for the job, pinned to n1."""
    job = replace(job, request=PINNED)
    preemption = replace(FAILED, **changes)  # type: ignore[arg-type]
    return doubts_after(preemption, before or {}, Observation(snapshot(job, *others)), NOW, 300.0)


def test_slurms_reason_for_other_nodes_says_nothing() -> None:
    seen = Observation(snapshot(WAITING))
    assert doubts_after(FAILED, {}, seen, NOW, 300.0) == {}


def test_the_request_of_a_shape() -> None:
    assert request_in(shape_of(WAITING)) == shape_of_request(REQUEST)
    other = replace(WAITING, account="physics", time_limit=5.0)
    assert shape_of(other) != shape_of(WAITING)
    assert request_in(shape_of(other)) == request_in(shape_of(WAITING))


def test_slurms_reason_decides() -> None:
    assert after(WAITING) == {KEY: NodeDoubt(NOW + 3600, 1, NOW)}
    for reason in ("None", "Priority", "QOSGrpCpuLimit", "Nodes required for job are DOWN"):
        assert after(replace(WAITING, reason=reason)) == {}, reason
    unfit = replace(WAITING, reason="BadConstraints", hold=Hold.USER)
    assert after(unfit, running(8)), "it does not matter whether they are free"
    assert after(unfit, outcome=PreemptionOutcome.NOT_STARTABLE)
    assert not after(WAITING, outcome=PreemptionOutcome.NOT_STARTABLE), "no node was freed"


def test_nodes_that_are_not_free_are_not_to_blame() -> None:
    assert after(WAITING, running(8)) == {}
    suspended = replace(running(8), state=JobState.SUSPENDED)
    assert after(WAITING, suspended) != {}
    assert after(WAITING, replace(suspended, allocations=(Allocation("n1", 4, 101),))) == {}


def test_each_doubt_lasts_longer() -> None:
    for times in (1, 2, 6, 7, 50):
        (doubt,) = after(WAITING, before={KEY: NodeDoubt(0.0, times, 0.0)}).values()
        assert doubt == NodeDoubt(NOW + 3600 * 2.0 ** min(times, 6), times + 1, NOW)


def test_a_job_that_runs_there_ends_it() -> None:
    doubts = {KEY: NodeDoubt(NOW + 3600, 1, NOW - 60)}
    assert doubts_over(doubts, Observation(snapshot(running(8))), NOW) == {KEY}
    assert doubts_over(doubts, Observation(snapshot(running(8, PINNED))), NOW) == {KEY}
    assert doubts_over(doubts, Observation(snapshot(running(8, JobRequest(2)))), NOW) == set()
    assert doubts_over(doubts, Observation(snapshot(running(8, start=NOW - 70))), NOW) == set(), "it ran before"
    assert doubts_over(doubts, Observation(snapshot()), NOW + 3600 + 86000) == set(), "the next one lasts longer"
    assert doubts_over(doubts, Observation(snapshot()), NOW + 3600 + 86500) == {KEY}


def test_waiting_jobs_avoid_them_and_keep_their_shape() -> None:
    doubted = DoubtedNodes()
    doubts = {KEY: NodeDoubt(NOW + 1, 1, NOW)}
    other = replace(WAITING, id=9, ref="9", request=JobRequest(2))
    seen = snapshot(WAITING, running(8), other)
    avoided = doubted.avoided(seen, doubts, NOW)
    changed = avoided.jobs[7]
    assert changed.request.excluded_nodes == changed.doubted == changed.kept_off == {"n1"}
    assert shape_of(changed) == shape_of(WAITING)
    assert avoided.jobs[8] is seen.jobs[8] and avoided.jobs[9] is other
    assert doubted.avoided(seen, doubts, NOW).jobs[7] is changed, "the arrays of a plan are kept"
    assert doubted.avoided(seen, doubts, NOW + 1) is seen


def test_nodes_that_its_owner_excludes_are_not_named() -> None:
    mine = replace(WAITING, request=replace(REQUEST, excluded_nodes=frozenset(["n1", "n2"])))
    key = shape_on_node(shape_of_request(mine.request), "n1")
    changed = DoubtedNodes().avoided(snapshot(mine), {key: NodeDoubt(NOW + 1, 1, NOW)}, NOW).jobs[7]
    assert changed.request == mine.request and not changed.doubted
