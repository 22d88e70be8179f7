"""The waiting jobs of Mira: in order of their score, with EASY backfilling around one reserved place (Nickolay et al.
2021, section 6.2, and the authors' settings of Cobalt)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.policy.rules.checkpoint_laws import wfp_score
from omfs_daemon.simulate.kernels.compiling import part
from omfs_daemon.simulate.kernels.realtime.place_state import (
    NOBODY,
    NOWHERE,
    PlaceState,
    Stays,
    begin_stay,
    free_place,
    has_unit_of,
    is_flat,
    stay_seconds,
)
from omfs_daemon.simulate.kernels.running import reservation

_STARTED = -1.0


class ScoredJobs(NamedTuple):
    """In no order; what is needed of each job lies together. ``span``: seconds that its next stay is expected to take;
    ``score``: of the present pass, below 0 once it has started. ``size`` has one entry."""

    job: Ints
    submit: Floats
    estimate: Floats
    cpus: Ints
    kind: Ints
    span: Floats
    score: Floats
    size: Ints


@part
def nobody_waits(capacity: int) -> ScoredJobs:
    """There is room for so many jobs."""
    return ScoredJobs(
        np.zeros(capacity, np.int64),
        np.zeros(capacity),
        np.zeros(capacity),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity),
        np.zeros(capacity),
        np.zeros(1, np.int64),
    )


@part
def await_start(waiting: ScoredJobs, state: PlaceState, job: int) -> None:
    """Add a job."""
    at, record = waiting.size[0], state.jobs[job]
    waiting.size[0] += 1
    waiting.job[at], waiting.submit[at], waiting.estimate[at] = job, record.submit, record.estimate
    waiting.cpus[at], waiting.kind[at] = record.cpus, record.kind
    waiting.span[at] = stay_seconds(record, record.estimate)


@part
def leave_waiting(waiting: ScoredJobs, at: int) -> None:
    """Take out the job of this entry; the last one takes its place."""
    waiting.size[0] -= 1
    last = waiting.size[0]
    waiting.job[at], waiting.submit[at], waiting.estimate[at] = (
        waiting.job[last], waiting.submit[last], waiting.estimate[last]
    )  # fmt: skip
    waiting.cpus[at], waiting.kind[at] = waiting.cpus[last], waiting.kind[last]
    waiting.span[at], waiting.score[at] = waiting.span[last], waiting.score[last]


@part
def _drop_started(waiting: ScoredJobs) -> None:
    for at in range(waiting.size[0] - 1, -1, -1):
        if waiting.score[at] == _STARTED:
            leave_waiting(waiting, at)


@part
def _comes_before(score: float, job: int, best_score: float, best_job: int) -> bool:
    """By score, then in order of submission; one that has started, never."""
    return bool(score > best_score or (score == best_score and job < best_job))


@part
def serve_by_score(state: PlaceState, stays: Stays, waiting: ScoredJobs, marked: Ints, now: float, cpus: int) -> None:
    """Start jobs in order of their score on a machine of so many CPUs; the first that does not fit gets a reservation,
    and of the others those start that do not delay it. ``marked`` has an entry for each unit, all 0."""
    if not _any_fits(state, waiting, marked):
        return
    for at in range(waiting.size[0]):
        waiting.score[at] = wfp_score(waiting.submit[at], waiting.estimate[at], waiting.cpus[at], cpus, now)
    while True:
        head, first, score = NOBODY, NOBODY, _STARTED
        for at in range(waiting.size[0]):
            if _comes_before(waiting.score[at], waiting.job[at], score, first):
                head, first, score = at, waiting.job[at], waiting.score[at]
        if head == NOBODY or not _start_now(state, stays, waiting, marked, head, False, now):
            break
    if head != NOBODY:
        if is_flat(state):
            _backfill_counter(state, stays, waiting, marked, head, now)
        else:
            _backfill_places(state, stays, waiting, marked, head, now)
    _drop_started(waiting)


@part
def _any_fits(state: PlaceState, waiting: ScoredJobs, marked: Ints) -> bool:
    """Whether any job could start, whatever is reserved: mostly none can, and then no score is needed."""
    if is_flat(state):
        for at in range(waiting.size[0]):  # noqa: SIM110 - would not compile
            if waiting.cpus[at] <= state.free[0]:
                return True
        return False
    kinds = len(state.places.first_of) - 1
    is_open, is_open_beside = np.zeros(kinds, np.bool_), np.zeros(kinds, np.bool_)
    if not _find_open(state, marked, is_open, is_open_beside):
        return False
    for at in range(waiting.size[0]):  # noqa: SIM110 - would not compile
        if is_open[waiting.kind[at]]:
            return True
    return False


@part
def _start_now(
    state: PlaceState, stays: Stays, waiting: ScoredJobs, marked: Ints, at: int, avoiding: bool, now: float
) -> bool:
    place = free_place(state, waiting.job[at], avoiding, marked)
    if place == NOWHERE:
        return False
    begin_stay(state, stays, waiting.job[at], place, now)
    waiting.score[at] = _STARTED
    return True


@part
def _backfill_counter(
    state: PlaceState, stays: Stays, waiting: ScoredJobs, marked: Ints, head: int, now: float
) -> None:
    if state.free[0] == 0:
        return
    shadow, spare = reservation(state.expected, state.held, waiting.cpus[head], state.free[0])
    while True:
        free, best, first, score = state.free[0], NOBODY, NOBODY, _STARTED
        for at in range(waiting.size[0]):
            if (
                waiting.cpus[at] <= free
                and at != head
                and (waiting.cpus[at] <= spare or now + waiting.span[at] <= shadow)
                and _comes_before(waiting.score[at], waiting.job[at], score, first)
            ):
                best, first, score = at, waiting.job[at], waiting.score[at]
        if best == NOBODY:
            return
        if now + waiting.span[best] > shadow:
            spare -= waiting.cpus[best]
        _start_now(state, stays, waiting, marked, best, False, now)


@part
def _backfill_places(state: PlaceState, stays: Stays, waiting: ScoredJobs, marked: Ints, head: int, now: float) -> None:
    kinds = len(state.places.first_of) - 1
    is_open, is_open_beside = np.zeros(kinds, np.bool_), np.zeros(kinds, np.bool_)
    place, shadow = NOWHERE, np.inf
    while True:
        if not _find_open(state, marked, is_open, is_open_beside):
            break
        if place == NOWHERE:
            place, shadow = _reserved_place(state, waiting.job[head], now)
            _mark(state, place, marked, 1)
            continue
        best, first, score = NOBODY, NOBODY, _STARTED
        for at in range(waiting.size[0]):
            kind = waiting.kind[at]
            if (
                is_open[kind]
                and at != head
                and (is_open_beside[kind] or now + waiting.span[at] <= shadow)
                and _comes_before(waiting.score[at], waiting.job[at], score, first)
            ):
                best, first, score = at, waiting.job[at], waiting.score[at]
        if best == NOBODY:
            break
        _start_now(state, stays, waiting, marked, best, now + waiting.span[best] > shadow, now)
    if place != NOWHERE:
        _mark(state, place, marked, 0)


@part
def _find_open(state: PlaceState, marked: Ints, is_open: np.ndarray, is_open_beside: np.ndarray) -> bool:
    """Of which sizes there is a free place, and one without marked units; whether there is any."""
    is_open[:] = False
    is_open_beside[:] = False
    found = False
    for place in range(len(state.places.size)):
        kind = state.places.kind[place]
        if state.taken[place] == 0 and not is_open_beside[kind]:
            found = is_open[kind] = True
            is_open_beside[kind] = not has_unit_of(state, place, marked)
    return found


@part
def _reserved_place(state: PlaceState, job: int, now: float) -> tuple[int, float]:
    """The place of the job's size that is expected to be free first, the first of several, and when."""
    places, kind = state.places, state.jobs[job].kind
    best, earliest = NOWHERE, np.inf
    for place in range(places.first_of[kind], places.first_of[kind + 1]):
        until = now
        for at in range(places.units_from[place], places.units_from[place + 1]):
            owner = state.owner[places.units[at]]
            if owner != NOBODY and state.expected_end[owner] > until:
                until = state.expected_end[owner]
        if until < earliest:
            best, earliest = place, until
    return best, earliest


@part
def _mark(state: PlaceState, place: int, marked: Ints, mark: int) -> None:
    places = state.places
    for at in range(places.units_from[place], places.units_from[place + 1]):
        marked[places.units[at]] = mark
