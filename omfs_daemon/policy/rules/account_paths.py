"""Which account may take CPUs from which, by their paths in the account tree."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from omfs_daemon.policy.rules.laws import all_over, reaches_at_most


class PathSides(NamedTuple):
    """The paths of two leaves below the first account they share.

    ``taker``: the topmost entity on the taker's side (-1: none); ``givers``: all entities on the giver's side.
    """

    taker: int
    givers: tuple[int, ...]


@lru_cache(maxsize=65536)
def path_sides(taker: tuple[int, ...], giver: tuple[int, ...]) -> PathSides:
    """The parts that the paths of two leaves do not share."""
    on_takers_side = [index for index in taker if index not in giver]
    return PathSides(
        on_takers_side[-1] if on_takers_side else -1, tuple(index for index in giver if index not in taker)
    )


def may_take(usage: Sequence[int], entitled: Sequence[int], taker: tuple[int, ...], giver: tuple[int, ...]) -> bool:
    """Whether the leaf with path ``taker`` may take CPUs now from a job of the leaf with path ``giver``.

    ``usage`` already counts the taker's job as running. Below the first account that both share, every account on the
    giver's side must be above its entitlement, and the topmost on the taker's side must not be (OMFS, section II: an
    entity reaches its entitlement by evicting jobs of entities *using more than their allotment*; here for each level
    of the tree).
    """
    top, givers = path_sides(taker, giver)
    return reaches_at_most(usage, entitled, top) and all_over(usage, entitled, givers)
