"""What happens to a job: it joins the queue, starts, is preempted, ends. Updates all counts but those of a pass."""

from __future__ import annotations

from heapq import heappush

import numpy as np

from omfs_daemon.accounting.arrays import Ints
from omfs_daemon.policy.rules import laws
from omfs_daemon.simulate.engine.outcome import Use
from omfs_daemon.simulate.kernels.compiling import Records, part
from omfs_daemon.simulate.kernels.omfs.job_queue import NO_JOB, join, leave, set_waiting
from omfs_daemon.simulate.kernels.omfs.kernel_state import (
    AREA_FREED,
    DONE,
    FREED,
    IDLE,
    LAST_STARTED,
    LEAVING,
    NEXT_NUMBER,
    PASS,
    PREEMPTED,
    PREEMPTED_COUNT,
    PREEMPTOR,
    PROMISED,
    QUEUED,
    QUEUED_COUNT,
    RUNNING,
    URGENT_COUNT,
    VICTIM,
    Groups,
    KernelState,
    Notes,
    Terms,
    Tree,
    path_of,
)
from omfs_daemon.simulate.kernels.run_history import NOT_LEARNED, learn_run, predicted

END, STEP, RESUMED, MATURES = range(4)
"""Events, in the order in which they are processed: a job ends; a preemption reaches its next step; a resumed job
computes again; a job becomes preemptible."""

WORK, LOST, PREEMPTION, RESUME = int(Use.WORK), int(Use.LOST), int(Use.PREEMPTION), int(Use.RESUME)


@part
def group_of(jobs: Records, job: int) -> int:
    """The group in which it waits in the queue."""
    return int(jobs[job].held_group if jobs[job].is_held else jobs[job].group)


@part
def arrive(jobs: Records, tree: Tree, groups: Groups, s: KernelState, job: int) -> None:
    """It joins the queue; a non-preemptible job counts at once if it fits, else is held (policy/admission_holds.py)."""
    leaf = jobs[job].leaf
    jobs[job].state = QUEUED
    if s.history.rule != NOT_LEARNED:
        jobs[job].predicted = predicted(s.history, job)
    s.tally[QUEUED_COUNT] += 1
    if jobs[job].urgent:
        s.tally[URGENT_COUNT] += 1
    else:
        s.waiting_at[leaf] += 1
    if jobs[job].non_preemptible:
        if laws.admits_non_preemptible(s.non_preemptible, tree.entitled, path_of(tree, leaf), jobs[job].cpus):
            laws.add_cpus(s.non_preemptible, path_of(tree, leaf), jobs[job].cpus)
        else:
            jobs[job].is_held = True
    if not jobs[job].urgent and not jobs[job].is_held:
        set_waiting(s.queued, job, jobs[job].cpus)
    join(jobs, groups, group_of(jobs, job), job)


@part
def leave_queue(jobs: Records, tree: Tree, groups: Groups, s: KernelState, job: int) -> None:
    """It starts, or others are being preempted for it."""
    if jobs[job].state == PREEMPTED:
        set_waiting(s.preempted, job, NO_JOB)
        s.tally[PREEMPTED_COUNT] -= 1
        return
    s.tally[QUEUED_COUNT] -= 1
    if jobs[job].urgent:
        s.tally[URGENT_COUNT] -= 1
    else:
        s.waiting_at[jobs[job].leaf] -= 1
        if jobs[job].is_held:
            laws.add_cpus(s.non_preemptible, path_of(tree, jobs[job].leaf), jobs[job].cpus)
        else:
            set_waiting(s.queued, job, NO_JOB)
    leave(jobs, groups, group_of(jobs, job), job)


@part
def begin(jobs: Records, terms: Terms, s: KernelState, notes: Notes, job: int, now: float) -> None:
    """It starts or resumes; the caller counts the CPUs."""
    resumes = jobs[job].last_preemption >= 0
    if not resumes:
        jobs[job].start = now
    s.tally[IDLE] -= jobs[job].cpus
    jobs[job].runs_since = now
    jobs[job].works_from = now + jobs[job].resume if resumes and jobs[job].keeps else now
    jobs[job].turn += 1
    jobs[job].state = RUNNING
    jobs[job].started_in = s.tally[PASS]
    turn = jobs[job].turn
    if not (resumes and jobs[job].pinned):
        jobs[job].since = now
        _insert_by_start(jobs, s, job)
    heappush(notes.due, (jobs[job].works_from + max(0.0, jobs[job].run - jobs[job].done), END, job, turn))
    if resumes and jobs[job].pinned:
        if jobs[job].works_from > now:
            heappush(notes.due, (jobs[job].works_from, RESUMED, job, turn))
        else:
            free_area(jobs, s, job)
    if jobs[job].preemptible:
        _note_maturity(jobs, terms, s, notes, job, now)


@part
def _note_maturity(jobs: Records, terms: Terms, s: KernelState, notes: Notes, job: int, now: float) -> None:
    """Schedule a pass for when it has run for its quantum, and for when the hourly limit permits a preemption."""
    mature = laws.matures_at(now, terms.quantum)
    if now < mature < np.inf:
        heappush(notes.due, (mature, MATURES, job, jobs[job].turn))
    entry, counted = jobs[job].last_preemption, 1
    while entry >= 0 and counted < terms.preemptions_per_hour:
        entry = notes.log[entry][3]
        counted += 1
    if entry >= 0 and terms.preemptions_per_hour > 0:
        allowed = laws.matures_at(notes.log[entry][0], laws.HOUR)
        if allowed > now:
            heappush(notes.due, (allowed, MATURES, job, jobs[job].turn))


@part
def end_job(jobs: Records, tree: Tree, s: KernelState, notes: Notes, job: int, now: float) -> None:
    """It is done; also a victim that ends before the signal arrives."""
    cpus = jobs[job].cpus
    s.tally[IDLE] += cpus
    if jobs[job].state == VICTIM:
        s.tally[LEAVING] -= cpus
        free_area(jobs, s, job)
        count_freed(jobs, s, notes, jobs[job].preemptor)
    else:
        laws.add_cpus(s.used, path_of(tree, jobs[job].leaf), -cpus)
    if jobs[job].non_preemptible:
        laws.add_cpus(s.non_preemptible, path_of(tree, jobs[job].leaf), -cpus)
    jobs[job].state = DONE
    jobs[job].finish = now
    learn_run(s.history, job, jobs[job].run)
    jobs[job].turn += 1
    _remove_by_start(jobs, s, job)
    note_segment(notes, job, jobs[job].runs_since, jobs[job].works_from, RESUME)
    note_segment(notes, job, jobs[job].works_from, now, WORK)


@part
def decide_preemption(
    jobs: Records, tree: Tree, terms: Terms, s: KernelState, notes: Notes, job: int, victims: Ints, now: float
) -> None:
    """These will be preempted for this job, which counts as running from now on."""
    jobs[job].state = PREEMPTOR
    s.tally[PROMISED] += jobs[job].cpus
    laws.add_cpus(s.used, path_of(tree, jobs[job].leaf), jobs[job].cpus)
    jobs[job].number = s.tally[NEXT_NUMBER]
    s.tally[NEXT_NUMBER] += 1
    jobs[job].signal = np.nan
    jobs[job].left = len(victims)
    jobs[job].first_victim = -1
    for at in range(len(victims) - 1, -1, -1):
        jobs[victims[at]].next_victim = jobs[job].first_victim
        jobs[job].first_victim = victims[at]
    for victim in victims:
        jobs[victim].state = VICTIM
        jobs[victim].preemptor = job
        s.tally[LEAVING] += jobs[victim].cpus
        laws.add_cpus(s.used, path_of(tree, jobs[victim].leaf), -jobs[victim].cpus)
        notes.log.append((now, victim, job, jobs[victim].last_preemption))
        jobs[victim].last_preemption = len(notes.log) - 1
    heappush(notes.due, (now + terms.latency, STEP, job, jobs[job].number))


@part
def interrupt(jobs: Records, s: KernelState, notes: Notes, job: int, now: float) -> None:
    """The signal reaches a victim: it computes no more."""
    if jobs[job].works_from > now:
        free_area(jobs, s, job)
    worked = jobs[job].done + max(0.0, now - jobs[job].works_from)
    note_segment(notes, job, jobs[job].runs_since, min(now, jobs[job].works_from), RESUME)
    note_segment(notes, job, jobs[job].works_from, now, WORK if jobs[job].keeps else LOST)
    jobs[job].done = worked if jobs[job].keeps else 0.0
    jobs[job].works_from = np.inf
    jobs[job].turn += 1
    jobs[job].preemptions += 1


@part
def free_cpus(jobs: Records, s: KernelState, notes: Notes, job: int, signal: float, now: float) -> None:
    """A victim holds its CPUs no longer."""
    note_segment(notes, job, signal, now, PREEMPTION)
    s.tally[IDLE] += jobs[job].cpus
    s.tally[LEAVING] -= jobs[job].cpus
    jobs[job].state = FREED
    if not jobs[job].pinned:
        _remove_by_start(jobs, s, job)
    count_freed(jobs, s, notes, jobs[job].preemptor)


@part
def count_freed(jobs: Records, s: KernelState, notes: Notes, preemptor: int) -> None:
    """The last of its victims makes the preemptor ready: those that were decided first come first."""
    jobs[preemptor].left -= 1
    if jobs[preemptor].left > 0:
        return
    notes.ready.append(preemptor)
    at = len(notes.ready) - 1
    while at > 0 and jobs[notes.ready[at - 1]].number > jobs[preemptor].number:
        notes.ready[at] = notes.ready[at - 1]
        at -= 1
    notes.ready[at] = preemptor


@part
def start_preemptors(jobs: Records, terms: Terms, s: KernelState, notes: Notes, now: float) -> None:
    """Preemptors start whose victims are gone and whose CPUs are idle; then the victims wait as preempted jobs."""
    kept = 0
    for at in range(len(notes.ready)):
        job = notes.ready[at]
        if jobs[job].cpus > s.tally[IDLE]:
            notes.ready[kept] = job
            kept += 1
            continue
        s.tally[PROMISED] -= jobs[job].cpus
        jobs[job].number = -1
        begin(jobs, terms, s, notes, job, now)
        victim = jobs[job].first_victim
        while victim >= 0:
            if jobs[victim].state == FREED:
                jobs[victim].state = PREEMPTED
                set_waiting(s.preempted, victim, jobs[victim].cpus)
                s.tally[PREEMPTED_COUNT] += 1
            victim = jobs[victim].next_victim
    while len(notes.ready) > kept:
        notes.ready.pop()


@part
def free_area(jobs: Records, s: KernelState, job: int) -> None:
    if jobs[job].size > 0:
        s.area[0] += jobs[job].size
        s.tally[AREA_FREED] += 1


@part
def note_segment(notes: Notes, job: int, since: float, until: float, use: int) -> None:
    if until > since:
        notes.segments.append((job, since, until, use))


@part
def _insert_by_start(jobs: Records, s: KernelState, job: int) -> None:
    """Among the running jobs, by start and then by id; suspended ones keep their places."""
    later, earlier = -1, s.tally[LAST_STARTED]
    while earlier >= 0 and (jobs[earlier].since, earlier) > (jobs[job].since, job):
        later, earlier = earlier, jobs[earlier].earlier
    jobs[job].earlier, jobs[job].later = earlier, later
    if earlier >= 0:
        jobs[earlier].later = job
    if later >= 0:
        jobs[later].earlier = job
    else:
        s.tally[LAST_STARTED] = job


@part
def _remove_by_start(jobs: Records, s: KernelState, job: int) -> None:
    earlier, later = jobs[job].earlier, jobs[job].later
    if earlier >= 0:
        jobs[earlier].later = later
    if later >= 0:
        jobs[later].earlier = earlier
    else:
        s.tally[LAST_STARTED] = earlier
