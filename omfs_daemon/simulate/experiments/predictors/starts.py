"""How good estimates of starts are: when a job that waits is submitted, and at every hour that it waits.

What is asked is what the daemon answers with (``omfs_daemon.starts``), at moments that are drawn; what comes is what
the simulated schedule has. At each moment the predictors have learned from the jobs that had ended by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import isfinite
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats
from omfs_daemon.cluster.jobs import Allocation, Job, JobState
from omfs_daemon.cluster.snapshot import PreemptedJob, PreemptionHistory, Snapshot
from omfs_daemon.config.build import rules
from omfs_daemon.config.schema import Config
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.prediction import LEAST_SECONDS, HowEnded, Prediction, RunTimePredictor, at_limit
from omfs_daemon.predict.predictor_table import new_predictor
from omfs_daemon.predict.start_times import StartQuantiles
from omfs_daemon.simulate.engine.conventions import Conventions, UserLimits
from omfs_daemon.simulate.engine.learned_runs import features_in
from omfs_daemon.simulate.engine.omfs_case import case_of
from omfs_daemon.simulate.engine.outcome import Outcome, Segments
from omfs_daemon.simulate.engine.planner_cluster import PARTITION, Cluster
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.experiments.predictors.predictor_cases import StartRow
from omfs_daemon.simulate.options import SimulationOptions, rules_for
from omfs_daemon.simulate.run_cases import Progress, SlurmArray, SweepCase, run_all
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload
from omfs_daemon.starts.start_estimates import start_estimates
from omfs_daemon.starts.track_record import NOTED_EVERY, TrackRecord, widened

STARTS_UNDER = ("easy", "omfs")
LIMITS, EXACT, PUBLISHED = "limits", "exact", "murata"
PREDICTED = (PUBLISHED, "ladder", "similar")
BASES = (LIMITS, EXACT, *PREDICTED)
"""What run times are taken to be: the limits, as Slurm does; as they will be, which no predictor can beat (not under
omfs, where a job that goes on from a checkpoint counts as if it ran anew); the means of Murata et al., of one length
each; and what the daemon's predictors say."""
MOMENTS = 2000
"""So many are drawn of each workload and policy."""
SOON = 600.0


class Moment(NamedTuple):
    """A job that waits, and when its start is asked for, in seconds."""

    job: int
    at: float


def simulate_starts(
    recorded: Sequence[tuple[Workload, Machine]], where: int | SlurmArray = 1, progress: Progress | None = None
) -> list[StartRow]:
    """Each workload under each policy, its jobs expected to run to their limits, by each basis."""
    cases = [
        SweepCase(f"{jobs.name} (starts)", policy, _scenario(jobs, machine, Conventions(estimates=UserLimits())))
        for jobs, machine in recorded
        for policy in STARTS_UNDER
    ]
    return [row for rows in run_all(cases, start_rows, where, progress) for row in rows]


def _scenario(jobs: Workload, machine: Machine, conventions: Conventions) -> Scenario:
    """All jobs write checkpoints; accounts have equal shares."""
    work = replace(jobs, mode=np.full(len(jobs), PreemptMode.CHECKPOINT, dtype=np.int64))
    return Scenario(work, machine, conventions, rules=rules_for(SimulationOptions(), work)[0])


def start_rows(outcome: Outcome, moments: int = MOMENTS) -> list[StartRow]:
    """The figures of one simulation, by basis. As in the daemon, p90 is widened by how late starts have come by then;
    not by limits, which is what Slurm has."""
    past = Past(outcome)
    found: dict[str, list[tuple[float, bool]]] = {basis: [] for basis in BASES}
    records = {basis: TrackRecord(np.random.default_rng(0)) for basis in BASES if basis != LIMITS}
    begun = iter(np.argsort(outcome.start, kind="stable").tolist())
    next_begun = next(begun, None)
    for moment in drawn_moments(outcome, moments):
        while next_begun is not None and outcome.start[next_begun] <= moment.at:
            for record in records.values():
                record.began(next_begun, float(outcome.start[next_begun]))
            next_begun = next(begun, None)
        came = float(outcome.start[moment.job])
        for basis, start in past.asked(moment):
            if not isfinite(start.p50):  # of starts more than 35 days ahead nothing is said
                continue
            if basis in records:
                start = widened(start, records[basis].late)
                records[basis].note(moment.job, moment.at, start)
            found[basis].append((abs(moment.at + start.p50 - came), came <= moment.at + start.p90))
    return [_row(outcome, basis, errors) for basis, errors in found.items()]


def drawn_moments(outcome: Outcome, count: int) -> list[Moment]:
    """In order of time, all equally likely: those at which jobs that waited were submitted, and each hour later."""
    wait = outcome.start - outcome.workload.submit
    often = np.where(wait > 0, np.maximum(np.ceil(wait / NOTED_EVERY), 1), 0).astype(np.int64)
    last = np.cumsum(often)
    total = int(last[-1]) if len(last) else 0
    drawn = np.sort(np.random.default_rng(0).choice(total, min(count, total), replace=False))
    jobs = np.searchsorted(last, drawn, side="right")
    hours = drawn - (last - often)[jobs]
    at = outcome.workload.submit[jobs] + NOTED_EVERY * hours
    order = np.argsort(at, kind="stable")
    return [Moment(int(jobs[one]), float(at[one])) for one in order]


def _row(outcome: Outcome, basis: str, scored: Sequence[tuple[float, bool]]) -> StartRow:
    errors, held = np.array([error for error, _ in scored]), [one for _, one in scored]
    figures = (np.nan,) * 4
    if scored:
        soon = (errors <= SOON).mean()
        figures = float(np.mean(held)), float(np.median(errors)), float(errors.mean()), float(soon)
    return StartRow(outcome.workload.name, outcome.policy, basis, len(scored), *figures)


class Past:
    """A simulated schedule as the daemon would have seen it, from moment to later moment."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        scenario = _scenario(outcome.workload, outcome.machine, outcome.conventions)
        self._cluster = Cluster(scenario, case_of(scenario))
        self._segments, self._run_since = _in_order(outcome.segments)
        self._ends = np.argsort(outcome.finish, kind="stable")  # jobs that never ended come last
        self._ended = 0
        self._features: dict[int, JobFeatures] = {}
        self._predictors: dict[str, RunTimePredictor] = {basis: new_predictor(basis) for basis in PREDICTED}

    def asked(self, moment: Moment) -> Iterator[tuple[str, StartQuantiles]]:
        """By basis, when the job will start by the draws: seconds from the moment."""
        self._learn_until(moment.at)
        snapshot, history = self._seen(moment.at)
        plan, rules = self._plan(snapshot, history)
        for basis in BASES:
            found = start_estimates(snapshot, plan, history, rules, self._predict(basis), moment.job)
            start = found.of(str(moment.job + 1))
            if start is not None:
                yield basis, start

    def _learn_until(self, now: float) -> None:
        finish, is_cut = self._outcome.finish, self._outcome.is_cut
        while self._ended < len(self._ends) and finish[self._ends[self._ended]] <= now:
            job = int(self._ends[self._ended])
            how = HowEnded.AT_LIMIT if is_cut[job] else HowEnded.BY_ITSELF
            features = features_in(self._outcome.workload, job)
            for predictor in self._predictors.values():
                predictor.ended(features, float(self._outcome.run[job]), how)
            self._features.pop(job, None)
            self._ended += 1

    def _seen(self, now: float) -> tuple[Snapshot, PreemptionHistory]:
        """After what happened at this instant."""
        holds: Bools = (self._segments.begin <= now) & (now < self._segments.end)
        runs = dict(zip(self._segments.job[holds].tolist(), self._run_since[holds].tolist(), strict=True))
        begun = self._outcome
        there = (begun.workload.submit <= now) & ~(begun.finish <= now) & ~begun.rejected
        jobs, preempted = dict[int, Job](), dict[str, PreemptedJob]()
        for index in np.flatnonzero(there).tolist():
            job = self._cluster.waiting_job(index)
            since = runs.get(index)
            if since is not None:
                held = (Allocation("n0", job.request.cpus, 0),)
                job = replace(
                    job, state=JobState.RUNNING, allocations=held, start=since, run_time=now - since,
                    partition=PARTITION,
                )  # fmt: skip
            elif begun.start[index] <= now:
                preempted[job.ref] = PreemptedJob(now, "requeue", "")
            jobs[job.id] = job
        known = self._cluster.snapshot
        return Snapshot(now, jobs, known.nodes, known.partitions), PreemptionHistory(preempted=preempted)

    def _plan(self, snapshot: Snapshot, history: PreemptionHistory) -> tuple[Plan, Rules]:
        """Without preemption jobs start in Slurm's order."""
        if self._outcome.policy != "omfs":
            return Plan(snapshot.taken, snapshot.taken), rules(Config(), ())
        return make_plan(snapshot, history, self._cluster.rules, snapshot.taken), self._cluster.rules

    def _predict(self, basis: str) -> Callable[[Sequence[Job]], list[Prediction]]:
        def predict(jobs: Sequence[Job]) -> list[Prediction]:
            return [self._predicted(basis, job.id - 1) for job in jobs]

        return predict

    def _predicted(self, basis: str, job: int) -> Prediction:
        if basis == EXACT:
            run = max(LEAST_SECONDS, float(self._outcome.run[job]))
            return Prediction(run, run, run, run, EXACT, 1)
        features = self._features.get(job)
        if features is None:
            features = self._features[job] = features_in(self._outcome.workload, job)
        if basis == LIMITS:
            return at_limit(features)
        found = self._predictors[basis].predict(features)
        if basis == PUBLISHED:
            return found._replace(p10=found.mean, p50=found.mean, p90=found.mean)
        return found


def _in_order(segments: Segments) -> tuple[Segments, Floats]:
    """By job and time; and since when each one's job has run without a break."""
    order = np.lexsort((segments.begin, segments.job))
    job, begin, end = segments.job[order], segments.begin[order], segments.end[order]
    first = np.ones(len(job), dtype=np.bool_)
    first[1:] = (job[1:] != job[:-1]) | (begin[1:] != end[:-1])
    since = begin[np.maximum.accumulate(np.where(first, np.arange(len(job)), 0))] if len(job) else begin
    return Segments(job, begin, end, segments.use[order]), since
