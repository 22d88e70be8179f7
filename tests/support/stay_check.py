"""What jobs on places must hold in a simulation, checked from their stays alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from omfs_daemon.simulate.engine.places import Layout
from omfs_daemon.simulate.engine.replan_engine import ReplanStay
from omfs_daemon.simulate.engine.replan_problem import PlacedJobs

_ROUNDING = 1e-6


def faults_of_stays(jobs: PlacedJobs, layout: Layout, stays: Sequence[ReplanStay], writes: bool = True) -> list[str]:
    """What is wrong; empty if nothing is.

    Every job runs whole, after its submission, on the smallest places that hold it; nothing overlaps on any unit;
    real-time jobs are never preempted. A job goes on where its checkpoint was written, and reads it first; it is
    written after the work that it keeps; a job that is killed keeps what its last checkpoint has. Held time is work,
    lost work, reading, and writing.
    """
    faults = []
    own: dict[int, list[ReplanStay]] = defaultdict(list)
    held = defaultdict(list)
    for stay in stays:
        own[stay.job].append(stay)
        for unit in layout.places[stay.place].units:
            held[unit].append((stay.begin, stay.gone, stay.job))
    for job in range(len(jobs.submit)):
        of_job = sorted(own[job], key=lambda stay: stay.begin)
        if not of_job or abs(of_job[-1].kept - jobs.run[job]) > _ROUNDING or of_job[0].done:
            faults.append(f"job {job} does not run whole: {of_job}")
            continue
        if of_job[0].begin < jobs.submit[job]:
            faults.append(f"job {job} starts before it is submitted")
        if jobs.realtime[job] and len(of_job) > 1:
            faults.append(f"job {job} is preempted")
        for before, after in pairwise(of_job):
            if after.begin < before.gone or after.done != before.kept:
                faults.append(f"job {job}: {before}, then {after}")
            if after.done and after.place != before.place:
                faults.append(f"job {job} goes on elsewhere: {before}, then {after}")
        for stay in of_job:
            faults += [f"job {job}: {fault}: {stay}" for fault in _faults_of_stay(jobs, layout, stay, writes)]
    for unit, times in held.items():
        times.sort()
        faults += [f"unit {unit}: {a} and {b}" for a, b in pairwise(times) if b[0] < a[1]]
    return faults


def _faults_of_stay(jobs: PlacedJobs, layout: Layout, stay: ReplanStay, writes: bool) -> list[str]:
    job, faults = stay.job, []
    smallest = min(place.size for place in layout.places if place.size >= jobs.cpus[job])
    if layout.places[stay.place].size != smallest:
        faults.append("a place of another size")
    reading = jobs.seconds[job] if stay.done else 0.0
    if abs(min(stay.begin + reading, stay.end) - stay.works_from) > _ROUNDING:
        faults.append("reads its checkpoint for another time")
    worked = stay.end - stay.works_from
    is_kept = abs(stay.kept - stay.done - worked) <= _ROUNDING
    if not is_kept and stay.kept != stay.done:
        faults.append("keeps other than it has worked")
    is_done = abs(stay.kept - jobs.run[job]) <= _ROUNDING
    if (
        is_kept
        and worked > 0
        and not is_done
        and not (writes and stay.gone - stay.end >= jobs.seconds[job] - _ROUNDING)
    ):
        faults.append("keeps what is not written")
    if not is_kept and stay.gone != stay.end:
        faults.append("writes what it loses")
    return faults
