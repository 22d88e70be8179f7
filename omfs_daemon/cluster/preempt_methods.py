"""What a way of stopping a job does to it and to its node; how it is done lies in ``methods/``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

MEMORY, DEVICES = "memory", "devices"


@dataclass(frozen=True, slots=True)
class Method:
    """A way to stop a job.

    keeps_work  the job goes on where it was, instead of starting over
    leaves      it goes back into the queue, so all that it held becomes free and it may come back anywhere; else it
                stays, suspended, and can go on only on its own nodes
    frees       what the books then let others have of a job that stays, besides its CPUs: MEMORY, DEVICES
    launched    it is done by omfs-run inside the job, which must have said that it is ready
    on_nodes    it is done by omfs-node on the job's nodes, which must be able to
    slow        it takes its time and may fail, as what is launched or done on nodes does in any case
    """

    name: str
    keeps_work: bool
    leaves: bool
    frees: frozenset[str] = frozenset()
    launched: bool = False
    on_nodes: bool = False
    slow: bool = False

    @property
    def same_nodes(self) -> bool:
        return not self.leaves

    @property
    def is_careful(self) -> bool:
        """Whether others, which let go at once, wait until the job's work is safe."""
        return self.launched or self.on_nodes or self.slow


class Cost(NamedTuple):
    """What stopping one job costs, in seconds: until it has let go, until it computes again, work thrown away."""

    stop: float = 0.0
    back: float = 0.0
    lost: float = 0.0

    @property
    def total(self) -> float:
        return self.stop + self.back + self.lost


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a method is: seconds whatever the size, and bytes per second, each way."""

    stop_seconds: float = 0.0
    stop_rate: float = inf
    back_seconds: float = 0.0
    back_rate: float = inf


REQUEUE = Method("requeue", keeps_work=False, leaves=True)
SUSPEND = Method("suspend", keeps_work=True, leaves=False)
DMTCP = Method("dmtcp", keeps_work=True, leaves=True, launched=True)
CRIU = Method("criu", keeps_work=True, leaves=True, launched=True)
APPLICATION = Method("application", keeps_work=True, leaves=True, launched=True)
PAGEOUT = Method("pageout", keeps_work=True, leaves=False, frees=frozenset({MEMORY}), on_nodes=True)
VE_SWAP = Method("ve_swap", keeps_work=True, leaves=False, frees=frozenset({DEVICES}), on_nodes=True)

BUILT_IN: Mapping[str, Method] = {
    method.name: method for method in (REQUEUE, SUSPEND, DMTCP, CRIU, APPLICATION, PAGEOUT, VE_SWAP)
}
