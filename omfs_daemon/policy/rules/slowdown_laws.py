"""The laws of real-time jobs: slowdown, category, and what a victim costs (Nickolay et al. 2021, sections 6.1 to 6.3).

Plain functions of numbers, in seconds and CPUs, which also compile.
"""

from __future__ import annotations

from math import inf, log2

NARROW_SHORT, NARROW_LONG, WIDE_SHORT, WIDE_LONG = range(4)
CATEGORIES = ("narrow-short", "narrow-long", "wide-short", "wide-long")

NARROW_PERCENT = 100 * 4096 / 49152
"""Most CPUs of a narrow job, in percent of the machine."""
SHORT_SECONDS = 7200.0
"""Longest time limit of a short job."""
VICTIM_MAX_SLOWDOWN = (1.5, 1.5, 17.31, 4.77)
"""By category: a regular job whose estimated slowdown is greater is not preempted (the authors' settings for Mira)."""

CHECKPOINT_UNIT = 900.0
NEARLY_DONE_SECONDS = 900.0
NEARLY_DONE_FACTOR = 5.0


def waiting_slowdown(submit: float, limit: float, now: float) -> float:
    """Estimated slowdown of a waiting job that would start now (Eq. 56); 1 without a time limit."""
    if limit == inf:
        return 1.0
    return (limit + now - submit) / limit


def running_slowdown(submit: float, limit: float, now: float, run_seconds: float) -> float:
    """Estimated slowdown of a running job that uses its time limit up (Eq. 57, 58); ``run_seconds``: so far, without
    suspension. 1 without a time limit."""
    if limit == inf:
        return 1.0
    return (limit + now - run_seconds - submit) / limit


def threshold_crossing(submit: float, limit: float, threshold: float) -> float:
    """When the slowdown of a waiting job reaches the threshold; never without a time limit."""
    if limit == inf:
        return inf
    return submit + (threshold - 1.0) * limit


def category_of(cpus: int, limit: float, machine_cpus: int, narrow_percent: float, short_seconds: float) -> int:
    """The category's number."""
    wide = cpus * 100.0 > narrow_percent * machine_cpus
    return (WIDE_SHORT if wide else NARROW_SHORT) + (1 if limit > short_seconds else 0)


def slowdown_factor(slowdown: float) -> float:
    """S: a job that is late already costs more."""
    return log2(2.0 + slowdown)


def outlay_factor(seconds: float) -> float:
    """C, with measured costs: ``seconds`` to preempt and to restart the job, and of work that it loses."""
    return 1.0 + seconds / CHECKPOINT_UNIT


def remaining_factor(remaining: float, limit: float) -> float:
    """T: a job that is nearly done costs more."""
    if remaining <= min(limit / 4.0, NEARLY_DONE_SECONDS):
        return NEARLY_DONE_FACTOR
    return 1.0
