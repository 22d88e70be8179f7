"""A machine of places on which jobs run, are stopped for others, and go on: the state, and what can be done with it.

Every policy that stops jobs with checkpoints is made of these functions. Jobs and places are known by index; -1 is
none. A machine without places is a counter of CPUs, and a job's place is then 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.engine.places import PlaceArrays
from omfs_daemon.simulate.kernels.compiling import Record, Records, part
from omfs_daemon.simulate.kernels.running import (
    Ends,
    Expected,
    expect,
    expect_no_more,
    no_ends,
    nothing_expected,
    push_end,
)

NOBODY = NOWHERE = -1
UNSEEN, WAITING, DUE, CLAIMING, RUNNING, LEAVING, DONE = range(7)
"""``state``: DUE: a real-time job that is served before the others; CLAIMING: jobs are being stopped for it; LEAVING:
it is being stopped, and holds its place until its checkpoint is written."""

JOB = np.dtype(
    [(name, np.float64) for name in ("submit", "run", "estimate", "limit", "act_at", "victim_max", "at_most")]
    + [(name, np.float64) for name in ("interval", "seconds", "queueing")]
    + [(name, np.int64) for name in ("cpus", "kind", "most")]
    + [(name, np.bool_) for name in ("realtime", "fits")]
    + [(name, np.float64) for name in ("done", "works_from", "ends", "start", "finish", "predicted")]
    + [(name, np.int64) for name in ("state", "place", "stay", "stops", "first_victim", "next_victim")]
)
"""A job; times in seconds. Known from the start:

estimate, limit   what a policy takes its run time to be; what its slowdown counts with
act_at            when a waiting real-time job is due; inf: never
victim_max        the slowdown above which it is not stopped
at_most           to which estimates that are learned are put off, its limit; inf: it has none, or they are given
interval, most    work between two periodic checkpoints, and how many there are at most
seconds, queueing to write or to read a checkpoint; for which it occupies what all share
kind              the number of the size of its places
realtime          it is never stopped
fits              whether the machine has a place for it

What becomes of it (``estimate`` too, where it is learned):

done              work that is safe
predicted         when it came, for the costs of victims; inf: nothing was
works_from, ends  when its present stay begins to compute, and when it will be done
stay              the number of its present stay
first_victim, next_victim  the first job that is stopped for it; the next that is stopped for the same job
"""

STAY = np.dtype(
    [(name, np.float64) for name in ("begin", "works_from", "end", "gone", "done", "kept", "cost")]
    + [(name, np.int64) for name in ("job", "place", "preemptor")]
)
"""A job's time on one place: it reads its checkpoint up to ``works_from``, computes up to ``end``, and if it is stopped
then, for ``preemptor``, writes one up to ``gone``. ``done``: work that was safe before; ``kept``: that is after it.
``cost``: what stopping it cost by the policy's reckoning."""


class Stays(NamedTuple):
    """``size`` has one entry."""

    all: Records
    size: Ints


class PlaceState(NamedTuple):
    """Everything that changes.

    jobs        records of ``JOB``
    begin, span when a job's stay began, and for how long it is expected: by job; ``longest``: up to what it is put off
    expected    the jobs that hold something, by expected end; ``expected_end``, by job
    held        CPUs that a job holds of a counter: by job
    ends        when jobs will be done; releases: when the jobs that are stopped for a job are gone
    owner       the job that holds a unit
    taken       how many units of a place are held
    tally       CPUs that are free; ``now`` and ``stays`` see there
    """

    jobs: Records
    places: PlaceArrays
    begin: Floats
    span: Floats
    longest: Floats
    expected: Expected
    expected_end: Floats
    held: Ints
    ends: Ends
    releases: Ends
    owner: Ints
    taken: Ints
    free: Ints


@part
def new_place_state(jobs: Records, places: PlaceArrays, cpus: int) -> PlaceState:
    """Nobody has come yet."""
    count = len(jobs)
    for job in range(count):
        record = jobs[job]
        record.start = record.finish = np.nan
        record.place = record.stay = record.first_victim = record.next_victim = NOBODY
    return PlaceState(
        jobs,
        places,
        np.zeros(count),
        np.zeros(count),
        np.zeros(count),
        nothing_expected(count),
        np.zeros(count),
        np.zeros(count, np.int64),
        no_ends(4 * count + 16),
        no_ends(count + 1),
        np.full(len(places.places_from) - 1, NOBODY, np.int64),
        np.zeros(len(places.size), np.int64),
        np.full(1, cpus, np.int64),
    )


# -- places ----------------------------------------------------------------------------------------------------------
@part
def is_flat(state: PlaceState) -> bool:
    return len(state.places.size) == 0


@part
def hold_units(state: PlaceState, place: int, job: int) -> None:
    """The job gets all units of the place, also those of others."""
    places = state.places
    for at in range(places.units_from[place], places.units_from[place + 1]):
        unit = places.units[at]
        if state.owner[unit] == NOBODY:
            _count_unit(state, unit, 1)
        state.owner[unit] = job


@part
def free_units(state: PlaceState, place: int, job: int) -> None:
    """The units of the place that are still the job's become free."""
    places = state.places
    for at in range(places.units_from[place], places.units_from[place + 1]):
        unit = places.units[at]
        if state.owner[unit] == job:
            _count_unit(state, unit, -1)
            state.owner[unit] = NOBODY


@part
def _count_unit(state: PlaceState, unit: int, change: int) -> None:
    places = state.places
    for at in range(places.places_from[unit], places.places_from[unit + 1]):
        state.taken[places.places[at]] += change


@part
def free_larger_places(state: PlaceState, place: int) -> int:
    """How many larger free places a job on this one would block."""
    places, count = state.places, 0
    for at in range(places.larger_from[place], places.larger_from[place + 1]):
        if state.taken[places.larger[at]] == 0:
            count += 1
    return count


@part
def has_unit_of(state: PlaceState, place: int, marked: Ints) -> bool:
    """Whether the place has a unit that is marked (not 0)."""
    places = state.places
    for at in range(places.units_from[place], places.units_from[place + 1]):  # noqa: SIM110 - would not compile
        if marked[places.units[at]] != 0:
            return True
    return False


@part
def free_place(state: PlaceState, job: int, avoiding: bool, marked: Ints) -> int:
    """The free place of the job's size that blocks the fewest free larger ones, the first of several; none: NOWHERE.
    With ``avoiding``, only one without marked units. On a counter: whether there are enough CPUs."""
    record, places = state.jobs[job], state.places
    if is_flat(state):
        return 0 if record.cpus <= state.free[0] else NOWHERE
    best, fewest = NOWHERE, 2**62
    for place in range(places.first_of[record.kind], places.first_of[record.kind + 1]):
        if state.taken[place] == 0 and not (avoiding and has_unit_of(state, place, marked)):
            blocked = free_larger_places(state, place)
            if blocked < fewest:
                best, fewest = place, blocked
    return best


# -- progress --------------------------------------------------------------------------------------------------------
@part
def work_done(record: Record, begun: float, now: float) -> tuple[float, float, float]:
    """Of a running job whose stay began then: work done, in seconds; of it, what the last checkpoint of this stay has;
    when that was written, or else the stay's begin. What earlier stays have kept counts in both."""
    computed = now - record.works_from
    if computed <= 0.0:
        return record.done, record.done, begun
    left = record.most - round(record.done / record.interval)
    cycle = record.interval + record.seconds
    # Of sums of seconds: what lacks a millionth of a second is whole.
    written = min(np.floor((computed + 1e-6) / cycle), left) if left > 0 else 0.0
    since = max(0.0, computed - written * cycle)
    saved = record.done + written * record.interval
    worked = saved + (min(since, record.interval) if written < left else since)
    at = record.works_from + written * cycle if written > 0 else begun
    return min(worked, record.run), saved, at


@part
def stay_seconds(record: Record, run: float) -> float:
    """How long a stay takes that begins now, if the job runs so long in all: reading, work, periodic checkpoints."""
    work = max(0.0, run - record.done)
    left = max(0, record.most - round(record.done / record.interval))
    # None where the job ends; a quotient that should be whole may be a little more.
    written = min(max(0.0, np.ceil(work / record.interval - 1e-9) - 1.0), left) if left > 0 else 0.0
    return float(reading_seconds(record) + work + written * record.seconds)


@part
def reading_seconds(record: Record) -> float:
    """Before a job computes: the time to read its checkpoint, if there is any."""
    return float(record.seconds if record.done > 0.0 else 0.0)


# -- stays -----------------------------------------------------------------------------------------------------------
@part
def new_stays(capacity: int) -> Stays:
    return Stays(np.zeros(capacity, STAY), np.zeros(1, np.int64))


@part
def with_stays(stays: Stays, needed: int) -> Stays:
    """The same with room for so many more."""
    count = stays.size[0]
    if count + needed <= len(stays.all):
        return stays
    larger = new_stays(2 * (count + needed))
    larger.all[:count] = stays.all[:count]
    larger.size[0] = count
    return larger


@part
def begin_stay(state: PlaceState, stays: Stays, job: int, place: int, now: float) -> None:
    """The job starts, or goes on, on a free place or the one that it has claimed."""
    record = state.jobs[job]
    if record.state != CLAIMING:
        _take(state, job, place)
        record.place = place
    _expect_stay(state, job, now)
    if np.isnan(record.start):
        record.start = now
    record.state, record.works_from = RUNNING, now + reading_seconds(record)
    record.ends = now + stay_seconds(record, record.run)
    push_end(state.ends, record.ends, job)
    record.stay = stays.size[0]
    stays.size[0] += 1
    stay = stays.all[record.stay]
    stay.job, stay.place, stay.preemptor = job, place, NOBODY
    stay.begin, stay.works_from, stay.done = now, record.works_from, record.done


@part
def _expect_stay(state: PlaceState, job: int, begin: float) -> None:
    """Of a stay that begins then."""
    record = state.jobs[job]
    state.begin[job], state.span[job] = begin, stay_seconds(record, record.estimate)
    state.longest[job] = stay_seconds(record, record.at_most) if record.at_most < np.inf else np.inf
    state.expected_end[job] = begin + state.span[job]
    expect(state.expected, state.expected_end[job], job)


@part
def end_last_stay(state: PlaceState, stays: Stays, job: int, now: float) -> None:
    """The job is done."""
    record = state.jobs[job]
    record.state, record.finish = DONE, now
    stay = stays.all[record.stay]
    stay.end = stay.gone = now
    stay.kept = record.run
    _give_back(state, job)


@part
def stop_for(
    state: PlaceState, stays: Stays, victim: int, preemptor: int, now: float, writes: bool, cost: float
) -> None:
    """The victim stops computing; ``claim_place`` comes next. With ``writes`` it writes a checkpoint, unless it has
    done nothing since the last; else it keeps what its last checkpoint has."""
    record = state.jobs[victim]
    worked, saved, _ = work_done(record, state.begin[victim], now)
    stay = stays.all[record.stay]
    stay.end, stay.preemptor, stay.cost = now, preemptor, cost
    stay.works_from = min(stay.works_from, now)
    written = writes and worked > saved
    stay.kept = record.done = worked if written else saved
    stay.gone = now + record.seconds if written else now
    record.state = LEAVING
    record.stops += 1
    record.next_victim = state.jobs[preemptor].first_victim
    state.jobs[preemptor].first_victim = victim


@part
def claim_place(state: PlaceState, stays: Stays, job: int, place: int, now: float) -> float:
    """The job will begin on this place when the jobs that are stopped for it are gone; when that is. They write at
    once: the longest counts, and what all together need of the file system (Nickolay et al. 2021, section 4.2)."""
    jobs = state.jobs
    longest = together = 0.0
    freed = 0
    victim = jobs[job].first_victim
    while victim != NOBODY:
        stay = stays.all[jobs[victim].stay]
        if stay.gone > now:
            longest = max(longest, stay.gone - now)
            together += jobs[victim].queueing
        freed += state.held[victim]
        victim = jobs[victim].next_victim
    at = now + max(longest, together)
    victim = jobs[job].first_victim
    while victim != NOBODY:
        stay = stays.all[jobs[victim].stay]
        stay.gone = at if stay.gone > now else now
        expect_no_more(state.expected, state.expected_end[victim], victim)
        if not is_flat(state):
            # What lies beside the claimed place is free when its checkpoint is written.
            state.expected_end[victim] = at
            expect(state.expected, at, victim)
        victim = jobs[victim].next_victim
    jobs[job].state, jobs[job].place = CLAIMING, place
    if is_flat(state):
        take = max(0, jobs[job].cpus - freed)
        state.free[0] -= take
        state.held[job] = freed + take
    else:
        hold_units(state, place, job)
    _expect_stay(state, job, at)
    push_end(state.releases, at, job)
    return float(at)


@part
def release_victims(state: PlaceState, stays: Stays, job: int, now: float) -> None:
    """The jobs that were stopped for this one are gone, and it begins. They wait again: walk through them before, by
    ``first_victim`` and ``next_victim``."""
    jobs = state.jobs
    victim = jobs[job].first_victim
    while victim != NOBODY:
        following = jobs[victim].next_victim
        if not is_flat(state):
            expect_no_more(state.expected, state.expected_end[victim], victim)
            free_units(state, jobs[victim].place, victim)
        state.held[victim] = 0
        jobs[victim].state, jobs[victim].place, jobs[victim].next_victim = WAITING, NOWHERE, NOBODY
        victim = following
    jobs[job].first_victim = NOBODY
    expect_no_more(state.expected, state.expected_end[job], job)
    if is_flat(state):
        state.free[0] += state.held[job] - jobs[job].cpus
        state.held[job] = jobs[job].cpus
    begin_stay(state, stays, job, jobs[job].place, now)


@part
def _take(state: PlaceState, job: int, place: int) -> None:
    if is_flat(state):
        state.free[0] -= state.jobs[job].cpus
        state.held[job] = state.jobs[job].cpus
    else:
        hold_units(state, place, job)


@part
def _give_back(state: PlaceState, job: int) -> None:
    expect_no_more(state.expected, state.expected_end[job], job)
    if is_flat(state):
        state.free[0] += state.held[job]
        state.held[job] = 0
    else:
        free_units(state, state.jobs[job].place, job)
