"""How much is tried: a sample in every run, everything in a soak (``--soak``)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")

SOAK_VARIABLE = "OMFS_SOAK"
"""Set by ``--soak``, for the workers too."""

EXAMPLES = 25
"""Examples of a property; in a soak ``SOAK_EXAMPLES``, so that all properties together get at least ``SOAK_TOTAL``."""

SOAK_EXAMPLES = 4_000
SOAK_TOTAL = 100_000


def is_soak() -> bool:
    return bool(os.environ.get(SOAK_VARIABLE))


def sample(everything: Sequence[_T], few: int) -> Sequence[_T]:
    """All in a soak, else ``few`` of them, from the first to the last at even distances."""
    if is_soak() or len(everything) <= few:
        return everything
    if few == 1:
        return everything[:1]
    return [everything[round(place * (len(everything) - 1) / (few - 1))] for place in range(few)]
