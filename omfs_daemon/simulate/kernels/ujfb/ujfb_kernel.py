"""UJFB (Agung et al. 2021, section IV-B): urgent jobs first, by preempting regular ones; these are backfilled."""

from __future__ import annotations

import numpy as np

from omfs_daemon.simulate.kernels.compiling import Records, kernel, part
from omfs_daemon.simulate.kernels.profile import advance, change, earliest, free_at
from omfs_daemon.simulate.kernels.reservations import compress, next_due, next_start, reserve
from omfs_daemon.simulate.kernels.run_history import NOT_LEARNED, RunHistory, predicted
from omfs_daemon.simulate.kernels.running import first_end
from omfs_daemon.simulate.kernels.ujfb.allocation_log import Log, new_log, with_room
from omfs_daemon.simulate.kernels.ujfb.running_machine import (
    SWAPPED_OUT,
    URGENT_QUEUE,
    WAITING,
    RunningMachine,
    correct_running,
    end_done_jobs,
    new_machine,
    release,
    resume_swapped_out,
    start_job,
)
from omfs_daemon.simulate.kernels.ujfb.unit_owners import NOBODY
from omfs_daemon.simulate.kernels.ujfb.urgent_placement import leave_urgent_queue, serve_urgent
from omfs_daemon.simulate.kernels.waiting import WaitingQueue, dequeue, empty_queue, enqueue, next_fitting, pack


@kernel
def ujfb_kernel(
    jobs: Records, capacity: int, area: float, latency: float, by_slowdown: bool, easy: bool, history: RunHistory,
    for_victims_only: bool,
) -> Log:  # fmt: skip
    """Start, finish (nan for jobs wider than the machine) and preemptions are written to ``jobs``, records of ``JOB``;
    returns what held CPUs when.

    by_slowdown  the urgent queue is in order of the slowdown reached so far, instead of as they came
    easy         of the regular jobs only the first one has a reservation, instead of every one (the paper's)
    for_victims_only  what is learned orders victims, and estimates stay as they are given
    """
    count = len(jobs)
    machine = new_machine(jobs, capacity, area, latency, history)
    log = new_log(count + 16)
    queue, head = empty_queue(count if easy else 0), NOBODY
    arrived = 0
    while True:
        now = min(
            first_end(machine.finishing),
            first_end(machine.overdue),
            first_end(machine.releases),
            next_start(machine.reservations),
        )
        if arrived < count:
            now = min(now, jobs[arrived].submit)
        if now == np.inf:
            return log
        # A job that runs ends, or is preempted: at most three segments.
        log = with_room(log, 3 * machine.finishing.size[0])
        advance(machine.reservations.profile, now)
        end_done_jobs(machine, log, now)
        release(machine, now)
        correct_running(machine, now)
        newcomer = arrived
        while arrived < count and jobs[arrived].submit <= now:
            if history.rule != NOT_LEARNED:
                jobs[arrived].predicted = predicted(history, arrived)
                if not for_victims_only:
                    jobs[arrived].estimate = jobs[arrived].predicted
                    machine.reservations.entries[arrived].expected = jobs[arrived].predicted
            if jobs[arrived].urgent and jobs[arrived].cpus <= capacity:
                jobs[arrived].state = WAITING
                machine.urgent_queue[machine.size[URGENT_QUEUE]] = arrived
                machine.size[URGENT_QUEUE] += 1
            arrived += 1
        if machine.size[URGENT_QUEUE]:
            serve_urgent(machine, log, now, by_slowdown)
        if machine.size[SWAPPED_OUT]:
            resume_swapped_out(machine, now)
        compress(machine.reservations, now)
        for job in range(newcomer, arrived):
            if not jobs[job].urgent and jobs[job].cpus <= capacity:
                jobs[job].state = WAITING
                if easy:
                    enqueue(queue, job, jobs[job].cpus, jobs[job].estimate)
                else:
                    reserve(machine.reservations, job, now)
        _start_due(machine, now)
        if easy:
            head = _next_head(machine, queue, head, now)
            _backfill(machine, queue, head, now)


@part
def _start_due(machine: RunningMachine, now: float) -> None:
    """Jobs start whose reserved start has come."""
    job = next_due(machine.reservations, now)
    while job >= 0:
        if machine.jobs[job].urgent:
            leave_urgent_queue(machine, job)
        start_job(machine, job, now)
        job = next_due(machine.reservations, now)


@part
def _next_head(machine: RunningMachine, queue: WaitingQueue, head: int, now: float) -> int:
    """Start jobs from the front of the queue until one does not fit; that one is the head, and gets a reservation."""
    while head == NOBODY or machine.jobs[head].state != WAITING:
        if queue.alive[0] == 0:
            return NOBODY
        slot = queue.first[0]
        head = queue.job[slot]
        dequeue(queue, slot)
        reserve(machine.reservations, head, now)
        if next_due(machine.reservations, now) == head:
            start_job(machine, head, now)
    return head


@part
def _backfill(machine: RunningMachine, queue: WaitingQueue, head: int, now: float) -> None:
    """Start all other jobs that disturb no reservation, in order of the queue."""
    if head == NOBODY:
        return
    pack(queue)
    profile, slot = machine.reservations.profile, queue.first[0]
    by = machine.reservations.entries[head].reserved
    while True:
        slot = next_fitting(queue, slot, free_at(profile, now), free_at(profile, by), now, by)
        if slot == queue.end[0]:
            return
        job = queue.job[slot]
        cpus, seconds = machine.jobs[job].cpus, machine.jobs[job].estimate
        if earliest(profile, cpus, seconds, now, np.nextafter(now, np.inf), np.inf) == now:
            change(profile, now, now + seconds, -cpus)
            dequeue(queue, slot)
            start_job(machine, job, now)
        slot += 1
