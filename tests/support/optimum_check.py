"""What a schedule of ``omfs optimum`` must hold, checked without the model's code."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from omfs_daemon.simulate.optimum.instance import Schedule, SmallLog


def faults_of(log: SmallLog, schedule: Schedule, limit: float | None, stops: int = 1) -> list[str]:
    """What is wrong with it; empty if nothing is.

    All jobs run whole and after their submission, on one aligned place of their size; nothing overlaps; real-time jobs
    are never stopped; a stopped job's parts are each a tenth of its run time or more, and each carries a checkpoint;
    the real-time jobs' mean slowdown is within the limit.
    """
    faults = []
    parts = defaultdict(list)
    for part in schedule:
        parts[part.job.job_id].append(part)
    held = defaultdict(list)
    slowdowns = []
    for job in log.jobs:
        own = sorted(parts.pop(job.job_id, []), key=lambda part: part.start)
        if [part.number for part in own] not in ([1], [1, 2]):
            faults.append(f"job {job.job_id} has parts {[part.number for part in own]}")
            continue
        if len({part.place for part in own}) != 1 or own[0].place % job.size or own[0].place + job.size > log.cpus:
            faults.append(f"job {job.job_id} is on {[part.place for part in own]}")
        if own[0].start < job.submit:
            faults.append(f"job {job.job_id} starts before it is submitted")
        if len(own) - 1 > (0 if job.realtime else stops):
            faults.append(f"job {job.job_id} is stopped")
        computed = [part.end - part.start - part.overhead for part in own]
        if sum(computed) != job.run:
            faults.append(f"job {job.job_id} computes {computed}, not {job.run}")
        if len(own) == 2 and (min(computed) * 10 < job.run or min(part.overhead for part in own) < job.overhead):
            faults.append(f"job {job.job_id} has parts of {computed} with {[part.overhead for part in own]}")
        if len(own) == 2 and own[1].start < own[0].end:
            faults.append(f"job {job.job_id} resumes before it has stopped")
        for part in own:
            for cpu in range(part.place, part.place + job.size, log.unit):
                held[cpu].append((part.start, part.end, job.job_id))
        if job.realtime:
            slowdowns.append((own[-1].end - job.submit) / job.run)
    faults += [f"unknown job {job_id}" for job_id in parts]
    for cpu, times in held.items():
        times.sort()
        faults += [f"CPU {cpu}: {a} and {b}" for a, b in pairwise(times) if b[0] < a[1]]
    if slowdowns and limit is not None and sum(slowdowns) / len(slowdowns) > limit + 1e-9:
        faults.append(f"mean slowdown {sum(slowdowns) / len(slowdowns)}, limit {limit}")
    return faults
