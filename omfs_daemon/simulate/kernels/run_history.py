"""Run times learned and predicted inside a simulation, where a job has ended when it ends in the simulated schedule.

The same predictions as those of ``omfs_daemon.predict``, in numbers (tests hold each equal).
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.predict.ladder import ENOUGH, FADING
from omfs_daemon.predict.run_inputs import INPUTS_OF_WAY, OWN_INPUTS, describe_job, describe_latest, seconds_of
from omfs_daemon.predict.similar import SIMILAR_FADING, SIMILAR_LATEST, most_accurate
from omfs_daemon.simulate.kernels.compiling import kernel, part

NOT_LEARNED, MEAN_OF_LATEST, MEAN_OF_ALL, MOST_ACCURATE, MEDIAN_OF_LATEST, BY_MODEL = range(6)
"""Rules: nothing is learned, estimates are given; the mean of the latest jobs of the first kind of which any has ended,
or of all; the most accurate of the latest jobs of all kinds; the weighted median of the latest jobs of the first kind
of which two have ended; a trained model, and until there is one, that median."""

DAY = 86400.0


class ModelTrees(NamedTuple):
    """Those of the median: see ``BoostedTrees``."""

    roots: Ints
    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    value: Floats


class ModelUse(NamedTuple):
    """What is known in one round of a simulation with a trained model. By job of the workload:

    cpus
    given   seconds that were predicted in earlier rounds; nan: not yet
    made    what this round predicts is written here
    inputs  of the model, are written here, a row a job

    place   the number in the workload of each job that is simulated
    coming  jobs from this number on come after this round; their limits count
    """

    trees: ModelTrees
    cpus: Ints
    given: Floats
    made: Floats
    inputs: Floats
    place: Ints
    coming: int


class RunHistory(NamedTuple):
    """rule     one of the five
    kinds    the kind of each job in each way in which jobs are alike: a row a job; the most special first
    guessed, weights  by which ways, with which weights, the most accurate run time is sought
    medians  so many of the first ways count for a median
    latest   run times, a row a kind, each written over the oldest
    total, number  of all run times of a kind: their sum, how many
    limit    seconds, by job; inf: none, or nothing is learned and no estimate is held to it
    unknown  seconds predicted while nothing has ended; nan: the limit
    runs, shares   room for the run times and weights of one prediction
    """

    rule: int
    kinds: Ints
    guessed: Ints
    weights: Floats
    medians: int
    latest: Floats
    total: Floats
    number: Ints
    limit: Floats
    unknown: float
    runs: Floats
    shares: Floats
    model: ModelUse


@kernel
def numbered_kinds(columns: Ints, number: int) -> Ints:
    """For each column of ``columns`` a number that equal columns share, from ``number`` up in the order in which they
    are first met."""
    jobs = columns.shape[1]
    size = 4
    while size < 2 * jobs:
        size *= 2
    table, found = np.full(size, -1, np.int64), np.empty(jobs, np.int64)
    for job in range(jobs):
        mixed = np.uint64(0)
        for field in range(columns.shape[0]):
            mixed = (mixed ^ np.uint64(columns[field, job])) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(32)
        place = np.int64(mixed & np.uint64(size - 1))
        while table[place] >= 0 and not _are_equal(columns, table[place], job):
            place = (place + 1) & (size - 1)
        if table[place] < 0:
            table[place] = job
            found[job] = number
            number += 1
        else:
            found[job] = found[table[place]]
    return found


@part
def _are_equal(columns: Ints, one: int, other: int) -> bool:
    field = 0
    while field < columns.shape[0] and columns[field, one] == columns[field, other]:
        field += 1
    return bool(field == columns.shape[0])


@part
def learn_run(history: RunHistory, job: int, run: float) -> None:
    """The job has ended."""
    if history.rule == NOT_LEARNED:
        return
    for way in range(history.kinds.shape[1]):
        kind = history.kinds[job, way]
        history.latest[kind, history.number[kind] % history.latest.shape[1]] = run
        history.total[kind] += run
        history.number[kind] += 1


@part
def predicted(history: RunHistory, job: int) -> float:
    """Seconds that the job is expected to run: at least one, at most its limit. One without a limit of whose kind
    nothing has ended is taken to run for a day."""
    limit = max(history.limit[job], 1.0)
    expected = history.unknown
    if np.isnan(expected):
        expected = limit if limit < np.inf else DAY
    if history.rule == BY_MODEL:
        return _by_model(history, job, limit, expected)
    if history.rule == MOST_ACCURATE:
        return _most_accurate(history, job, limit, expected)
    if history.rule == MEDIAN_OF_LATEST:
        return _median(history, job, limit, expected)
    room = history.latest.shape[1]
    for way in range(history.kinds.shape[1]):
        kind = history.kinds[job, way]
        number = history.number[kind]
        if number > 0:
            if history.rule == MEAN_OF_ALL:
                expected = history.total[kind] / number
            else:
                known, expected = min(number, room), 0.0
                for place in range(known):
                    expected += history.latest[kind, place]
                expected /= known
            break
    return float(min(max(expected, 1.0), limit))


@part
def _most_accurate(history: RunHistory, job: int, limit: float, unknown: float) -> float:
    count, room = 0, history.latest.shape[1]
    for at in range(len(history.weights)):
        kind = history.kinds[job, history.guessed[at]]
        weight = history.weights[at]
        for age in range(min(history.number[kind], SIMILAR_LATEST)):
            run = history.latest[kind, (history.number[kind] - 1 - age) % room]
            _insert(history, count, min(max(run, 1.0), limit), weight)
            weight *= SIMILAR_FADING
            count += 1
    return float(most_accurate(history.runs, history.shares, count)) if count > 0 else unknown


@part
def _insert(history: RunHistory, count: int, run: float, weight: float) -> None:
    """Among so many run times and weights that are in order."""
    place = count
    while place > 0 and (
        history.runs[place - 1] > run or (history.runs[place - 1] == run and history.shares[place - 1] > weight)
    ):
        history.runs[place], history.shares[place] = history.runs[place - 1], history.shares[place - 1]
        place -= 1
    history.runs[place], history.shares[place] = run, weight


@part
def _median(history: RunHistory, job: int, limit: float, unknown: float) -> float:
    expected = unknown
    for way in range(history.medians):
        if history.number[history.kinds[job, way]] >= ENOUGH:
            expected = _median_of_latest(history, history.kinds[job, way])
            break
    return float(min(max(expected, 1.0), limit))


@part
def _by_model(history: RunHistory, job: int, limit: float, unknown: float) -> float:
    """See ``omfs_daemon.predict.gbm``."""
    model, place = history.model, history.model.place[job]
    if not np.isnan(model.given[place]):
        return float(model.given[place])
    if place >= model.coming:
        return unknown
    guess = log(_most_accurate(history, job, limit, unknown))
    values = model.inputs[place]
    describe_job(guess, limit, float(model.cpus[place]), values)
    room = history.latest.shape[1]
    for way in range(history.kinds.shape[1]):
        kind = history.kinds[job, way]
        count = min(history.number[kind], SIMILAR_LATEST)
        for age in range(count):
            history.runs[age] = max(history.latest[kind, (history.number[kind] - 1 - age) % room], 1.0)
        describe_latest(history.runs, count, guess, values, OWN_INPUTS + INPUTS_OF_WAY * way)
    trees = model.trees
    if len(trees.roots) == 0:
        expected = _median(history, job, limit, unknown)
    else:
        total = 0.0
        for at in range(len(trees.roots)):
            node = trees.roots[at]
            while trees.left[node] != node:
                low = values[trees.feature[node]] <= trees.threshold[node]
                node = trees.left[node] if low else trees.right[node]
            total += trees.value[node]
        expected = min(max(seconds_of(guess, total), 1.0), limit)
    model.made[place] = expected
    return float(expected)


@part
def _median_of_latest(history: RunHistory, kind: int) -> float:
    """The least run time that at least half of the weight does not exceed (``predict.prediction.weighted_quantiles``);
    newer ones weigh more."""
    room = history.latest.shape[1]
    count = min(history.number[kind], room)
    total = 0.0
    for at in range(count):  # the oldest first, in order of run time
        run = history.latest[kind, (history.number[kind] - count + at) % room]
        weight = FADING ** (count - 1 - at)
        total += weight
        _insert(history, at, run, weight)
    reached, at = 0.0, 0
    while reached < 0.5 * total * (1 - 1e-12):
        reached += history.shares[at]
        at += 1
    return float(history.runs[max(at - 1, 0)])


@kernel
def predictions_along(submit: Floats, finish: Floats, ended: Ints, run: Floats, history: RunHistory) -> Floats:
    """What is predicted of each job when it comes, in a schedule that does not depend on it; jobs in order of
    submission, ``ended`` in order of their ends. At one instant ends come before arrivals, but those of jobs of no
    length, last in ``ended``, after: they have begun in the pass between."""
    found, done = np.empty(len(submit)), 0
    for job in range(len(submit)):
        while done < len(ended) and (
            finish[ended[done]] < submit[job] or (finish[ended[done]] == submit[job] and run[ended[done]] > 0)
        ):
            learn_run(history, ended[done], run[ended[done]])
            done += 1
        found[job] = predicted(history, job)
    return found
