"""What is to be done on a job's nodes, and what has become of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple


class Do(StrEnum):
    """What a node is asked to do."""

    OUT = "out"
    IN = "in"
    LOOK = "look"


class WorkState(StrEnum):
    """How far it is."""

    UNDER_WAY = "under_way"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Work:
    """One wish for one job on all of its nodes.

    ref        the job as the daemon names it; job_id: raw, as Slurm's steps know it
    resume     in: let the processes run again
    suspended  out: Slurm has suspended the job, so a failed "out" must not let it run
    options    the method's; slurm: where scontrol and slurm.conf are on the nodes
    timeout    seconds that each node may take
    """

    ref: str
    job_id: int
    uid: int
    nodes: tuple[str, ...]
    do: Do
    method: str
    resume: bool = False
    suspended: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    slurm: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 60.0

    def request(self) -> dict[str, object]:
        """The part of the request that is the same for all nodes."""
        request: dict[str, object] = {"do": self.do.value, "method": self.method, "job": self.job_id, "uid": self.uid}
        if self.do is Do.IN:
            request["continue"] = self.resume
        if self.do is Do.OUT:
            request["suspended"] = self.suspended
        return request | {"options": dict(self.options), "slurm": dict(self.slurm)}


@dataclass(frozen=True, slots=True)
class WorkSeen:
    """What is known of a job's latest work.

    moved, freed  bytes on all nodes; seconds, slowest: of the slowest node and of its slowest process
    memory        where a done work has left the job on all nodes: running, out, mixed, none
    why, message  a code and a line if it failed; at: when it was begun, or was over
    """

    do: Do
    method: str
    state: WorkState
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


def with_costs_of(before: WorkSeen | None, seen: WorkSeen) -> WorkSeen:
    """A second "in" only lets the processes go on; what bringing them in has cost, the first one knows."""
    if before is None or seen.state is not WorkState.DONE:
        return seen
    return replace(seen, moved=before.moved, freed=before.freed, seconds=before.seconds, slowest=before.slowest)


class NodeTerms(NamedTuple):
    """``timeout``: seconds for work on a node, by method; ``options`` of each method, as the site has written them;
    ``slurm``: where nodes find their Slurm."""

    timeout: Mapping[str, float] = {}
    options: Mapping[str, Mapping[str, object]] = {}
    slurm: Mapping[str, str] = {}
