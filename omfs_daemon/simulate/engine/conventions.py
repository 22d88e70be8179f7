"""The conventions that decide the numbers of a simulation; every result prints them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.simulate.engine.model_round import ModelRound
from omfs_daemon.simulate.workload.workload import Workload


class Predictor(Protocol):
    """Predicts how long jobs will run. ``estimates`` may use, for each job, only what was known at its submission."""

    @property
    def name(self) -> str:
        """For people."""

    def estimates(self, workload: Workload) -> Floats:
        """Seconds, one entry per job, all above 0."""


class UserLimits:
    """The users' time limits; a job without a known limit counts with its run time."""

    name = "the users' limits"

    def estimates(self, workload: Workload) -> Floats:
        known = np.isfinite(workload.limit) & (workload.limit > 0)
        return np.where(known, workload.limit, workload.run)


@dataclass(frozen=True, slots=True, eq=False)
class GivenEstimates:
    """Seconds for each job of one workload, from elsewhere."""

    name: str
    seconds: Floats

    def estimates(self, workload: Workload) -> Floats:
        """At least a second each."""
        return np.maximum(self.seconds, 1.0)


@dataclass(frozen=True, slots=True)
class Conventions:
    """How a trace is replayed.

    estimates  what the policy takes a job's run time to be; None: exactly as long as it will run
    kill       whether a job is ended at its limit (run = min(run, limit))
    bound      seconds; the shortest run time that the bounded slowdown counts with
    learning   the name of a predictor that learns from the jobs that end in the simulation; it takes the place of
               ``estimates``, which are None then, and of the users' limits, which are known from the start
    for_victims_only  what is learned says only who is preempted first; all else goes by the users' limits
    model      of the present round, where a trained model predicts (``policies/model_rounds.py``)
    """

    estimates: Predictor | None = None
    kill: bool = True
    bound: float = 10.0
    learning: str | None = None
    for_victims_only: bool = False
    model: ModelRound | None = None

    def sentences(self) -> tuple[str, ...]:
        """For people, beside every result."""
        name = "exact (the run time as it will be)" if self.estimates is None else self.estimates.name
        if self.learning is not None:
            name = f"predicted by {self.learning} from the jobs that have ended in the simulation, at most the limits"
            if self.for_victims_only:
                name = f"the users' limits; for the order of victims, {name}"
        return (
            f"estimates: {name}",
            "jobs end at their limit at the latest" if self.kill else "jobs run past their limit if they need to",
            "at one instant: ends, then arrivals, then one scheduling pass",
            f"bounded slowdown counts run times below {self.bound:g} s as {self.bound:g} s, slowdown below 1 s as 1 s",
            "means are over the jobs that were done, not weighted",
            "refused is a job wider than the machine; under partition and capping, and under omfs if it can never be "
            "preempted, also one wider than what its account owns",
        )


class Jobs(NamedTuple):
    """The workload as a kernel sees it, in order of submission.

    submit, run, estimate: seconds; run is what the job will really take, estimate what the policy believes.
    """

    submit: Floats
    cpus: Ints
    run: Floats
    estimate: Floats


def replayed_run_times(workload: Workload, conventions: Conventions) -> Floats:
    """Seconds that each job runs if it is not preempted."""
    return np.minimum(workload.run, workload.limit) if conventions.kill else workload.run


def prepared(workload: Workload, conventions: Conventions) -> Jobs:
    """The workload as a kernel sees it under these conventions."""
    run = replayed_run_times(workload, conventions)
    known = UserLimits() if conventions.learning is not None else conventions.estimates
    estimate = run if known is None else known.estimates(workload)
    return Jobs(workload.submit, workload.cpus, run, np.ascontiguousarray(estimate, dtype=np.float64))


def fitting_jobs(workload: Workload, cpus: int) -> Bools:
    """Which jobs a machine of so many CPUs can run at all; the others are refused."""
    fitting: Bools = workload.cpus <= cpus
    return fitting
