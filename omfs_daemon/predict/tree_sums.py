"""What trained trees predict of many jobs at once: no library is needed for that.

Nobody walks down the trees. Each split that goes to the right rules out the leaves at its left; the first leaf that no
split rules out is the one that is reached (QuickScorer, Lucchese et al. 2015). Of one input only how many thresholds it
exceeds counts: for each such number the leaves that stay in all trees are worked out beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.errors import FormatError
from omfs_daemon.predict.boosted_trees import BoostedTrees, Floats

Leaves = NDArray[np.uint16]
"""A bit for each leaf of a tree, the leftmost is the lowest."""

MOST_LEAVES = 16
_AT_A_TIME = 512
"""Jobs whose leaves stay in the processor's cache."""


class _Split(NamedTuple):
    feature: int
    threshold: float
    tree: int
    left: int  # leaves


class TreeSums:
    """FormatError for a tree of more than ``MOST_LEAVES`` leaves."""

    def __init__(self, trees: BoostedTrees) -> None:
        self._quantiles = len(trees.roots)
        roots = trees.roots.ravel().tolist()
        self._values = np.zeros((len(roots), MOST_LEAVES))
        splits: dict[int, list[_Split]] = {}
        for tree, root in enumerate(roots):
            leaves = list[float]()
            for split in _splits(trees, tree, root, leaves):
                splits.setdefault(split.feature, []).append(split)
            self._values[tree, : len(leaves)] = leaves
        self._features = [_stays(feature, found, len(roots)) for feature, found in sorted(splits.items())]
        self._trees = np.arange(len(roots))

    def of(self, values: Floats) -> Floats:
        """By job one sum for each quantile; ``values``: of each job its inputs."""
        found = np.empty((len(values), self._quantiles))
        for begin in range(0, len(values), _AT_A_TIME):
            part = values[begin : begin + _AT_A_TIME]
            stay = np.full((len(part), len(self._trees)), _ALL)
            for one in self._features:
                stay &= one.stay[one.thresholds.searchsorted(part[:, one.feature])]
            lowest = stay & (~stay + np.uint16(1))
            leaf = np.frexp(lowest.astype(np.float32))[1] - 1
            sums = self._values[self._trees, leaf].reshape(len(part), self._quantiles, -1).sum(axis=2)
            found[begin : begin + _AT_A_TIME] = sums
        return found


class _Feature(NamedTuple):
    """``stay``: (thresholds + 1, trees), by how many thresholds an input exceeds."""

    feature: int
    thresholds: Floats
    stay: Leaves


_ALL = np.uint16(0xFFFF)


def _stays(feature: int, splits: list[_Split], trees: int) -> _Feature:
    ordered = sorted(splits, key=lambda one: one.threshold)
    stay = np.full((len(ordered) + 1, trees), _ALL)
    for row, split in enumerate(ordered, 1):
        stay[row, split.tree] = _ALL & ~np.uint16(split.left)
    thresholds = np.array([one.threshold for one in ordered], dtype=np.float64)
    return _Feature(feature, thresholds, np.bitwise_and.accumulate(stay, axis=0))


def _splits(trees: BoostedTrees, tree: int, root: int, leaves: list[float]) -> Iterator[_Split]:
    """Those of a tree, whose leaves are added from left to right."""
    if trees.left[root] == root:
        if len(leaves) == MOST_LEAVES:
            raise FormatError(f"a trained model has a tree of more than {MOST_LEAVES} leaves")
        leaves.append(float(trees.value[root]))
        return
    first = len(leaves)
    yield from _splits(trees, tree, int(trees.left[root]), leaves)
    at_left = (1 << len(leaves)) - (1 << first)
    yield _Split(int(trees.feature[root]), float(trees.threshold[root]), tree, at_left)
    yield from _splits(trees, tree, int(trees.right[root]), leaves)
