"""How much later than estimated starts have come, and p90 by that. Pure.

Draws know nothing of jobs that come later and overtake, and take the errors of run times to have nothing in common. On
recorded workloads seven starts in ten came before the p90 of the draws (docs/predictions.md). So p90 is no earlier
than what nine in ten of the latest starts kept to: split conformal prediction, of the wait over its p50.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from omfs_daemon.predict.start_times import StartQuantiles

LATEST, ENOUGH = 200, 20
"""So many of the latest starts count; of fewer than ``ENOUGH`` nothing is concluded."""
_LEAST = 60.0
"""Seconds that are added to every wait: of shorter ones the ratio says little."""


class ForeseenWait(NamedTuple):
    """Seconds until a start, from when it was estimated: p50, and what came."""

    expected: float
    came: float


def lateness(waits: Sequence[ForeseenWait]) -> float:
    """How many times its p50 a wait takes at most, with nine chances in ten; 1 if too few are known."""
    if len(waits) < ENOUGH:
        return 1.0
    ratios = sorted((max(0.0, one.came) + _LEAST) / (max(0.0, one.expected) + _LEAST) for one in waits)
    return max(1.0, ratios[min(len(ratios), ceil(0.9 * (len(ratios) + 1))) - 1])


def widened(start: StartQuantiles, late: float) -> StartQuantiles:
    """With a p90 no earlier than what starts are late."""
    return start._replace(p90=max(start.p90, late * (start.p50 + _LEAST) - _LEAST))
