"""Run times drawn from predictions: as many whole futures as draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.predict.prediction import Prediction, expected_run

Floats = NDArray[np.float64]

_SHARES = np.array([0.0, 0.1, 0.5, 0.9, 1.0])
_SHORTEST_OF_P10 = 0.25
_LONGEST_OF_P90 = 2.0
"""Beyond p10 and p90 nothing is known of a job: so much shorter, and so much longer or its limit, it can be."""
_ALMOST_ALL = 0.99


def run_times(
    predictions: Sequence[Prediction], limits: Sequence[float], elapsed: Sequence[float], draws: int, seed: int
) -> Floats:
    """Seconds that each job will run in all, (jobs, draws), at least 1 and at most its limit.

    Drawn from the quantiles of the prediction, joined on a logarithmic scale, by strata, so that few draws have few
    gaps. Of a job that has run for ``elapsed`` seconds only what is longer is drawn; if it has outlived its
    prediction, each draw is the next correction of ``expected_run``.
    """
    if not predictions:
        return np.ones((0, draws))
    most: Floats = np.maximum(np.array(limits, dtype=np.float64), 1.0)
    points = np.log(_points(predictions, most))
    begun = np.array(elapsed, dtype=np.float64)
    least = _share_below(points, np.log(np.maximum(begun, 1.0)))
    random = np.random.default_rng(seed)
    strata = random.permuted(np.tile(np.arange(draws), (len(points), 1)), axis=1)
    shares: Floats = least[:, None] + (1.0 - least[:, None]) * (strata + random.random(strata.shape)) / draws
    found = np.exp(_quantile(points, shares))
    for at in np.flatnonzero(least > _ALMOST_ALL).tolist():
        found[at] = expected_run(predictions[at].p50, float(begun[at]), limits[at])
    found = np.maximum(np.maximum(found, begun[:, None]), 1.0)
    return np.asarray(np.minimum(found, most[:, None]), dtype=np.float64)


def remaining_quantiles(
    predictions: Sequence[Prediction], limits: Sequence[float], elapsed: Sequence[float], shares: Sequence[float]
) -> Floats:
    """Seconds that each job that has run for ``elapsed`` will run still, (jobs, shares): quantiles of the same run
    times, of those beyond the elapsed time. At most what its limit leaves; inf without one, where nothing is known.

    A prediction of one length is taken as it is. One that has passed gives the next correction of ``expected_run``.
    """
    if not predictions:
        return np.ones((0, len(shares)))
    most, begun = np.array(limits, dtype=np.float64), np.array(elapsed, dtype=np.float64)
    points = np.log(_points(predictions, np.maximum(most, 1.0)))
    least = _share_below(points, np.log(np.maximum(begun, 1.0)))[:, None]
    found = np.exp(_quantile(points, least + (1.0 - least) * np.array(shares, dtype=np.float64)))
    p10, p50, p90 = np.array([(one.p10, one.p50, one.p90) for one in predictions], dtype=np.float64).T
    is_certain, is_passed = p10 >= p90, least[:, 0] > _ALMOST_ALL
    found[is_certain] = p50[is_certain, None]
    for at in np.flatnonzero(is_passed | (is_certain & (begun >= p50))).tolist():
        found[at] = expected_run(float(p50[at]), float(begun[at]), float(most[at]))
    left: Floats = np.minimum(found, most[:, None]) - begun[:, None]
    return np.maximum(left, 0.0)


def _points(predictions: Sequence[Prediction], limits: Floats) -> Floats:
    """Run times at the shares of ``_SHARES``. A job without limit, and without history, is taken to run for a year."""
    known = np.array([(one.p10, one.p50, one.p90) for one in predictions], dtype=np.float64)
    known = np.minimum(known, 365 * 86400.0)
    least = np.maximum(1.0, known[:, 0] * _SHORTEST_OF_P10)
    certain = known[:, 0] >= known[:, 2]  # as from a limit alone
    least[certain] = known[certain, 0]
    most = np.where(certain, known[:, 2], np.minimum(limits, known[:, 2] * _LONGEST_OF_P90))
    found = np.maximum(np.column_stack((least, known, np.maximum(most, known[:, 2]))), 1.0)
    return np.asarray(found, dtype=np.float64)


def _quantile(points: Floats, shares: Floats) -> Floats:
    piece = np.clip(np.searchsorted(_SHARES, shares, side="right") - 1, 0, len(_SHARES) - 2)
    low, high = np.take_along_axis(points, piece, axis=1), np.take_along_axis(points, piece + 1, axis=1)
    part = (shares - _SHARES[piece]) / (_SHARES[piece + 1] - _SHARES[piece])
    return np.asarray(low + (high - low) * part, dtype=np.float64)


def _share_below(points: Floats, value: Floats) -> Floats:
    """For each job, the share of its predicted run times that are shorter."""
    found = np.zeros(len(points))
    for piece in range(len(_SHARES) - 1):
        low, high = points[:, piece], points[:, piece + 1]
        part = np.clip((value - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)
        inside = value > low
        found[inside] = (_SHARES[piece] + (_SHARES[piece + 1] - _SHARES[piece]) * part)[inside]
    return found
