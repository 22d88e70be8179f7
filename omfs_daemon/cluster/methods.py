"""What a way of stopping a job does to it and to its node; how it is done lies in ``methods/``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Method:
    """A way to stop a job.

    keeps_work    the job goes on where it was, instead of starting over
    frees_memory  memory and generic resources become free too, not only CPUs
    same_nodes    it can go on only where it was stopped
    """

    name: str
    keeps_work: bool
    frees_memory: bool
    same_nodes: bool


REQUEUE = Method("requeue", keeps_work=False, frees_memory=True, same_nodes=False)
SUSPEND = Method("suspend", keeps_work=True, frees_memory=False, same_nodes=True)
METHODS = {method.name: method for method in (REQUEUE, SUSPEND)}
