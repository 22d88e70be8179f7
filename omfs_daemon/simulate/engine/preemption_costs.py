"""What it costs to preempt a job and to resume it.

Checkpoints: size over bandwidth, where each CPU has its own and all share one (WCJS, section on checkpoint costs:
``16 GB * n / min(n / 128 * 4, 216) GB/s`` for n nodes of Mira). Swaps: linear in the size of a process, all
processes at once (UJFB, Equation 3 and Figure 9: about 6 GB/s), and all preemptions of one decision share the
interconnect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload

BY_SIZE = "+bytes/"


def by_size(fixed: float, rate: float) -> str:
    """Seconds besides and bytes per second of one job, as the options of ``omfs simulate`` take them."""
    return f"{fixed:.4g}{BY_SIZE}{rate:.4g}"


@dataclass(frozen=True, slots=True)
class Link:
    """Bytes per second: ``each`` for one CPU of a job, ``job`` for all of one, ``together`` for all that one decision
    moves; and ``fixed`` seconds besides for each job, whatever its size."""

    each: float = inf
    together: float = inf
    job: float = inf
    fixed: float = 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds, drawn for each job once, uniformly; so all policies see the same times for a job."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CostModel:
    """How long preemptions and resumes take.

    latency     seconds between a decision and the first signal to a victim; it computes on meanwhile
    kill        seconds that a killed job takes to be gone
    write, read     writing and reading a checkpoint: by size, or drawn
    swap_out, swap_in  the same for swapped jobs
    area        bytes that may be swapped out at one time on the whole machine
    """

    latency: float = 0.0
    kill: float = 0.0
    write: Link | Spread = field(default_factory=Link)
    read: Link | Spread = field(default_factory=Link)
    swap_out: Link | Spread = field(default_factory=Link)
    swap_in: Link | Spread = field(default_factory=Link)
    area: float = inf


class SimulatedCosts(NamedTuple):
    """The costs as a kernel sees them; arrays have one entry per job.

    preemptible  whether it may ever be preempted (urgent jobs never are)
    keeps      whether its work survives a preemption
    pinned     whether it resumes only where it was (swapped)
    preemption  seconds that its preemption takes if it is the only victim
    resume     seconds until it computes again
    queueing   seconds that its preemption occupies the link that all victims of one mode share
    size       bytes in the swap area while it is swapped out
    latency    seconds before any preemption begins
    area       bytes of swap area
    """

    preemptible: Bools
    keeps: Bools
    pinned: Bools
    preemption: Floats
    resume: Floats
    queueing: Floats
    size: Floats
    latency: float
    area: float


def simulated_costs(workload: Workload, model: CostModel, seed: int) -> SimulatedCosts:
    """The costs job by job; the same seed draws the same seconds."""
    generator = np.random.default_rng(seed)
    count, mode = len(workload), workload.mode
    cpus = workload.cpus.astype(np.float64)
    moved = np.where(workload.swap > 0, workload.swap, workload.memory)
    # Both are drawn whatever the model, so that swap-in times do not depend on how swap-outs are modeled.
    out_draw, in_draw = generator.random(count), generator.random(count)
    swapped, written = mode == PreemptMode.SWAP, mode == PreemptMode.CHECKPOINT
    preemption = np.select(
        [swapped, written, mode == PreemptMode.KILL],
        [
            _seconds(moved, cpus, model.swap_out, out_draw),
            _seconds(workload.memory, cpus, model.write, out_draw),
            model.kill,
        ],
        0.0,
    )
    resume = np.select(
        [swapped, written],
        [_seconds(moved, cpus, model.swap_in, in_draw), _seconds(workload.memory, cpus, model.read, in_draw)],
        0.0,
    )
    return SimulatedCosts(
        preemptible=(mode != PreemptMode.NEVER) & ~workload.urgent,
        keeps=swapped | written,
        pinned=swapped,
        preemption=preemption,
        resume=resume,
        queueing=np.select(
            [swapped, written], [moved / _shared(model.swap_out), workload.memory / _shared(model.write)], 0.0
        ),
        size=np.where(swapped, moved, 0.0),
        latency=model.latency,
        area=model.area,
    )


def _seconds(size: Floats, cpus: Floats, link: Link | Spread, draw: Floats) -> Floats:
    if isinstance(link, Spread):
        return link.low + (link.high - link.low) * draw
    seconds: Floats = link.fixed + size / np.minimum(cpus * link.each, min(link.job, link.together))
    return seconds


def _shared(link: Link | Spread) -> float:
    return link.together if isinstance(link, Link) else inf
