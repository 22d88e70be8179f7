"""Small logs like those of the paper's Table 3, which are not published: five batch jobs, then two real-time jobs."""

from __future__ import annotations

from random import Random

from omfs_daemon.simulate.optimum.instance import SmallJob, SmallLog, checkpoint_overhead

SMALL_MACHINE = 8192
SMALL_UNIT = 512
MEMORY_PER_CPU = 16e9
"""Bytes; a CPU is a node of Mira."""
LIMIT_FACTOR = 1.5
"""Time limit over run time in the authors' one public sample; its submissions and run times have this range, too."""


def make_small_log(seed: int, batch: int = 5, realtime: int = 2) -> SmallLog:
    """The log of this seed on 8,192 nodes of Mira; the same for the same seed."""
    random = Random(seed)  # noqa: S311 - a workload
    jobs = []
    for number in range(1, batch + realtime + 1):
        run, submit = 60 * random.randint(10, 180), 60 * random.randint(0, 60)
        size = random.choice((512, 1024, 2048, 4096, 8192))
        overhead = checkpoint_overhead(size, size * MEMORY_PER_CPU)
        jobs.append(SmallJob(number, submit, run, size, number > batch, overhead))
    return SmallLog(str(seed), SMALL_MACHINE, SMALL_UNIT, tuple(jobs))
