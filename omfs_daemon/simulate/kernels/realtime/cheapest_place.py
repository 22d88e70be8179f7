"""The cheapest jobs to stop for a real-time job (Nickolay et al. 2021, section 6.3, Algorithm 2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.policy.rules.checkpoint_laws import victim_cost
from omfs_daemon.policy.rules.slowdown_laws import running_slowdown
from omfs_daemon.simulate.kernels.compiling import Record, part
from omfs_daemon.simulate.kernels.realtime.place_state import NOBODY, NOWHERE, RUNNING, PlaceState, work_done
from omfs_daemon.simulate.kernels.running import corrected


class Weights(NamedTuple):
    """Exponents of the factors of a cost; 0 switches a factor off."""

    slowdown: float
    checkpoint: float
    remaining: float


@part
def cost_of_stopping(record: Record, begun: float, held: int, size: int, now: float, weights: Weights) -> float:
    """What it costs to stop this job, whose stay on a place of ``held`` CPUs began then, for one that wants ``size``;
    inf: it is not eligible, which limits alone decide."""
    if record.state != RUNNING or record.realtime or held > size:
        return np.inf
    worked, _, saved_at = work_done(record, begun, now)
    slowdown = max(1.0, running_slowdown(record.submit, record.limit, now, worked))
    if slowdown > record.victim_max:
        return np.inf
    expected = min(corrected(0.0, record.predicted, worked), record.limit)
    likely = max(1.0, running_slowdown(record.submit, expected, now, worked))
    return float(
        victim_cost(
            record.cpus, likely, now - saved_at, max(0.0, expected - worked), expected,
            weights.slowdown, weights.checkpoint, weights.remaining,
        )
    )  # fmt: skip


@part
def cheapest_place(
    state: PlaceState, job: int, now: float, weights: Weights, costs: Floats, seen: Ints, victims: Ints
) -> tuple[int, int]:
    """The place of the job's size on which those that run cost least, the first of several, and how many they are;
    NOWHERE if none is eligible. The jobs are put into ``victims``; ``costs`` gets the cost of each job that holds
    something, by job; ``seen`` has one entry a job, of no meaning."""
    places, kind = state.places, state.jobs[job].kind
    size = places.size[places.first_of[kind]]
    for at in range(state.expected.size[0]):
        one = state.expected.job[at]
        record = state.jobs[one]
        costs[one] = cost_of_stopping(record, state.begin[one], places.size[record.place], size, now, weights)
        seen[one] = NOWHERE
    best, least = NOWHERE, np.inf
    for place in range(places.first_of[kind], places.first_of[kind + 1]):
        cost = _cost_of_place(state, place, costs, seen)
        if cost < least:
            best, least = place, cost
    count = 0
    if best != NOWHERE:
        for at in range(places.units_from[best], places.units_from[best + 1]):
            one = state.owner[places.units[at]]
            if one != NOBODY and (count == 0 or _is_new(victims, count, one)):
                victims[count] = one
                count += 1
    return best, count


@part
def _is_new(victims: Ints, count: int, one: int) -> bool:
    for at in range(count):  # noqa: SIM110 - would not compile
        if victims[at] == one:
            return False
    return True


@part
def _cost_of_place(state: PlaceState, place: int, costs: Floats, seen: Ints) -> float:
    places, total = state.places, 0.0
    for at in range(places.units_from[place], places.units_from[place + 1]):
        one = state.owner[places.units[at]]
        if one != NOBODY and seen[one] != place:
            seen[one] = place
            total += costs[one]
    return total


@part
def cheapest_jobs(state: PlaceState, job: int, now: float, weights: Weights, costs: Floats, victims: Ints) -> int:
    """On a counter of CPUs: the jobs are put into ``victims``, and their number is returned; 0: they are not enough.

    By cost per CPU up to what is wanted, then without those that are needless, the dearest first; or one job that is
    enough alone, if that is cheaper.
    """
    wanted = state.jobs[job].cpus - state.free[0]
    size = state.expected.size[0]
    candidates, prices = np.empty(size, np.int64), np.empty(size)
    count, together, alone = 0, 0, NOBODY
    for at in range(size):
        one = state.expected.job[at]
        record = state.jobs[one]
        costs[one] = cost_of_stopping(record, state.begin[one], record.cpus, state.jobs[job].cpus, now, weights)
        if costs[one] < np.inf:
            candidates[count], prices[count] = one, costs[one] / record.cpus
            together += record.cpus
            count += 1
            if record.cpus >= wanted and (alone == NOBODY or costs[one] < costs[alone]):
                alone = one
    if together < wanted:
        return 0
    by_price = np.argsort(prices[:count], kind="mergesort")
    freed, chosen, total = 0, 0, 0.0
    for at in by_price:
        if freed >= wanted:
            break
        victims[chosen] = candidates[at]
        freed += state.jobs[candidates[at]].cpus
        chosen += 1
    needed: Bools = np.ones(chosen, np.bool_)
    for at in np.argsort(-costs[victims[:chosen]], kind="mergesort"):
        if freed - state.jobs[victims[at]].cpus >= wanted:
            freed -= state.jobs[victims[at]].cpus
            needed[at] = False
    kept = 0
    for at in range(chosen):
        if needed[at]:
            victims[kept] = victims[at]
            total += costs[victims[at]]
            kept += 1
    if alone != NOBODY and costs[alone] < total:
        victims[0] = alone
        return 1
    return kept
