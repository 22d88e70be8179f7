"""How urgent jobs get their CPUs (Agung et al. 2021, section IV-B).

An urgent job takes what is free, whatever is reserved there; then what swapped-out jobs keep and do not use; then it
preempts regular jobs, longest remaining first, none needlessly. If all of that is not enough, it waits in the urgent
queue, before all regular jobs. Urgent jobs are never preempted.
"""

from __future__ import annotations

import numpy as np

from omfs_daemon.accounting.arrays import Ints
from omfs_daemon.simulate.engine.preemption_delay import preemption_seconds
from omfs_daemon.simulate.kernels.compiling import part
from omfs_daemon.simulate.kernels.reservations import give_back, reserve_first, take, withdraw
from omfs_daemon.simulate.kernels.run_history import NOT_LEARNED
from omfs_daemon.simulate.kernels.running import expected_remaining, push_end
from omfs_daemon.simulate.kernels.ujfb.allocation_log import LOST, PREEMPTION, WORK, Log, log_segment
from omfs_daemon.simulate.kernels.ujfb.running_machine import (
    CPUS,
    PREEMPTED,
    PREEMPTING,
    SWAPPED_OUT,
    URGENT_QUEUE,
    VICTIMS,
    RunningMachine,
    expected_end,
    keep_until,
    log_segments,
    remove_victim,
    set_running,
    set_until,
    start_job,
)
from omfs_daemon.simulate.kernels.ujfb.unit_owners import NOBODY, hand_over, lend, occupy


@part
def leave_urgent_queue(machine: RunningMachine, job: int) -> None:
    """The urgent job waits no longer."""
    kept = 0
    for at in range(machine.size[URGENT_QUEUE]):
        if machine.urgent_queue[at] != job:
            machine.urgent_queue[kept] = machine.urgent_queue[at]
            kept += 1
    machine.size[URGENT_QUEUE] = kept


@part
def serve_urgent(machine: RunningMachine, log: Log, now: float, by_slowdown: bool) -> None:
    """Start urgent jobs as far as that is possible; those that must wait get a reservation before all regular jobs."""
    if by_slowdown:
        _put_in_order(machine, now)
    queue = machine.urgent_queue[: machine.size[URGENT_QUEUE]].copy()
    for job in queue:
        if _make_room(machine, log, job, now):
            leave_urgent_queue(machine, job)
        elif not by_slowdown:
            break
    for job in machine.urgent_queue[: machine.size[URGENT_QUEUE]]:
        if machine.reservations.entries[job].reserved == np.inf:
            reserve_first(machine.reservations, job, now)


@part
def _put_in_order(machine: RunningMachine, now: float) -> None:
    """The urgent queue by the slowdown that each would have if it started now; it was nearly in order before."""
    queue = machine.urgent_queue
    for at in range(1, machine.size[URGENT_QUEUE]):
        job = queue[at]
        slowdown = _slowdown(machine, job, now)
        while at > 0:
            other = _slowdown(machine, queue[at - 1], now)
            if other > slowdown or (other == slowdown and queue[at - 1] < job):
                break
            queue[at] = queue[at - 1]
            at -= 1
        queue[at] = job


@part
def _slowdown(machine: RunningMachine, job: int, now: float) -> float:
    """Response over run time, as expected, of a job that starts now."""
    record = machine.jobs[job]
    expected = max(float(record.estimate), 1.0)
    return float((now - record.submit + expected) / expected)


@part
def _make_room(machine: RunningMachine, log: Log, job: int, now: float) -> bool:
    """Start an urgent job, now or as soon as its victims are gone; False if not enough may be preempted."""
    record = machine.jobs[job]
    units, wanted = machine.units, record.cpus
    missing = wanted - units.spare[0]
    for at in range(machine.size[SWAPPED_OUT]):
        missing -= units.of[machine.swapped_out[at]].owned - units.of[machine.swapped_out[at]].lent
    if missing > machine.size[CPUS]:
        return False
    if record.estimate == 0.0:
        missing = 0  # nobody is preempted for a job of no length
    victims = _victims(machine, missing, now)
    if missing > 0 and len(victims) == 0:
        return False
    if machine.reservations.entries[job].reserved < np.inf:
        withdraw(machine.reservations, job)
    if record.estimate == 0.0:
        start_job(machine, job, now)
        return True
    lenders = machine.swapped_out[: machine.size[SWAPPED_OUT]].copy()
    begin = _preempt(machine, log, victims, now)
    wanted -= occupy(units, job, wanted)
    for other in lenders:
        got = lend(units, other, job, wanted)
        if got:
            begin = max(begin, machine.jobs[other].gone)
            wanted -= got
    for other in victims:
        if machine.jobs[other].state == PREEMPTED:
            wanted -= lend(units, other, job, wanted)
        else:
            got = hand_over(units, other, job, wanted)
            give_back(machine.reservations, now, machine.jobs[other].until, got)
            wanted -= got
            if machine.jobs[other].state == PREEMPTING and machine.jobs[other].gone > machine.jobs[other].until:
                set_until(machine, other, machine.jobs[other].gone, now)
    until = begin + record.estimate
    take(machine.reservations, now, until, units.of[job].owned, now)
    record.start = begin
    set_running(machine, job, begin, begin, until)
    unit = units.of[job].first_borrowed
    while unit != NOBODY:
        keep_until(machine, units.all[unit].home, until, now)
        unit = units.all[unit].next_borrowed
    return True


@part
def _victims(machine: RunningMachine, missing: int, now: float) -> Ints:
    """Longest remaining first (section IV-B), then who started last; nobody who is not needed; none if all are not
    enough, or the swap area is too small."""
    if missing > 0:
        _set_turns(machine, now)
    chosen, count, rest = machine.victims[: machine.size[VICTIMS]].copy(), 0, machine.size[VICTIMS]
    area = machine.area - machine.swapped[0]
    while missing > 0 and count < rest:
        best = count
        for at in range(count + 1, rest):
            if _goes_before(machine, chosen[at], chosen[best]):
                best = at
        job = chosen[best]
        record = machine.jobs[job]
        if record.size <= area:
            area -= record.size
            missing -= record.cpus
            chosen[best], chosen[count] = chosen[count], job
            count += 1
        else:
            rest -= 1
            chosen[best] = chosen[rest]
    if missing > 0:
        return np.empty(0, np.int64)
    chosen = chosen[:count]
    needed = np.ones(count, np.bool_)
    for at in range(count - 1, -1, -1):
        if missing + machine.jobs[chosen[at]].cpus <= 0:
            missing += machine.jobs[chosen[at]].cpus
            needed[at] = False
    return chosen[needed]


@part
def _set_turns(machine: RunningMachine, now: float) -> None:
    """By when each job should be done, or by how long it is predicted to run still."""
    for job in machine.victims[: machine.size[VICTIMS]]:
        record = machine.jobs[job]
        if machine.history.rule == NOT_LEARNED:
            record.turn = record.until
            continue
        worked = record.done + max(0.0, now - record.computing)
        record.turn = expected_remaining(record.predicted, worked, machine.history.limit[job])


@part
def _goes_before(machine: RunningMachine, job: int, other: int) -> bool:
    """Whether the one is preempted rather than the other."""
    record = machine.jobs[job]
    if record.turn != machine.jobs[other].turn:
        return bool(record.turn > machine.jobs[other].turn)
    if record.since != machine.jobs[other].since:
        return bool(record.since > machine.jobs[other].since)
    return job > other


@part
def _preempt(machine: RunningMachine, log: Log, victims: Ints, now: float) -> float:
    """Preempt these jobs together; returns when the last one is gone (the preemption delay: UJFB, Equation 3).

    They compute until the signal comes. One that is done by then simply ends.
    """
    signal = now + machine.latency if len(victims) else now
    begin = now
    preempted, count = np.empty(len(victims), np.int64), 0
    for job in victims:
        if machine.jobs[job].ends <= signal:
            begin = max(begin, machine.jobs[job].ends)
        else:
            preempted[count] = job
            count += 1
    gone = signal + preemption_seconds(
        preempted[:count], machine.jobs.preemption, machine.jobs.queueing, machine.jobs.pinned
    )
    for job in victims:
        remove_victim(machine, job)
    for at in range(count):
        job = int(preempted[at])
        record = machine.jobs[job]
        begin = gone
        computed = max(0.0, signal - record.computing)
        log_segments(machine, log, job, signal, WORK if record.keeps else LOST)
        log_segment(log, job, signal, gone, PREEMPTION)
        record.preemptions += 1
        record.gone = gone
        # Before what this stay computed is added: the end is that of a job which has done so much when the stay begins.
        until = record.until if record.until > signal else expected_end(machine, job, signal)
        record.done = record.done + computed if record.keeps else 0.0
        kept = until - max(signal, record.computing)
        record.left = kept if record.keeps else record.estimate
        if record.pinned:
            record.state = PREEMPTED
            machine.swapped[0] += record.size
            machine.swapped_out[machine.size[SWAPPED_OUT]] = job
            machine.size[SWAPPED_OUT] += 1
        else:
            record.state = PREEMPTING
            push_end(machine.releases, gone, job)
    return begin
