"""Nodes that a completing job does not leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import structlog

from omfs_daemon.cluster.job_refs import brief_ref
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.nodes import Node

LEAVES_WITHIN = 120.0
"""Seconds after which a node that a job does not leave counts as closed: KillWait and UnkillableStepTimeout, by default
30 and 60 s, and some for an epilog."""


class BlockedNodes:
    """Remembers since when jobs have been completing."""

    def __init__(self) -> None:
        self._leaving: dict[int, float] = {}
        self._blocked: frozenset[str] = frozenset()
        self._open: tuple[Mapping[str, Node], frozenset[str], Mapping[str, Node]] = ({}, frozenset(), {})

    def with_blocked_down(self, taken: float, jobs: Iterable[Job], nodes: Mapping[str, Node]) -> Mapping[str, Node]:
        """The nodes; down are those that a completing job does not leave. Slurm starts nothing there until it does, and
        nobody should wait for that."""
        leaving = [job for job in jobs if job.state is JobState.COMPLETING]
        self._leaving = {job.id: self._leaving.get(job.id, taken) for job in leaving}
        late = [job for job in leaving if taken - self._leaving[job.id] > LEAVES_WITHIN]
        blocked = frozenset(node for job in late for node in job.on_nodes)
        if fresh := sorted(blocked - self._blocked):
            named = [brief_ref(job.ref) for job in late if not set(fresh).isdisjoint(job.on_nodes)]
            text = "jobs do not leave these nodes: nothing is planned there"
            structlog.get_logger("observer").warning("nodes_not_freed", nodes=fresh, jobs=named, message=text)
        self._blocked = blocked
        if not blocked:
            return nodes
        if self._open[0] is not nodes or self._open[1] != blocked:
            closed = {name: replace(node, up=False) if name in blocked else node for name, node in nodes.items()}
            self._open = nodes, blocked, closed
        return self._open[2]
