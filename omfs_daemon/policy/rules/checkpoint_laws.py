"""Checkpoints and the cost of a victim by what they keep (Nickolay et al. 2021, sections 4.2, 5.2 and 6.3).

Plain functions of numbers, in seconds, bytes and CPUs, which also compile. The numbers that the paper leaves out are
those of the authors' own runs on Mira.
"""

from __future__ import annotations

from math import ceil, floor, log

from omfs_daemon.policy.rules.slowdown_laws import remaining_factor, slowdown_factor

ACT_AT = (1.1, 1.1, 2.0, 1.59)
"""By category: a waiting real-time job whose estimated slowdown reaches it is served before all batch jobs."""
BYTES_PER_CPU = 16e9
"""Memory of a node of Mira, which is a CPU of its traces."""

_IO_GROUP_CPUS = 128.0
_IO_GROUP_RATE = 4e9
FILE_SYSTEM_RATE = 216e9
"""Bytes per second of Mira's whole file system."""
_CHECKPOINT_UNIT = 900.0


def checkpoint_seconds(cpus: int, memory_per_cpu: float) -> float:
    """Whole seconds to write or to read a checkpoint of a job (Eq. 34): 4 GB/s for 128 nodes, 216 GB/s in all."""
    rate = min(cpus / _IO_GROUP_CPUS * _IO_GROUP_RATE, FILE_SYSTEM_RATE)
    return float(ceil(memory_per_cpu * cpus / rate))


def application_checkpoints(percent: float, limit: float, seconds: float) -> int:
    """How often an application writes a checkpoint that spends this part of its limit on them (section 4.2); they are
    ``limit / (checkpoints + 1)`` of work apart."""
    if seconds <= 0.0:
        return 0
    return floor(percent / 100.0 * limit / seconds)


def checkpoint_factor(seconds: float) -> float:
    """C: a job costs more the longer its last checkpoint, or without one its start, is past."""
    if seconds <= _CHECKPOINT_UNIT:
        return 1.0
    return 1.0 + log(seconds / _CHECKPOINT_UNIT)


def victim_cost(
    cpus: int,
    slowdown: float,
    unsaved: float,
    remaining: float,
    limit: float,
    slowdown_weight: float,
    checkpoint_weight: float,
    remaining_weight: float,
) -> float:
    """CPUs * S * C * T (Alg. 2); ``unsaved``: seconds since the last checkpoint. A weight is the exponent of a factor,
    0 switches it off."""
    saved_cost = slowdown_factor(slowdown) ** slowdown_weight * checkpoint_factor(unsaved) ** checkpoint_weight
    return float(cpus * saved_cost * remaining_factor(remaining, limit) ** remaining_weight)


def wfp_score(submit: float, limit: float, cpus: int, machine_cpus: int, now: float) -> float:
    """The priority of a waiting batch job on Mira: it grows with the wait and the size, and falls with the limit."""
    waited = now - submit
    return float(waited * waited / (limit * limit * limit) * cpus / machine_cpus)
