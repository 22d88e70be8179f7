"""What Murata, Egawa, Higashida and Kobayashi print of their simulation and of their system test."""

from __future__ import annotations

from typing import NamedTuple

MEANS = tuple(100.0 * 2**kind for kind in range(10))
"""Mean run time of each kind of jobs, in seconds (Table I); the text says six kinds, the table has ten."""
SIGMA = 11.0
"""Standard deviation of each kind, in seconds (Table I)."""
POPULATION = 30
UNTIL = 1_000_000.0
RUNS = 20


class Summary(NamedTuple):
    """Table II; seconds, except ``jobs``, the number of those that were done. The text gives the mean of twenty runs;
    whether the maximum is the mean or the largest of them it does not say."""

    jobs: float
    mean_wait: float
    max_wait: float
    deviation: float


PUBLISHED = {
    "history": Summary(3914, 7131, 81464, 6477),
    "round-robin": Summary(3458, 8085, 94113, 10368),
}

SIZES = {"small": 30.0, "middle": 40.0, "large": 200.0}
"""Seconds."""
SUBMITTED = ("small", "middle", "large", "middle", "small", "small", "small", "middle")
"""Table III, in the order of submission."""
PRINTED_SITES = ("", "", "queue", *["reservation"] * 4, "")
"""What the text says of where they went; it is silent on the others."""
