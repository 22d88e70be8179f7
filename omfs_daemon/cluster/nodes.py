"""Nodes and partitions as Slurm shows them. Memory is bytes, times are seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf


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
    """One partition. ``up``: jobs that wait in it may start (UP, or DRAIN, where it only accepts no new ones).

    ``exclusive``: every job takes whole nodes (OverSubscribe=EXCLUSIVE); ``exclusive_user``: a node has jobs of one
    user only. ``max_nodes``, ``max_memory_per_node``, ``max_memory_per_cpu``: 0 without such a limit. ``allow_*``:
    None for all. ``qos``: the partition's own, whose limits its jobs are also under. ``is_default``: of jobs that name
    no partition; ``default_time``: the limit of jobs that ask for none, infinite: it is ``max_time``. ``cpus_per_gpu``:
    DefCpuPerGPU, 0 without.
    """

    name: str
    nodes: frozenset[str] = field(default_factory=frozenset)
    up: bool = True
    exclusive: bool = False
    priority_tier: int = 1
    state: str = "UP"
    exclusive_user: bool = False
    min_nodes: int = 0
    max_nodes: int = 0
    max_time: float = inf
    default_time: float = inf
    cpus_per_gpu: int = 0
    max_memory_per_node: int = 0
    max_memory_per_cpu: int = 0
    allow_accounts: frozenset[str] | None = None
    deny_accounts: frozenset[str] = frozenset()
    allow_qos: frozenset[str] | None = None
    deny_qos: frozenset[str] = frozenset()
    allow_groups: frozenset[str] | None = None
    qos: str = ""
    is_default: bool = False

    @property
    def limit_of_others(self) -> float:
        """Seconds for a job that asks for no limit (slurm.conf(5), DefaultTime)."""
        return min(self.default_time, self.max_time)
