"""What a trained model knows of a job: its limit and CPUs, and the latest run times of jobs that are alike.

The numbers are of what had ended by then, so that no later job can change them. The simulator compiles
``describe_latest``, and does the rest likewise (``simulate/kernels/run_history.py``; tests hold both equal).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import exp, fabs, inf, log
from operator import attrgetter
from typing import NamedTuple, Protocol

from omfs_daemon.predict.features import JobFeatures, all_alike
from omfs_daemon.predict.ladder import RUNGS
from omfs_daemon.predict.prediction import LEAST_SECONDS
from omfs_daemon.predict.similar import SIMILAR_FADING, SIMILAR_KINDS, SIMILAR_LATEST, RunTimes, most_accurate

WAYS: tuple[tuple[str, ...], ...] = (*RUNGS, (), *(kind for kind, _ in SIMILAR_KINDS if kind not in RUNGS))
"""The ways in which jobs are alike, by features: those of ``ladder``, then those that only ``similar`` has."""
GUESSED_BY = tuple((WAYS.index(kind), weight) for kind, weight in SIMILAR_KINDS)
"""By which of them, and with which weights, the first guess is made, which is that of ``similar``."""
OWN_INPUTS, INPUTS_OF_WAY = 3, 5
INPUTS = OWN_INPUTS + INPUTS_OF_WAY * len(WAYS)
UNKNOWN_SECONDS = 86400.0
"""The first guess for a job without a limit of whose kind nothing has ended."""
LONGEST_SECONDS = 1e9


class Inputs(Protocol):
    """A list or an array."""

    def __setitem__(self, at: int, value: float, /) -> None: ...


class RunInputs(NamedTuple):
    """``guess``: logarithm of seconds, from which the model goes on; ``values``: the ``INPUTS`` of the model."""

    guess: float
    values: list[float]


class LatestRuns:
    """The latest run times of each kind of jobs."""

    def __init__(self) -> None:
        keys: list[Callable[[JobFeatures], object]] = [attrgetter(*way) if way else all_alike for way in WAYS]
        self._ways = tuple((key, dict[object, deque[float]]()) for key in keys)

    def ended(self, job: JobFeatures, run: float) -> None:
        """Learn a run time, in seconds."""
        for key, known in self._ways:
            known.setdefault(key(job), deque(maxlen=SIMILAR_LATEST)).appendleft(max(run, LEAST_SECONDS))

    def inputs(self, job: JobFeatures) -> RunInputs:
        """What is known of a job now."""
        latest = [known.get(key(job), ()) for key, known in self._ways]
        limit = max(job.limit, LEAST_SECONDS)
        runs: list[float] = []
        weights: list[float] = []
        for way, most in GUESSED_BY:
            weight = most
            for run in latest[way]:
                runs.append(min(run, limit))
                weights.append(weight)
                weight *= SIMILAR_FADING
        unknown = limit if limit < inf else UNKNOWN_SECONDS
        guess = log(most_accurate(runs, weights, len(runs)) if runs else unknown)
        values = [0.0] * INPUTS
        describe_job(guess, limit, float(job.cpus), values)
        for way, known in enumerate(latest):
            describe_latest(known, len(known), guess, values, OWN_INPUTS + INPUTS_OF_WAY * way)
        return RunInputs(guess, values)


def describe_job(guess: float, limit: float, cpus: float, values: Inputs) -> None:
    """Write the ``OWN_INPUTS``. ``guess``: logarithm of seconds."""
    values[0] = guess
    values[1] = log(min(limit, LONGEST_SECONDS)) - guess
    values[2] = log(max(cpus, 1.0))


def describe_latest(runs: RunTimes, count: int, guess: float, values: Inputs, at: int) -> None:
    """Write from ``at`` on what so many run times (seconds, at least 1, the newest first) say: how many they are, and
    of their logarithms above ``guess`` the newest, the one before it, the mean, newer ones weighing more, and their
    mean distance from it."""
    for place in range(INPUTS_OF_WAY):
        values[at + place] = 0.0
    if count == 0:
        return
    mean, total, weight = 0.0, 0.0, 1.0
    for age in range(count):
        mean += weight * log(runs[age])
        total += weight
        weight *= SIMILAR_FADING
    mean /= total
    spread, weight = 0.0, 1.0
    for age in range(count):
        spread += weight * fabs(log(runs[age]) - mean)
        weight *= SIMILAR_FADING
    values[at] = float(count)
    values[at + 1] = log(runs[0]) - guess
    values[at + 2] = log(runs[min(1, count - 1)]) - guess
    values[at + 3] = mean - guess
    values[at + 4] = spread / total


def target_of(guess: float, run: float) -> float:
    """What the model is to predict: how much the logarithm of the run time (seconds) is above the first guess."""
    return log(max(run, LEAST_SECONDS)) - guess


def seconds_of(guess: float, predicted: float) -> float:
    """The run time that a prediction means."""
    return exp(min(guess + predicted, log(LONGEST_SECONDS)))
