"""Nodes on which Slurm does not start what seems to fit there: learned from preemptions in vain. Pure.

Slurm checks limits before it looks for resources. If it names resources although the nodes are free as far as we see,
or finds that the nodes can never serve the request, what the plan takes these nodes for is wrong: Slurm keeps memory of
a node for itself, for instance. The nodes are doubted for all jobs that request the same, whosever they are, until one
of these runs there, or for ``DOUBTED_FOR`` times ``policy.retry_after_seconds``, twice as long each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from omfs_daemon.cluster.holds import is_unfit
from omfs_daemon.cluster.job_shape import request_in, shape_of_request, shape_on_node
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.preemption import Preemption, PreemptionOutcome
from omfs_daemon.preemption.preemptor_backoffs import NodeDoubt
from omfs_daemon.preemption.proof import RESOURCES

DOUBTED_FOR = 12
"""How long nodes are doubted at first, in back-offs after a preemption that failed."""

_MOST_DOUBLINGS = 6
_FORGOTTEN_AFTER = 86400.0
"""Seconds after its end when a doubt is forgotten."""


def doubts_after(
    preemption: Preemption, doubts: Mapping[str, NodeDoubt], observation: Observation, now: float, retry_after: float
) -> dict[str, NodeDoubt]:
    """Which nodes of a preemption that failed are doubted from now on. Which one of several is to blame is unknown."""
    preemptor = preemption.preemptor
    job = observation.job(preemptor.ref)
    if job is None or job.state is not JobState.PENDING or preemptor.suspended:
        return {}
    if job.request.required_nodes != {allocation.node for allocation in preemptor.allocations}:
        return {}  # Slurm's reason is not about these
    lacks_resources = preemption.outcome is PreemptionOutcome.NOT_STARTED and job.reason == RESOURCES
    if not is_unfit(job) and not (lacks_resources and observation.has_free(preemptor.allocations)):
        return {}
    found = {}
    for allocation in preemptor.allocations:
        key = shape_on_node(request_in(preemptor.shape), allocation.node)
        times = doubts[key].times + 1 if key in doubts else 1
        lasts = DOUBTED_FOR * retry_after * 2.0 ** min(times - 1, _MOST_DOUBLINGS)
        found[key] = NodeDoubt(now + lasts, times, now)
    return found


def doubts_over(doubts: Mapping[str, NodeDoubt], observation: Observation, now: float) -> set[str]:
    """Those of which a job has run on the node since, and old ones."""
    if not doubts:
        return set()
    over = {key for key, doubt in doubts.items() if now - doubt.until > _FORGOTTEN_AFTER}
    nodes = {key.partition(" ")[2] for key in doubts}
    first = min(doubt.since for doubt in doubts.values())
    for job in observation.snapshot.jobs.values():
        if job.runs and job.start is not None and job.start > first and not nodes.isdisjoint(job.on_nodes):
            for key in _seen_to_fit(job):
                if key in doubts and job.start > doubts[key].since:
                    over.add(key)
    return over


def _seen_to_fit(job: Job) -> Iterable[str]:
    """A job may run on nodes that we have chosen for it."""
    requests = {shape_of_request(job.request), shape_of_request(replace(job.request, required_nodes=frozenset()))}
    return (shape_on_node(request, node) for request in requests for node in job.on_nodes)


def doubted_by_request(doubts: Mapping[str, NodeDoubt], now: float) -> dict[str, frozenset[str]]:
    """The nodes that are doubted now, by ``shape_of_request``."""
    found: dict[str, set[str]] = {}
    for key, doubt in doubts.items():
        if doubt.until > now:
            request, _, node = key.partition(" ")
            found.setdefault(request, set()).add(node)
    return {request: frozenset(nodes) for request, nodes in found.items()}


class DoubtedNodes:
    """Remembers the jobs that it has changed, so that they stay the same objects."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Job, frozenset[str], Job]] = {}

    def avoided(self, snapshot: Snapshot, doubts: Mapping[str, NodeDoubt], now: float) -> Snapshot:
        """The snapshot; waiting jobs exclude the nodes that are doubted for them, as if their owners had."""
        doubted = doubted_by_request(doubts, now)
        known: dict[int, tuple[Job, frozenset[str], Job]] = {}
        shapes: dict[tuple[int, frozenset[str]], str] = {}
        for number, job in snapshot.jobs.items() if doubted else ():
            if job.state is not JobState.PENDING:
                continue
            key = id(job.request), job.kept_off  # equal requests are the same object, for the most part
            shape = shapes.get(key) or shapes.setdefault(key, shape_of_request(job.request, job.kept_off))
            if shape in doubted:
                before = self._known.get(number)
                is_same = before is not None and before[0] is job and before[1] == doubted[shape]
                known[number] = before if before is not None and is_same else _avoiding(job, doubted[shape])
        self._known = known
        return snapshot.with_jobs(snapshot.taken, [changed for _, _, changed in known.values()]) if known else snapshot


def _avoiding(job: Job, nodes: frozenset[str]) -> tuple[Job, frozenset[str], Job]:
    excluded = job.request.excluded_nodes
    request = job.request.off_nodes(nodes)
    kept_off = job.kept_off | (nodes - excluded)
    return job, nodes, replace(job, request=request, kept_off=kept_off, doubted=nodes - excluded)
