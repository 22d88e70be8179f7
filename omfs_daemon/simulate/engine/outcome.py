"""The outcome of every job of a simulated workload."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.policy.rules.realtime_terms import MIRA_SIZES, JobSize
from omfs_daemon.simulate.engine.conventions import Conventions
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.workload.workload import Workload


class Use(IntEnum):
    """What CPUs were held for. LOST: work discarded by a kill; PREEMPTION, RESUME: being preempted, being resumed;
    CHECKPOINT: a periodic checkpoint."""

    WORK = 0
    LOST = 1
    PREEMPTION = 2
    RESUME = 3
    CHECKPOINT = 4


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """When jobs held all of their CPUs, and what for; one entry per segment, in no particular order.

    job    index into the workload
    begin, end  seconds
    use    ``Use``
    """

    job: Ints
    begin: Floats
    end: Floats
    use: Ints

    def __len__(self) -> int:
        return len(self.job)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Arrays have one entry per job of ``workload``.

    policy   its name, as typed
    start    seconds; when it first began to run; nan: it never did (refused)
    finish   seconds; when it was done; nan: never
    run      seconds of run time that it needed (after the cut at its limit, if there is one)
    preemptions  how often it was preempted
    segments when CPUs were held, and what for; under a policy without preemption, one segment per job
    rejected which jobs are wider than what they may ever use
    estimate seconds that the policy took each job's run time to be when it came, where it was predicted; else None
    promised seconds; when the job was first promised to start, where the policy promises; else nan
    held     CPUs that each job holds, where that is more than it uses: of its place; else None
    sizes    what is narrow and what is short
    """

    workload: Workload
    policy: str
    machine: Machine
    conventions: Conventions
    start: Floats
    finish: Floats
    run: Floats
    preemptions: Ints
    segments: Segments
    rejected: Bools
    promised: Floats
    held: Ints | None = None
    sizes: JobSize = MIRA_SIZES
    estimate: Floats | None = None

    @property
    def is_cut(self) -> Bools:
        """Which jobs were ended at their limit."""
        cut: Bools = self.run < self.workload.run
        return cut


def undisturbed(
    workload: Workload,
    policy: str,
    machine: Machine,
    conventions: Conventions,
    start: Floats,
    run: Floats,
    promised: Floats | None = None,
) -> Outcome:
    """The outcome of a policy without preemption; ``start`` is nan for refused jobs."""
    ran = np.flatnonzero(~np.isnan(start))
    finish = start + run
    return Outcome(
        workload=workload,
        policy=policy,
        machine=machine,
        conventions=conventions,
        start=start,
        finish=finish,
        run=run,
        preemptions=np.zeros(len(start), dtype=np.int64),
        segments=Segments(ran, start[ran], finish[ran], np.full(len(ran), Use.WORK, dtype=np.int64)),
        rejected=np.isnan(start),
        promised=np.full(len(start), np.nan) if promised is None else promised,
    )
