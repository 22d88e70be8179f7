"""The rules of OMFS that count CPUs and seconds, as plain functions over sequences of numbers.

Entities are known by index: ``used`` and ``entitled`` hold CPUs by entity, a path holds the indices from a leaf up to
its top account. Everything here is written so that it can be compiled as it stands: the daemon calls these very
functions, and the simulator compiles them. So there is one place for each rule.
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


class Books(Numbers, Protocol):
    """The same, to be written to."""

    def __setitem__(self, index: int, number: int, /) -> None: ...


class Lists(Protocol):
    """Some of them; a list or a matrix."""

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


def admits_fixed(fixed: Numbers, entitled: Numbers, path: Numbers, cpus: int) -> bool:
    """Whether a job that is never stopped fits into the entitlement on every level (Algorithm 1, line 23)."""
    for index in path:  # noqa: SIM110 - a generator cannot be compiled
        if fixed[index] + cpus > entitled[index]:
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


def add(used: Books, path: Numbers, cpus: int) -> None:
    """Count CPUs at a leaf and at every account above it."""
    for index in path:
        used[index] += cpus


def takes_fairly(
    used: Books,
    entitled: Numbers,
    tops: Numbers,
    givers: Lists,
    paths: Lists,
    cpus: Numbers,
) -> bool:
    """Whether some jobs, one entry each and the smallest first, may all be taken for one that counts in ``used``.

    In whatever order helps: what counts is that each giver is above its entitlement when its turn comes. The smallest
    jobs go first, since the last one may bring its account below. ``tops`` and ``givers``: the sides of taker and giver
    below the first account that both share. ``used`` is left as it is when they have gone.
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
        add(used, paths[turn], -cpus[turn])
    return True


def takes_from_borrowers(used: Books, entitled: Numbers, leaves: Numbers, cpus: Numbers) -> bool:
    """Whether each of these jobs, the smallest first, is of a leaf above its entitlement when its turn comes."""
    for at in range(len(cpus)):
        if used[leaves[at]] <= entitled[leaves[at]]:
            return False
        used[leaves[at]] -= cpus[at]
    return True


# -- how long and how often ---
def latest_mature_start(now: float, quantum: float) -> float:
    """A job that runs since then or longer has run for its quantum (OMFS, section II)."""
    return now - quantum


def matures_at(since: float, quantum: float) -> float:
    """When a job that runs ``since`` has run for its quantum; late by a rounding error at most, never early."""
    at = since + quantum
    while latest_mature_start(at, quantum) < since:
        at += abs(at) * 2.3e-16
    return at


def counts_in_hour(stopped: float, now: float) -> bool:
    """Whether a stop still counts against the stops of an hour."""
    return stopped > now - HOUR
