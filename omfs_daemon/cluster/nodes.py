"""Nodes and partitions as Slurm shows them. Memory is bytes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Node:
    """One node. ``up`` says whether Slurm would start a job on it now (not down, drained, in maintenance…).

    ``cpus_taken`` and ``memory_taken`` are Slurm's own books; a suspended job's memory stays in them.
    ``gres`` counts per name, typed entries as ``gpu:a100`` besides their sum as ``gpu``.
    """

    name: str
    cpus: int
    memory: int
    up: bool = True
    state: str = "IDLE"
    gres: tuple[tuple[str, int], ...] = ()
    features: frozenset[str] = frozenset()
    partitions: tuple[str, ...] = ()
    cpus_taken: int = 0
    memory_taken: int = 0


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. ``exclusive``: every job takes whole nodes (OverSubscribe=EXCLUSIVE)."""

    name: str
    nodes: frozenset[str] = field(default_factory=frozenset)
    up: bool = True
    exclusive: bool = False
    priority_tier: int = 1
