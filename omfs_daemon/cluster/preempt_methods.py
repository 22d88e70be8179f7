"""What each preemption method does to a job and its nodes; ``preemption/methods/`` carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

MEMORY, DEVICES = "memory", "devices"

OUT, IN = "out", "in"
"""Directions of a method: the preemption of a job, and its return."""


@dataclass(frozen=True, slots=True)
class MethodTraits:
    """A preemption method.

    keeps_work  the job continues where it was instead of starting over
    leaves      the job is requeued: all its resources become free and it may run anywhere next; otherwise it stays
                on its nodes, suspended, and can resume only there
    frees       what a job that stays gives up for others besides its CPUs: MEMORY, DEVICES
    launched    omfs-run carries it out inside the job, and must have reported that it is ready
    on_nodes    omfs-node carries it out on the job's nodes, which must support it
    one_node    it cannot be used for a job of several nodes
    whole       it preempts all parts of a heterogeneous job at once
    slow        it takes time and may fail; this is always assumed of ``launched`` and ``on_nodes``
    """

    name: str
    keeps_work: bool
    leaves: bool
    frees: frozenset[str] = frozenset()
    launched: bool = False
    on_nodes: bool = False
    one_node: bool = False
    whole: bool = False
    slow: bool = False

    @property
    def same_nodes(self) -> bool:
        return not self.leaves

    @property
    def is_killed(self) -> bool:
        """Whether Slurm ends the job, which may take all of KillWait."""
        return self.leaves and not self.launched

    @property
    def is_careful(self) -> bool:
        """Whether victims that free their resources at once wait until this job's work is safe."""
        return self.launched or self.on_nodes or self.slow


ENDS = MethodTraits("ends", keeps_work=True, leaves=True, slow=True)
"""Of a victim that is left to run, because its time is up before the slowest other one lets go."""


class PreemptionCost(NamedTuple):
    """What preempting one job costs, in seconds: until its resources are free, until it runs again, and work lost."""

    preempt: float = 0.0
    resume: float = 0.0
    lost: float = 0.0

    @property
    def total(self) -> float:
        return self.preempt + self.resume + self.lost


@dataclass(frozen=True, slots=True)
class MethodSpeed:
    """How fast a method is, each way: seconds whatever the size, and bytes per second."""

    preempt_seconds: float = 0.0
    preempt_rate: float = inf
    resume_seconds: float = 0.0
    resume_rate: float = inf
