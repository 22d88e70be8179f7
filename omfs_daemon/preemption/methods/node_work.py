"""Work on a job's nodes, and its status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from omfs_daemon.protocol import node_request


class NodeAction(StrEnum):
    """What omfs-node is to do; a probe is no work, as it concerns no job."""

    OUT = node_request.OUT
    IN = node_request.IN
    LOOK = node_request.LOOK


class NodeWorkState(StrEnum):
    """The state of work on nodes."""

    UNDER_WAY = "under_way"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class NodeWork:
    """One action for one job on all of its nodes.

    ref        the job as the daemon names it; job_id: its raw id
    resume     in: continue the processes
    suspended  out: Slurm has suspended the job, so a failed "out" must not let it run
    options    of the method; slurm: where scontrol and slurm.conf are on the nodes
    timeout    seconds that each node may take
    """

    ref: str
    job_id: int
    uid: int
    nodes: tuple[str, ...]
    do: NodeAction
    method: str
    resume: bool = False
    suspended: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    slurm: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 60.0

    def request(self) -> dict[str, object]:
        """The part of the request that is the same for all nodes."""
        request: dict[str, object] = {"do": self.do.value, "method": self.method, "job": self.job_id, "uid": self.uid}
        if self.do is NodeAction.IN:
            request["continue"] = self.resume
        if self.do is NodeAction.OUT:
            request["suspended"] = self.suspended
        return request | {"options": dict(self.options), "slurm": dict(self.slurm)}


@dataclass(frozen=True, slots=True)
class NodeWorkStatus:
    """The latest work for a job.

    moved, freed  bytes on all nodes; seconds, slowest: of the slowest node and of its slowest process
    memory        where done work has left the job on all nodes: running, out, mixed, none
    why, message  a code and a line if it failed; at: when it began, or was done
    """

    do: NodeAction
    method: str
    state: NodeWorkState
    at: float
    resume: bool = False
    moved: int = 0
    freed: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    processes: int = 0
    memory: str = ""
    why: str = ""
    message: str = ""


def with_costs_of(before: NodeWorkStatus | None, seen: NodeWorkStatus) -> NodeWorkStatus:
    """A second "in" only continues the processes; the first one has the costs of moving the memory."""
    if before is None or seen.state is not NodeWorkState.DONE:
        return seen
    return replace(seen, moved=before.moved, freed=before.freed, seconds=before.seconds, slowest=before.slowest)


class NodeWorkSettings(NamedTuple):
    """``timeout``: seconds for work on a node, by method; ``options`` of each method, from the configuration;
    ``slurm``: where the nodes find Slurm."""

    timeout: Mapping[str, float] = {}
    options: Mapping[str, Mapping[str, object]] = {}
    slurm: Mapping[str, str] = {}
