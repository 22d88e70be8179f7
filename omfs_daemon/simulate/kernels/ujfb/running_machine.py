"""The state of a UJFB simulation: a machine on which jobs run, are preempted and resume."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.kernels.compiling import Records, part
from omfs_daemon.simulate.kernels.reservations import (
    Reservations,
    add_job,
    give_back,
    new_reservations,
    reserve_first,
    take,
)
from omfs_daemon.simulate.kernels.run_history import RunHistory, learn_run
from omfs_daemon.simulate.kernels.running import Ends, first_end, no_ends, pop_end, push_end, put_off_within
from omfs_daemon.simulate.kernels.ujfb.allocation_log import RESUME, WORK, Log, log_segment
from omfs_daemon.simulate.kernels.ujfb.unit_owners import NOBODY, Units, end_loans, new_units, occupy, vacate

UNSEEN, WAITING, RUNNING, PREEMPTING, PREEMPTED, DONE = 0, 1, 2, 3, 4, 5


JOB = np.dtype(
    [(name, np.float64) for name in ("submit", "run", "estimate", "preemption", "resume", "queueing", "size")]
    + [(name, np.float64) for name in ("since", "computing", "done", "left", "planned", "until", "ends", "gone")]
    + [(name, np.float64) for name in ("start", "finish", "predicted", "turn")]
    + [(name, np.int64) for name in ("cpus", "state", "preemptions", "place")]
    + [(name, np.bool_) for name in ("urgent", "preemptible", "keeps", "pinned")]
)
"""A job. What is known of it from the start is named as in ``Jobs`` and ``SimulatedCosts``; besides:

since, computing  when its present segment began, and from when on it computes in it
done, left        seconds of work that are safe, and that are still expected to be needed (of a preempted job)
planned, until    when it should be done by its estimate, and until when its own units are reserved
ends, gone        when it will be done if it is not preempted; when it has freed its CPUs
place             its place among those that may be preempted
predicted         seconds that it is predicted to run, where that is learned
turn              of those that may be preempted whoever has the greatest is preempted first
"""


class RunningMachine(NamedTuple):
    """Everything that changes.

    jobs      records of ``JOB``
    finishing, overdue, releases  when jobs will be done, pass their expected end, and are gone after a preemption
    victims   the running jobs that may be preempted
    swapped_out  swapped-out jobs
    urgent_queue  the urgent jobs that wait
    history   what run times are predicted from
    size      how many are in victims, swapped_out, urgent_queue; and CPUs of all victims
    swapped   bytes in the swap area (one entry), of ``area``
    latency   seconds before any preemption begins
    """

    jobs: Records
    reservations: Reservations
    units: Units
    finishing: Ends
    overdue: Ends
    releases: Ends
    victims: Ints
    swapped_out: Ints
    urgent_queue: Ints
    size: Ints
    swapped: Floats
    history: RunHistory
    area: float
    latency: float


VICTIMS, SWAPPED_OUT, URGENT_QUEUE, CPUS = 0, 1, 2, 3


@part
def new_machine(jobs: Records, capacity: int, area: float, latency: float, history: RunHistory) -> RunningMachine:
    """Nobody has come yet."""
    count = len(jobs)
    reservations = new_reservations(capacity, count)
    for job in range(count):
        # Urgent jobs give way last, then preempted ones (see release), then all others; among equals the older ones.
        rank = job - 2 * count if jobs[job].urgent else job
        add_job(reservations, job, jobs[job].cpus, jobs[job].estimate, rank)
        jobs[job].start = jobs[job].finish = np.nan
    return RunningMachine(
        jobs,
        reservations,
        new_units(capacity, count),
        no_ends(2 * count + 16),
        no_ends(2 * count + 16),
        no_ends(count + 1),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.zeros(4, np.int64),
        np.zeros(1),
        history,
        area,
        latency,
    )


# -- ends ------------------------------------------------------------------------------------------------
@part
def end_done_jobs(machine: RunningMachine, log: Log, now: float) -> None:
    """Jobs that are done go."""
    while first_end(machine.finishing) <= now:
        time = first_end(machine.finishing)
        job = pop_end(machine.finishing)
        record = machine.jobs[job]
        if record.state != RUNNING or record.ends != time:
            continue
        log_segments(machine, log, job, now, WORK)
        record.state, record.finish = DONE, now
        learn_run(machine.history, job, record.run)
        remove_victim(machine, job)
        end_loans(machine.units, job)
        give_back(machine.reservations, now, record.until, vacate(machine.units, job))


@part
def log_segments(machine: RunningMachine, log: Log, job: int, now: float, use: int) -> None:
    """The present segment of a running job is over: it resumed first, then it computed."""
    record = machine.jobs[job]
    computing = min(record.computing, now)
    log_segment(log, job, record.since, computing, RESUME)
    log_segment(log, job, computing, now, use)


@part
def release(machine: RunningMachine, now: float) -> None:
    """Killed and checkpointed jobs are gone: what the urgent job does not need of theirs is free, and they wait at the
    head of the regular queue."""
    while first_end(machine.releases) <= now:
        job = pop_end(machine.releases)
        record = machine.jobs[job]
        give_back(machine.reservations, now, record.until, vacate(machine.units, job))
        record.state = WAITING
        machine.reservations.entries[job].expected = record.resume + record.left
        if machine.reservations.entries[job].rank >= 0:
            machine.reservations.entries[job].rank -= len(machine.jobs)
        reserve_first(machine.reservations, job, now)


@part
def correct_running(machine: RunningMachine, now: float) -> None:
    """Jobs that should have ended and have not are expected to end later."""
    while first_end(machine.overdue) <= now:
        time = first_end(machine.overdue)
        job = pop_end(machine.overdue)
        record = machine.jobs[job]
        if record.state != RUNNING or record.until != time or record.ends <= now:
            continue
        until = expected_end(machine, job, now)
        take(machine.reservations, time, until, machine.units.of[job].owned, now)
        record.until = until
        push_end(machine.overdue, until, job)
        unit = machine.units.of[job].first_borrowed
        while unit != NOBODY:
            keep_until(machine, machine.units.all[unit].home, until, now)
            unit = machine.units.all[unit].next_borrowed


@part
def expected_end(machine: RunningMachine, job: int, now: float) -> float:
    """When a running job is expected to be done; at its limit at the latest where run times are learned."""
    record = machine.jobs[job]
    latest = record.computing + (machine.history.limit[job] - record.done)
    return put_off_within(record.planned, latest, now)


# -- starts ----------------------------------------------------------------------------------------------
@part
def start_job(machine: RunningMachine, job: int, now: float) -> None:
    """A job whose reserved start has come."""
    record = machine.jobs[job]
    if np.isnan(record.start):
        record.start = now
    if machine.reservations.entries[job].expected == 0.0:
        record.state, record.finish = DONE, now  # of no length, it holds nothing for any time
        learn_run(machine.history, job, record.run)
        return
    occupy(machine.units, job, record.cpus)
    resume = record.resume if record.preemptions else 0.0
    set_running(machine, job, now, now + resume, now + machine.reservations.entries[job].expected)


@part
def set_running(machine: RunningMachine, job: int, now: float, computing: float, until: float) -> None:
    """The job runs, computes from a time on, and is expected to be done at ``until``, for which it is reserved."""
    record = machine.jobs[job]
    record.state, record.since, record.computing = RUNNING, now, computing
    record.planned = record.until = until
    # With exact estimates both ends must be the same number, not only nearly so.
    exact = record.run == record.estimate
    record.ends = until if exact else computing + (record.run - record.done)
    _make_place(machine, machine.finishing)
    push_end(machine.finishing, record.ends, job)
    if record.ends > until:
        _make_place(machine, machine.overdue)
        push_end(machine.overdue, until, job)
    if record.preemptible:
        record.place = machine.size[VICTIMS]
        machine.victims[machine.size[VICTIMS]] = job
        machine.size[VICTIMS] += 1
        machine.size[CPUS] += record.cpus


@part
def _make_place(machine: RunningMachine, heap: Ends) -> None:
    """If a heap is full, remove entries that preemptions have made void: each preemption left one."""
    count = heap.size[0]
    if count < len(heap.time):
        return
    times, jobs = heap.time.copy(), heap.job.copy()
    heap.size[0] = 0
    for at in range(count):
        record = machine.jobs[jobs[at]]
        if record.state == RUNNING and (times[at] == record.ends or times[at] == record.until):
            push_end(heap, times[at], jobs[at])


@part
def remove_victim(machine: RunningMachine, job: int) -> None:
    """The job can no longer be preempted."""
    record = machine.jobs[job]
    at = record.place
    if not record.preemptible or at >= machine.size[VICTIMS] or machine.victims[at] != job:
        return
    machine.size[VICTIMS] -= 1
    last = machine.victims[machine.size[VICTIMS]]
    machine.victims[at], machine.jobs[last].place = last, at
    machine.size[CPUS] -= record.cpus


@part
def resume_swapped_out(machine: RunningMachine, now: float) -> None:
    """Swapped-out jobs go on whose own units nobody uses any more."""
    kept = 0
    for at in range(machine.size[SWAPPED_OUT]):
        job = machine.swapped_out[at]
        record = machine.jobs[job]
        if machine.units.of[job].lent or record.gone > now:
            machine.swapped_out[kept] = job
            kept += 1
            continue
        machine.swapped[0] -= record.size
        computing = now + record.resume
        until = computing + record.left
        set_until(machine, job, until, now)
        set_running(machine, job, now, computing, until)
    machine.size[SWAPPED_OUT] = kept


@part
def set_until(machine: RunningMachine, job: int, until: float, now: float) -> None:
    """Reserve the job's own units until then."""
    record = machine.jobs[job]
    if until > record.until:
        take(machine.reservations, max(now, record.until), until, machine.units.of[job].owned, now)
    else:
        give_back(machine.reservations, until, record.until, machine.units.of[job].owned)
    record.until = until


@part
def keep_until(machine: RunningMachine, job: int, borrowed_until: float, now: float) -> None:
    """A swapped-out job keeps its units while they are lent, and then as long as it still needs."""
    record = machine.jobs[job]
    until = borrowed_until + record.resume + record.left
    if until > record.until:
        set_until(machine, job, until, now)
