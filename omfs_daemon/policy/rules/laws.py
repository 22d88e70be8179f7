"""The rules of OMFS for CPUs and seconds, as plain functions over sequences of numbers.

Entities are given by index: ``used`` and ``entitled`` hold CPUs by entity, a path holds the indices from a leaf up to
its top account. The daemon calls these functions and the simulator compiles them, so each rule exists once; everything
here must compile as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

HOUR = 3600.0


class Numbers(Protocol):
    """Whole numbers by index: a list, a tuple or an array."""

    def __getitem__(self, index: int, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...


class WritableNumbers(Numbers, Protocol):
    """Whole numbers by index that can be changed."""

    def __setitem__(self, index: int, number: int, /) -> None: ...


class NumberLists(Protocol):
    """Several of them: a list or a matrix."""

    def __getitem__(self, index: int, /) -> Any: ...


# -- what an account is entitled to ---
def room(used: Numbers, entitled: Numbers, path: Numbers) -> int:
    """The most CPUs that the entitlement of some account on the path still has room for (Algorithm 1, line 28)."""
    most: int = entitled[path[0]] - used[path[0]]
    for index in path:
        left = entitled[index] - used[index]
        if left > most:
            most = left
    return most


def admits_non_preemptible(non_preemptible: Numbers, entitled: Numbers, path: Numbers, cpus: int) -> bool:
    """Whether a non-preemptible job fits into the entitlement on every level (Algorithm 1, line 23)."""
    for index in path:  # noqa: SIM110 - a generator cannot be compiled
        if non_preemptible[index] + cpus > entitled[index]:
            return False
    return True


# -- who may take from whom ---
def reaches_at_most(used: Numbers, entitled: Numbers, top: int) -> bool:
    """Whether the topmost entity on the taker's side is not above its entitlement (-1: there is none)."""
    return top >= 0 and bool(used[top] <= entitled[top])


def all_over(used: Numbers, entitled: Numbers, givers: Numbers) -> bool:
    """Whether all entities on the giver's side are above their entitlement."""
    for index in givers:  # noqa: SIM110 - a generator cannot be compiled, and costs more than the loop
        if used[index] <= entitled[index]:
            return False
    return True


def add_cpus(used: WritableNumbers, path: Numbers, cpus: int) -> None:
    """Count CPUs at a leaf and at every account above it."""
    for index in path:
        used[index] += cpus


def takes_fairly(
    used: WritableNumbers,
    entitled: Numbers,
    tops: Numbers,
    givers: NumberLists,
    paths: NumberLists,
    cpus: Numbers,
) -> bool:
    """Whether these jobs, one entry each and the smallest first, may all be preempted for a job counted in ``used``.

    The order is free as long as each giver is above its entitlement when its turn comes. The smallest jobs go first,
    since the last one may bring its account below. ``tops`` and ``givers``: the taker's and the giver's side below the
    first account that both share. ``used`` is changed: the jobs no longer count in it.
    """
    gone = [False] * len(cpus)
    for _ in range(len(cpus)):
        turn = -1
        for at in range(len(cpus)):
            if not gone[at] and reaches_at_most(used, entitled, tops[at]) and all_over(used, entitled, givers[at]):
                turn = at
                break
        if turn < 0:
            return False
        gone[turn] = True
        add_cpus(used, paths[turn], -cpus[turn])
    return True


def takes_from_borrowers(used: WritableNumbers, entitled: Numbers, leaves: Numbers, cpus: Numbers) -> bool:
    """Whether each job, the smallest first, belongs to a leaf above its entitlement when its turn comes."""
    for at in range(len(cpus)):
        if used[leaves[at]] <= entitled[leaves[at]]:
            return False
        used[leaves[at]] -= cpus[at]
    return True


# -- how long and how often ---
def latest_mature_start(now: float, quantum: float) -> float:
    """The latest start of a job that has run for its quantum (OMFS, section II)."""
    return now - quantum


def matures_at(since: float, quantum: float) -> float:
    """When a job that started at ``since`` has run for its quantum; late by a rounding error at most, never early."""
    at = since + quantum
    while latest_mature_start(at, quantum) < since:
        at += abs(at) * 2.3e-16
    return at


def counts_in_hour(preempted: float, now: float) -> bool:
    """Whether a preemption at this time still counts toward the limit per hour."""
    return preempted > now - HOUR
