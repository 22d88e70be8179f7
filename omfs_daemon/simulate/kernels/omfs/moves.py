"""What happens to a job: it joins the queue, starts, is stopped, ends. Keeps all books but those of a pass."""

from __future__ import annotations

from heapq import heappush

import numpy as np

from omfs_daemon.policy.rules import laws
from omfs_daemon.simulate.kernels.compiling import Records
from omfs_daemon.simulate.kernels.compiling import part
from omfs_daemon.simulate.kernels.omfs.job_queue import NOBODY
from omfs_daemon.simulate.kernels.omfs.job_queue import join
from omfs_daemon.simulate.kernels.omfs.job_queue import leave
from omfs_daemon.simulate.kernels.omfs.job_queue import put
from omfs_daemon.simulate.kernels.omfs.kernel_state import DONE
from omfs_daemon.simulate.kernels.omfs.kernel_state import GONE
from omfs_daemon.simulate.kernels.omfs.kernel_state import HEADS
from omfs_daemon.simulate.kernels.omfs.kernel_state import IDLE
from omfs_daemon.simulate.kernels.omfs.kernel_state import IN_LINE
from omfs_daemon.simulate.kernels.omfs.kernel_state import IN_TRANSIT
from omfs_daemon.simulate.kernels.omfs.kernel_state import LAST
from omfs_daemon.simulate.kernels.omfs.kernel_state import LEAVING
from omfs_daemon.simulate.kernels.omfs.kernel_state import NUMBER
from omfs_daemon.simulate.kernels.omfs.kernel_state import PASS
from omfs_daemon.simulate.kernels.omfs.kernel_state import PROMISED
from omfs_daemon.simulate.kernels.omfs.kernel_state import ROOM_MADE
from omfs_daemon.simulate.kernels.omfs.kernel_state import RUNS
from omfs_daemon.simulate.kernels.omfs.kernel_state import STOPPED
from omfs_daemon.simulate.kernels.omfs.kernel_state import URGENT
from omfs_daemon.simulate.kernels.omfs.kernel_state import VICTIM
from omfs_daemon.simulate.kernels.omfs.kernel_state import WAITING
from omfs_daemon.simulate.kernels.omfs.kernel_state import Groups
from omfs_daemon.simulate.kernels.omfs.kernel_state import Notes
from omfs_daemon.simulate.kernels.omfs.kernel_state import State
from omfs_daemon.simulate.kernels.omfs.kernel_state import Terms
from omfs_daemon.simulate.kernels.omfs.kernel_state import Tree
from omfs_daemon.simulate.kernels.omfs.kernel_state import path_of
from omfs_daemon.simulate.engine.outcome import Use
from omfs_daemon.simulate.workload.workload import Ints

END, STEP, BACK, WAKE = range(4)
"""What comes due, in the order in which it is done: a job ends; a stop comes to its next step; a job that is brought
back computes again; a job may be stopped from now on."""

WORK, LOST, STOP, RESUME = int(Use.WORK), int(Use.LOST), int(Use.STOP), int(Use.RESUME)


@part
def group_of(jobs: Records, job: int) -> int:
    """The group in which it waits in line."""
    return int(jobs[job].held_group if jobs[job].is_held else jobs[job].group)


@part
def arrive(jobs: Records, tree: Tree, groups: Groups, s: State, job: int) -> None:
    """It joins the line; one that is never stopped counts at once if it fits, or else is held (policy/gating.py)."""
    leaf = jobs[job].leaf
    jobs[job].state = IN_LINE
    s.tally[WAITING] += 1
    if jobs[job].urgent:
        s.tally[URGENT] += 1
    else:
        s.waiting_at[leaf] += 1
    if jobs[job].fixed:
        if laws.admits_fixed(s.fixed, tree.entitled, path_of(tree, leaf), jobs[job].cpus):
            laws.add(s.fixed, path_of(tree, leaf), jobs[job].cpus)
        else:
            jobs[job].is_held = True
    if not jobs[job].urgent and not jobs[job].is_held:
        put(s.line, job, jobs[job].cpus)
    join(jobs, groups, group_of(jobs, job), job)


@part
def leave_queue(jobs: Records, tree: Tree, groups: Groups, s: State, job: int) -> None:
    """It starts, or others are being stopped for it."""
    if jobs[job].state == STOPPED:
        put(s.heads, job, NOBODY)
        s.tally[HEADS] -= 1
        return
    s.tally[WAITING] -= 1
    if jobs[job].urgent:
        s.tally[URGENT] -= 1
    else:
        s.waiting_at[jobs[job].leaf] -= 1
        if jobs[job].is_held:
            laws.add(s.fixed, path_of(tree, jobs[job].leaf), jobs[job].cpus)
        else:
            put(s.line, job, NOBODY)
    leave(jobs, groups, group_of(jobs, job), job)


@part
def begin(jobs: Records, terms: Terms, s: State, notes: Notes, job: int, now: float) -> None:
    """It starts or runs on; CPUs are counted by who calls."""
    is_back = jobs[job].last_stop >= 0
    if not is_back:
        jobs[job].start = now
    s.tally[IDLE] -= jobs[job].cpus
    jobs[job].runs_since = now
    jobs[job].works_from = now + jobs[job].resume if is_back and jobs[job].keeps else now
    jobs[job].turn += 1
    jobs[job].state = RUNS
    jobs[job].started_in = s.tally[PASS]
    turn = jobs[job].turn
    if not (is_back and jobs[job].pinned):
        jobs[job].since = now
        _line_up(jobs, s, job)
    heappush(notes.due, (jobs[job].works_from + max(0.0, jobs[job].run - jobs[job].done), END, job, turn))
    if is_back and jobs[job].pinned:
        if jobs[job].works_from > now:
            heappush(notes.due, (jobs[job].works_from, BACK, job, turn))
        else:
            give_area_back(jobs, s, job)
    if jobs[job].stoppable:
        _wake(jobs, terms, s, notes, job, now)


@part
def _wake(jobs: Records, terms: Terms, s: State, notes: Notes, job: int, now: float) -> None:
    """Look again when it has run for its quantum, and when it has a stop left in the hour again."""
    mature = laws.matures_at(now, terms.quantum)
    if now < mature < np.inf:
        heappush(notes.due, (mature, WAKE, job, jobs[job].turn))
    entry, counted = jobs[job].last_stop, 1
    while entry >= 0 and counted < terms.stops_per_hour:
        entry = notes.log[entry][3]
        counted += 1
    if entry >= 0 and terms.stops_per_hour > 0:
        allowed = laws.matures_at(notes.log[entry][0], laws.HOUR)
        if allowed > now:
            heappush(notes.due, (allowed, WAKE, job, jobs[job].turn))


@part
def end(jobs: Records, tree: Tree, s: State, notes: Notes, job: int, now: float) -> None:
    """It is done; also one that is about to be stopped, if it is before the signal comes."""
    cpus = jobs[job].cpus
    s.tally[IDLE] += cpus
    if jobs[job].state == VICTIM:
        s.tally[LEAVING] -= cpus
        give_area_back(jobs, s, job)
        one_less(jobs, s, notes, jobs[job].beneficiary)
    else:
        laws.add(s.used, path_of(tree, jobs[job].leaf), -cpus)
    if jobs[job].fixed:
        laws.add(s.fixed, path_of(tree, jobs[job].leaf), -cpus)
    jobs[job].state = DONE
    jobs[job].finish = now
    jobs[job].turn += 1
    _step_out(jobs, s, job)
    note(notes, job, jobs[job].runs_since, jobs[job].works_from, RESUME)
    note(notes, job, jobs[job].works_from, now, WORK)


@part
def decide_stop(
    jobs: Records, tree: Tree, terms: Terms, s: State, notes: Notes, job: int, victims: Ints, now: float
) -> None:
    """These will be stopped for this job, which counts as running from now on."""
    jobs[job].state = IN_TRANSIT
    s.tally[PROMISED] += jobs[job].cpus
    laws.add(s.used, path_of(tree, jobs[job].leaf), jobs[job].cpus)
    jobs[job].number = s.tally[NUMBER]
    s.tally[NUMBER] += 1
    jobs[job].signal = np.nan
    jobs[job].left = len(victims)
    jobs[job].first_victim = -1
    for at in range(len(victims) - 1, -1, -1):
        jobs[victims[at]].next_victim = jobs[job].first_victim
        jobs[job].first_victim = victims[at]
    for victim in victims:
        jobs[victim].state = VICTIM
        jobs[victim].beneficiary = job
        s.tally[LEAVING] += jobs[victim].cpus
        laws.add(s.used, path_of(tree, jobs[victim].leaf), -jobs[victim].cpus)
        notes.log.append((now, victim, job, jobs[victim].last_stop))
        jobs[victim].last_stop = len(notes.log) - 1
    heappush(notes.due, (now + terms.latency, STEP, job, jobs[job].number))


@part
def break_off(jobs: Records, s: State, notes: Notes, job: int, now: float) -> None:
    """The signal reaches a victim: it computes no more."""
    if jobs[job].works_from > now:
        give_area_back(jobs, s, job)
    worked = jobs[job].done + max(0.0, now - jobs[job].works_from)
    note(notes, job, jobs[job].runs_since, min(now, jobs[job].works_from), RESUME)
    note(notes, job, jobs[job].works_from, now, WORK if jobs[job].keeps else LOST)
    jobs[job].done = worked if jobs[job].keeps else 0.0
    jobs[job].works_from = np.inf
    jobs[job].turn += 1
    jobs[job].stops += 1


@part
def vanish(jobs: Records, s: State, notes: Notes, job: int, signal: float, now: float) -> None:
    """A victim holds its CPUs no longer."""
    note(notes, job, signal, now, STOP)
    s.tally[IDLE] += jobs[job].cpus
    s.tally[LEAVING] -= jobs[job].cpus
    jobs[job].state = GONE
    if not jobs[job].pinned:
        _step_out(jobs, s, job)
    one_less(jobs, s, notes, jobs[job].beneficiary)


@part
def one_less(jobs: Records, s: State, notes: Notes, beneficiary: int) -> None:
    """The last of its victims makes the beneficiary ready: those that were decided first come first."""
    jobs[beneficiary].left -= 1
    if jobs[beneficiary].left > 0:
        return
    notes.ready.append(beneficiary)
    at = len(notes.ready) - 1
    while at > 0 and jobs[notes.ready[at - 1]].number > jobs[beneficiary].number:
        notes.ready[at] = notes.ready[at - 1]
        at -= 1
    notes.ready[at] = beneficiary


@part
def settle(jobs: Records, terms: Terms, s: State, notes: Notes, now: float) -> None:
    """Beneficiaries start whose victims are gone and whose CPUs are idle; then the victims wait as stopped jobs."""
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
            if jobs[victim].state == GONE:
                jobs[victim].state = STOPPED
                put(s.heads, victim, jobs[victim].cpus)
                s.tally[HEADS] += 1
            victim = jobs[victim].next_victim
    while len(notes.ready) > kept:
        notes.ready.pop()


@part
def give_area_back(jobs: Records, s: State, job: int) -> None:
    if jobs[job].size > 0:
        s.area[0] += jobs[job].size
        s.tally[ROOM_MADE] += 1


@part
def note(notes: Notes, job: int, since: float, until: float, use: int) -> None:
    if until > since:
        notes.stretches.append((job, since, until, use))


@part
def _line_up(jobs: Records, s: State, job: int) -> None:
    """Among the running jobs, by start and then by id; suspended ones keep their places."""
    later, earlier = -1, s.tally[LAST]
    while earlier >= 0 and (jobs[earlier].since, earlier) > (jobs[job].since, job):
        later, earlier = earlier, jobs[earlier].earlier
    jobs[job].earlier, jobs[job].later = earlier, later
    if earlier >= 0:
        jobs[earlier].later = job
    if later >= 0:
        jobs[later].earlier = job
    else:
        s.tally[LAST] = job


@part
def _step_out(jobs: Records, s: State, job: int) -> None:
    earlier, later = jobs[job].earlier, jobs[job].later
    if earlier >= 0:
        jobs[earlier].later = later
    if later >= 0:
        jobs[later].earlier = earlier
    else:
        s.tally[LAST] = earlier
