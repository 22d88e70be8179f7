"""UJFB by the slow replay, with run times that are learned from the jobs that end in it, by the plain predictors."""

from __future__ import annotations

from dataclasses import replace

from omfs_daemon.predict.prediction import HowEnded, expected_run
from omfs_daemon.predict.predictor_table import new_predictor
from omfs_daemon.simulate.engine.conventions import UserLimits
from omfs_daemon.simulate.engine.preemption_costs import SimulatedCosts
from omfs_daemon.simulate.engine.scenario import Scenario
from tests.support.reference import Job, jobs_of
from tests.support.reference_predictions import features, predicted_seconds
from tests.support.reference_reservations import corrected
from tests.support.reference_ujfb import Replay, Task


class LearnedReplay(Replay):
    """``predicted``: by index, seconds as of when the job came."""

    def __init__(self, scenario: Scenario, costs: SimulatedCosts, by_slowdown: bool) -> None:
        limits = replace(scenario.conventions, estimates=UserLimits(), learning=None)
        super().__init__(jobs_of(scenario.workload, limits), costs, scenario.machine.cpus, by_slowdown)
        assert scenario.conventions.learning is not None
        self.only_victims = scenario.conventions.for_victims_only
        self.predictor = new_predictor(scenario.conventions.learning)
        self.features = [features(scenario.workload, index) for index in range(len(scenario.workload))]
        self.predicted: dict[int, float] = {}

    def arrive(self, job: Job) -> None:
        """All jobs of one instant are predicted before any of them is served."""
        at_once = [other for other in self.jobs if job.submit == other.submit and other.index not in self.predicted]
        for other in at_once:
            self.predicted[other.index] = predicted_seconds(self.predictor, self.features[other.index])
        if not self.only_victims:
            job = replace(job, estimate=self.predicted[job.index])
            self.jobs = [job if other.index == job.index else other for other in self.jobs]
        super().arrive(job)

    def end(self, index: int) -> None:
        super().end(index)
        self.predictor.ended(self.features[index], self.tasks[index].job.run, HowEnded.BY_ITSELF)

    def latest(self, task: Task) -> float:
        return task.computing + (self.features[task.job.index].limit - task.done)

    def put_off(self, task: Task, now: float) -> float:
        end, latest = corrected(task.planned, now), self.latest(task)
        return end if end <= latest else max(latest, corrected(latest, now))

    def turn(self, index: int) -> float:
        task, limit = self.tasks[index], self.features[index].limit
        worked = task.done + max(0.0, self.now - task.computing)
        return max(0.0, expected_run(self.predicted[index], worked, limit) - worked)
