"""Nodes and partitions as Slurm shows them. Memory is bytes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Node:
    """One node. ``up``: Slurm would start a job on it now (it is not down, drained, or in maintenance). ``works``: the
    jobs that it has run on, and suspended ones can be resumed, also where it is drained or in maintenance.
    ``silent``: it does not respond to slurmctld, and only that keeps jobs from starting there.

    ``cpus_taken``, ``memory_taken``: allocated according to Slurm, including the memory of suspended jobs.
    ``gres``: counts by name; typed entries (``gpu:a100``) and their sum (``gpu``). ``threads``: CPUs of one core, which
    belongs to one job.
    """

    name: str
    cpus: int
    memory: int
    up: bool = True
    works: bool = True
    silent: bool = False
    state: str = "IDLE"
    gres: tuple[tuple[str, int], ...] = ()
    features: frozenset[str] = frozenset()
    partitions: tuple[str, ...] = ()
    cpus_taken: int = 0
    memory_taken: int = 0
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. ``exclusive``: every job takes whole nodes (OverSubscribe=EXCLUSIVE)."""

    name: str
    nodes: frozenset[str] = field(default_factory=frozenset)
    up: bool = True
    exclusive: bool = False
    priority_tier: int = 1
