"""EASY with run times that are learned in the simulated schedule: plain Python, with the plain predictors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isinf, log, nan

import numpy as np

from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.gbm import GbmPredictor
from omfs_daemon.predict.gbm_training import LEAST_JOBS, MOST_JOBS, trained
from omfs_daemon.predict.prediction import HowEnded, RunTimePredictor
from omfs_daemon.predict.predictor_table import new_predictor
from omfs_daemon.predict.run_inputs import RunInputs
from omfs_daemon.simulate.engine.conventions import Conventions, replayed_run_times
from omfs_daemon.simulate.workload.workload import Workload
from tests.support.reference import CORRECTIONS

DAY = 86400.0


class PlainTraining:
    """A model for each day, when its first job comes, of what ended before the day. ``ended``: (when, job, run)."""

    def __init__(self, predictor: GbmPredictor) -> None:
        self.ended: list[tuple[float, int, float]] = []
        self.models = 0
        self._predictor = predictor
        self._day = -1
        self._seen: dict[int, RunInputs] = {}

    def arrive(self, job: int, features: JobFeatures, now: float) -> None:
        if int(now / DAY) > self._day:
            self._day = int(now / DAY)
            self._train()
        self._seen[job] = self._predictor.inputs(features)

    def _train(self) -> None:
        before = sorted(one for one in self.ended if one[0] < self._day * DAY)[-MOST_JOBS:]
        if len(before) < LEAST_JOBS:
            return
        values = [self._seen[job].values for _, job, _ in before]
        targets = [log(max(run, 1.0)) - self._seen[job].guess for _, job, run in before]
        self._predictor.use(trained(np.array(values), np.array(targets)))
        self.models += 1


@dataclass(frozen=True)
class LearnedJob:
    index: int
    submit: float
    cpus: int
    run: float
    features: JobFeatures
    estimate: float = nan
    start: float = nan

    @property
    def end(self) -> float:
        return self.start + self.run

    def expected_end(self, now: float) -> float:
        """At its limit at the latest; beyond that, what its limit says."""
        limit = self.start + self.features.limit
        end = min(_put_off(self.start + self.estimate, now), limit)
        return end if end > now else _put_off(limit, now)


def _put_off(end: float, now: float) -> float:
    """The end, or the first correction of it that is still to come. In times, not in durations: a prediction that
    passes at this very instant must not look open because of rounding."""
    steps = [0.0, *CORRECTIONS, *(times * CORRECTIONS[-1] for times in range(2, 1000))]
    return next(end + step for step in steps if end + step > now)


def learned_replay(
    workload: Workload, conventions: Conventions, capacity: int, shortest_first: bool
) -> tuple[list[float], list[float]]:
    """Start and estimate of each job by index; nan for one that is wider than the machine."""
    assert conventions.learning is not None
    predictor = new_predictor(conventions.learning)
    training = PlainTraining(predictor) if isinstance(predictor, GbmPredictor) else None
    run = replayed_run_times(workload, conventions).tolist()
    coming = [
        LearnedJob(
            index, float(workload.submit[index]), int(workload.cpus[index]), run[index], features(workload, index)
        )
        for index in range(len(workload))
        if workload.cpus[index] <= capacity
    ]
    starts, estimates = [nan] * len(workload), [nan] * len(workload)
    waiting: list[LearnedJob] = []
    running: list[LearnedJob] = []
    while coming or running:
        now = min([job.submit for job in coming] + [job.end for job in running])
        for job in sorted((job for job in running if job.end <= now), key=lambda job: (job.end, job.index)):
            predictor.ended(job.features, job.run, HowEnded.BY_ITSELF)
            if training is not None:
                training.ended.append((job.end, job.index, job.run))
        running = [job for job in running if job.end > now]
        while coming and coming[0].submit <= now:
            job = coming.pop(0)
            if training is not None:
                training.arrive(job.index, job.features, job.submit)
            waiting.append(replace(job, estimate=predicted_seconds(predictor, job.features)))
            estimates[job.index] = waiting[-1].estimate
        for job in started_now(now, capacity, waiting, running, shortest_first):
            starts[job.index] = now
            waiting = [other for other in waiting if other.index != job.index]
            running.append(replace(job, start=now))
    assert not waiting
    return starts, estimates


def features(workload: Workload, index: int) -> JobFeatures:
    name = workload.job_names[workload.job_name[index]]
    user = workload.users[workload.user[index]]
    account = workload.accounts[workload.account[index]]
    cpus, limit = int(workload.cpus[index]), float(workload.limit[index])
    return JobFeatures(user=user, account=account, command=name, name=name, cpus=cpus, limit=limit)


def predicted_seconds(predictor: RunTimePredictor, job: JobFeatures) -> float:
    found = predictor.predict(job).p50
    return DAY if isinf(found) else found


def started_now(
    now: float, capacity: int, waiting: list[LearnedJob], running: list[LearnedJob], shortest_first: bool
) -> list[LearnedJob]:
    """One pass, everything worked out anew."""
    free = capacity - sum(job.cpus for job in running)
    ends = [(job.expected_end(now), job.cpus) for job in running]
    started: list[LearnedJob] = []
    queue = list(waiting)
    while queue and queue[0].cpus <= free:
        started.append(queue.pop(0))
        free -= started[-1].cpus
        ends.append((now + started[-1].estimate, started[-1].cpus))
    if not queue:
        return started
    head, *others = queue

    def shadow() -> float:
        there = free
        for end, cpus in sorted(ends):
            there += cpus
            if there >= head.cpus:
                return end
        raise AssertionError("the head never fits")

    promised = shadow()
    for job in sorted(others, key=lambda job: job.estimate) if shortest_first else others:
        if job.cpus > free:
            continue
        ends.append((now + job.estimate, job.cpus))
        free -= job.cpus
        if shadow() <= promised:
            started.append(job)
        else:
            ends.pop()
            free += job.cpus
    return started
