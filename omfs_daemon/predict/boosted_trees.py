"""Trained regression trees, as they are kept and handed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.errors import FormatError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_NODES = 1_000_000


class BoostedTrees(NamedTuple):
    """Sums of trees, one sum for each quantile.

    roots      the first node of each tree: (quantiles, trees)
    feature, threshold, left, right  by node: where the input is at most the threshold it goes on at the left; a leaf
               goes on at itself
    value      by node: of a leaf, what it adds
    samples    of how many jobs they were learned
    """

    roots: Ints
    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    value: Floats
    samples: int

    def as_json(self) -> dict[str, Any]:
        """As ``trees_from_json`` reads it."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in self._asdict().items()
        }


def no_trees(quantiles: int) -> BoostedTrees:
    """They predict nothing."""
    none, no_ints = np.zeros(0), np.zeros(0, dtype=np.int64)
    roots = np.zeros((quantiles, 0), dtype=np.int64)
    return BoostedTrees(roots, no_ints, none, no_ints, no_ints.copy(), none.copy(), 0)


def trees_from_json(found: object, inputs: int) -> BoostedTrees:
    """FormatError for what is none; ``inputs``: how many each prediction has."""
    if not isinstance(found, dict) or set(found) != set(BoostedTrees._fields):
        raise FormatError("a trained model has other parts")
    try:
        roots, feature, left, right = (
            np.array(found[name], np.int64) for name in ("roots", "feature", "left", "right")
        )
        threshold, value = (np.array(found[name], dtype=np.float64) for name in ("threshold", "value"))
        trees = BoostedTrees(roots, feature, threshold, left, right, value, int(found["samples"]))
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"a trained model is malformed: {error}") from None
    nodes = len(trees.feature)
    own = np.arange(nodes)
    columns = (trees.feature, trees.threshold, trees.left, trees.right, trees.value)
    if (
        not 0 < nodes <= MOST_NODES
        or trees.roots.ndim != 2
        or any(column.shape != (nodes,) for column in columns)
        or any(((ends < 0) | (ends >= nodes)).any() for ends in (trees.roots, trees.left, trees.right))
        or ((trees.feature < 0) | (trees.feature >= inputs)).any()
        or np.isnan(trees.threshold).any()
        or not np.isfinite(trees.value).all()
        or ((trees.left == own) != (trees.right == own)).any()
        or ((trees.left < own) | (trees.right < own)).any()  # else they could go on forever
    ):
        raise FormatError("a trained model has impossible numbers")
    return trees


def trees_of_dumps(quantiles: Sequence[Sequence[Mapping[str, Any]]], samples: int) -> BoostedTrees:
    """From trees as LightGBM dumps them (``tree_structure``), for each quantile equally many."""
    feature, threshold, left, right, value = list[int](), list[float](), list[int](), list[int](), list[float]()

    def add(node: Mapping[str, Any]) -> int:
        at = len(feature)
        for column, missing in ((feature, 0), (left, at), (right, at)):
            column.append(missing)
        threshold.append(np.inf)
        value.append(float(node.get("leaf_value", 0.0)))
        if "split_feature" in node:
            feature[at], threshold[at] = int(node["split_feature"]), float(node["threshold"])
            left[at], right[at] = add(node["left_child"]), add(node["right_child"])
        return at

    roots = np.array([[add(tree) for tree in trees] for trees in quantiles], dtype=np.int64)
    whole = [np.array(column, dtype=np.int64) for column in (feature, left, right)]
    return BoostedTrees(roots, whole[0], np.array(threshold), whole[1], whole[2], np.array(value), samples=samples)
