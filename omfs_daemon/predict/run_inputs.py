"""What a trained model knows of a job: its limit and CPUs, and the latest run times of jobs that are alike.

The numbers are of what had ended by then, so that no later job can change them. The simulator compiles
``describe_latest``, and does the rest likewise (``simulate/kernels/run_history.py``; tests hold both equal).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import exp, fabs, inf, log
from operator import attrgetter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.predict.features import JobFeatures, all_alike
from omfs_daemon.predict.ladder import RUNGS
from omfs_daemon.predict.prediction import LEAST_SECONDS
from omfs_daemon.predict.similar import SIMILAR_FADING, SIMILAR_KINDS, SIMILAR_LATEST, RunTimes, most_accurate

WAYS: tuple[tuple[str, ...], ...] = (*RUNGS, (), *(kind for kind, _ in SIMILAR_KINDS if kind not in RUNGS))
"""The ways in which jobs are alike, by features: those of ``ladder``, then those that only ``similar`` has."""
GUESSED_BY = tuple((WAYS.index(kind), weight) for kind, weight in SIMILAR_KINDS)
"""By which of them, and with which weights, the first guess is made, which is that of ``similar``."""
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OWN_INPUTS, INPUTS_OF_WAY = 3, 5
INPUTS = OWN_INPUTS + INPUTS_OF_WAY * len(WAYS)
_ALL_THAT_COUNTS = attrgetter(*SIMILAR_KINDS[0][0])
"""The most special of these kinds has the features of all."""
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
    """The latest run times of each kind of jobs. What they say is worked out once: many jobs of a queue are alike."""

    def __init__(self) -> None:
        keys: list[Callable[[JobFeatures], object]] = [attrgetter(*way) if way else all_alike for way in WAYS]
        self._ways = tuple((key, dict[object, int]()) for key in keys)
        self._latest: list[deque[float]] = [deque()]
        """By number of a kind; 0: nothing has ended."""
        self._said: Floats = np.zeros((1, INPUTS_OF_WAY))
        """By number of a kind, as ``describe_latest`` does with a first guess of 0, but for those that are stale."""
        self._stale: set[int] = set()
        self._guesses: dict[str, dict[object, float]] = {}
        """First guesses in seconds by user, and by all features that count."""

    def ended(self, job: JobFeatures, run: float) -> None:
        """Learn a run time, in seconds."""
        for key, known in self._ways:
            kind = key(job)
            number = known.get(kind)
            if number is None:
                number = known[kind] = len(self._latest)
                self._latest.append(deque(maxlen=SIMILAR_LATEST))
            self._latest[number].appendleft(max(run, LEAST_SECONDS))
            self._stale.add(number)
        self._guesses[job.user] = {}

    def inputs(self, job: JobFeatures) -> RunInputs:
        """What is known of a job now."""
        values = self.inputs_of_all([job])[0].tolist()
        return RunInputs(values[0], values)

    def inputs_of_all(self, jobs: Sequence[JobFeatures]) -> Floats:
        """The values of the inputs of each of these jobs."""
        found = [[known.get(key(job), 0) for key, known in self._ways] for job in jobs]
        numbers = np.array(found, dtype=np.int64).reshape(len(jobs), len(WAYS))
        self._say(numbers)
        own = []
        for job, kinds in zip(jobs, numbers.tolist(), strict=True):
            limit, described = max(job.limit, LEAST_SECONDS), [0.0] * OWN_INPUTS
            describe_job(log(self._guess(job, limit, kinds)), limit, float(job.cpus), described)
            own.append(described)
        values = np.zeros((len(jobs), INPUTS))
        values[:, :OWN_INPUTS] = np.array(own).reshape(len(jobs), OWN_INPUTS)
        said = self._said[numbers]
        said[:, :, 1:4] -= np.where(numbers > 0, values[:, :1], 0.0)[:, :, None]
        values[:, OWN_INPUTS:] = said.reshape(len(jobs), -1)
        return values

    def _say(self, numbers: Ints) -> None:
        """Work out what is stale of these kinds."""
        if len(self._said) < len(self._latest):
            more = np.zeros((len(self._latest), INPUTS_OF_WAY))  # twice as many as there are
            self._said = np.concatenate((self._said, more))
        for number in self._stale.intersection(np.unique(numbers).tolist()):
            latest = self._latest[number]
            describe_latest(latest, len(latest), 0.0, self._said[number], 0)
            self._stale.discard(number)

    def _guess(self, job: JobFeatures, limit: float, kinds: Sequence[int]) -> float:
        """Seconds."""
        known = self._guesses.get(job.user)
        if known is None:  # no job of the user has ended
            return limit if limit < inf else UNKNOWN_SECONDS
        kind = _ALL_THAT_COUNTS(job)
        found = known.get(kind)
        if found is None:
            found = known[kind] = self._most_accurate(limit, kinds)
        return found

    def _most_accurate(self, limit: float, kinds: Sequence[int]) -> float:
        pairs = list[tuple[float, float]]()
        for way, most in GUESSED_BY:
            weight = most
            for run in self._latest[kinds[way]]:
                pairs.append((min(run, limit), weight))
                weight *= SIMILAR_FADING
        pairs.sort()
        return most_accurate([run for run, _ in pairs], [weight for _, weight in pairs], len(pairs))


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
