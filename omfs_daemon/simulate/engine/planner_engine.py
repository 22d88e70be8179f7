"""The loop in virtual time: what happens by itself, then passes of the policy until one decides nothing new.

At one instant: ends, then preemptions that reach their next step, then arrivals; preemptors whose victims are gone
start; then the policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf

import numpy as np

from omfs_daemon.cluster.jobs import Allocation, JobState
from omfs_daemon.cluster.snapshot import PreemptedJob, PreemptionHistory
from omfs_daemon.policy.plan import Plan, PlannedPreemption, PlannedResume, Start
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.validator import Conditions, Verdict, validate
from omfs_daemon.simulate.engine.omfs_case import OmfsCase, Trail, case_of, outcome_of, preemptible_times
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.planner_cluster import Cluster
from omfs_daemon.simulate.engine.planner_preemptions import SimulatedPreemption, SimulatedPreemptions, SwapArea
from omfs_daemon.simulate.engine.planner_work import JobWork
from omfs_daemon.simulate.engine.preemption_delay import preemption_seconds
from omfs_daemon.simulate.engine.scenario import Scenario

END, STEP, RESUMED, MATURES = range(4)
"""Events, in the order in which they are processed: a job ends; a preemption reaches its next step; a resumed job
computes again; a job becomes preemptible."""

FRESH = Conditions(max_age=0.0)


def planner_engine(scenario: Scenario) -> Outcome:
    """OMFS by the daemon's own planner, on a counter of CPUs or on nodes."""
    case = case_of(scenario)
    return outcome_of(scenario, case, trail_by_plan(scenario, case))


def trail_by_plan(scenario: Scenario, case: OmfsCase) -> Trail:
    return _Engine(scenario, case).run()


class _Engine:
    """The state of one simulation; jobs are known by their index into the workload."""

    def __init__(self, scenario: Scenario, case: OmfsCase) -> None:
        self.case = case
        self.cluster, self.work = Cluster(scenario, case), JobWork(case)
        self.preemptions, self.area = SimulatedPreemptions(), SwapArea(case)
        self.preempted: dict[str, PreemptedJob] = {}
        self.resumed: dict[str, float] = {}
        self._due: list[tuple[float, int, int, int]] = []
        self._arrivals = _Arrivals(case)
        self._numbers = count()
        self._now = 0.0

    def run(self) -> Trail:
        while (now := min(self._due[0][0] if self._due else inf, self._arrivals.next)) < inf:
            self._now = now
            self._process_due()
            while self._decide() or self._is_due():
                self._process_due()
        return self.work.trail()

    # -- what happens by itself -------------------------------------------------------------------------------
    def _is_due(self) -> bool:
        return bool(self._due) and self._due[0][0] <= self._now

    def _process_due(self) -> None:
        while self._is_due():
            _, what, job, turn = heappop(self._due)
            if what == STEP:
                self._advance_preemption(job, turn)
            elif turn == self.work.turn[job]:
                if what == END:
                    self._end(job)
                elif what == RESUMED:
                    self.area.give_back(job)
        for job in self._arrivals.until(self._now):
            self.cluster.arrive(job)
        for preemption in self.preemptions:
            if not preemption.left and self.cluster.is_idle(preemption.allocations):
                self._begin(preemption.preemptor, preemption.allocations)
                self.preemptions.done(preemption)

    def _end(self, job: int) -> None:
        if self.preemptions.ended(job):
            self.area.give_back(job)
        self.work.end(job, self._now)
        self.cluster.leave(job)

    def _advance_preemption(self, preemptor: int, number: int) -> None:
        """The signal reaches the victims, or the last of them is gone."""
        costs, preemption = self.case.costs, self.preemptions.of(preemptor, number)
        if preemption is None:
            return
        if preemption.since is None:
            preemption.since = self._now
            for job in preemption.left:
                if self.work.works_from[job] > self._now:  # it was still resuming
                    self.area.give_back(job)
                self.work.interrupt(job, self._now)
            freed = self._now + preemption_seconds(preemption.left, costs.preemption, costs.queueing, costs.pinned)
            heappush(self._due, (freed, STEP, preemptor, number))
            return
        for job in preemption.left:
            self.work.free_cpus(job, preemption.since, self._now)
            self.cluster.preempt(job)
            method = "suspend" if costs.pinned[job] else "requeue"
            self.preempted[str(job + 1)] = PreemptedJob(self._now, method, str(preemptor + 1))
        preemption.left.clear()

    # -- what the policy decides -----------------------------------------------------------------------------
    def _decide(self) -> bool:
        """One pass; returns whether it decided anything new."""
        waiting = [
            job for index, job in self.cluster.jobs.items() if not job.runs and not self.preemptions.concerns(index)
        ]
        if not waiting:
            return False
        if any(job.qos == "urgent" for job in waiting):
            self._update_run_times()
        snapshot, arrays = self.cluster.observe(self._now)
        history, rules = self._history(), self.cluster.rules
        plan = make_plan(snapshot, history, rules, self._now, arrays)
        verdict = validate(plan, snapshot, history, rules, self._now, FRESH, arrays)
        return self._apply(plan, verdict)

    def _update_run_times(self) -> None:
        """Only urgent jobs depend on them, so they are not always up to date."""
        for index, job in self.cluster.jobs.items():
            if job.runs:
                self.cluster.has_run(index, self.work.progress(index, self._now))

    def _history(self) -> PreemptionHistory:
        jobs, work, area = self.cluster.jobs, self.work, self.area
        spared = [index for index, job in jobs.items() if job.runs and not area.takes(index)]
        return PreemptionHistory(
            preempted=self.preempted,
            running_since=self.resumed,
            preemption_times={
                str(index + 1): tuple(work.preempted_at[index]) for index in jobs if work.preempted_at[index]
            },
            spared={str(index + 1): inf for index in spared},
            under_way=tuple(preemption.commitment() for preemption in self.preemptions),
        )

    def _apply(self, plan: Plan, verdict: Verdict) -> bool:
        """In the order of the decisions, up to the first preemption that the swap area has no room for; the rest is
        planned again. Returns whether anything was decided."""
        for hold in plan.holds:
            self.cluster.hold(_index(hold.ref))
        begins: list[Start | PlannedResume] = sorted((*plan.starts, *verdict.resumes), key=lambda one: one.after)
        for at, planned in enumerate(plan.preemptions):
            while begins and begins[0].after <= at:
                self._begin(_index(begins[0].ref), begins.pop(0).allocations)
            if planned in verdict.preemptions:
                if not self.area.reserve([_index(victim.ref) for victim in planned.victims]):
                    return True
                self._preempt_for(planned)
        for one in begins:
            self._begin(_index(one.ref), one.allocations)
        return bool(plan.holds or begins or plan.starts or verdict.resumes or verdict.preemptions)

    def _begin(self, index: int, allocations: tuple[Allocation, ...]) -> None:
        """The job starts, or resumes after a preemption."""
        was_suspended = self.cluster.jobs[index].state is JobState.SUSPENDED
        end, turn = self.work.begin(index, self._now), self.work.turn[index]
        self.cluster.run(index, allocations, self._now)
        self.preempted.pop(str(index + 1), None)
        heappush(self._due, (end, END, index, turn))
        if was_suspended:
            self.resumed[str(index + 1)] = self._now
            if self.work.works_from[index] > self._now:
                heappush(self._due, (self.work.works_from[index], RESUMED, index, turn))
            else:
                self.area.give_back(index)
        if self.case.costs.preemptible[index]:
            rules = self.cluster.rules
            for at in preemptible_times(
                self._now, self.work.preempted_at[index], rules.quantum, rules.max_preemptions_per_hour
            ):
                if self._now < at < inf:
                    heappush(self._due, (at, MATURES, index, turn))

    def _preempt_for(self, planned: PlannedPreemption) -> None:
        victims = tuple(_index(victim.ref) for victim in planned.victims)
        preemptor, number = _index(planned.preemptor), next(self._numbers)
        self.cluster.release(preemptor)
        self.preemptions.add(
            SimulatedPreemption(number, preemptor, planned.account, planned.allocations, planned.urgent, victims)
        )
        for victim in victims:
            self.work.decide_preemption(victim, preemptor, self._now)
        heappush(self._due, (self._now + self.case.costs.latency, STEP, preemptor, number))


def _index(ref: str) -> int:
    """The job's index into the workload."""
    return int(ref) - 1


class _Arrivals:
    """The jobs in order of submission, without those that can never run."""

    def __init__(self, case: OmfsCase) -> None:
        self._jobs = np.flatnonzero(~case.rejected).tolist()
        self._times = case.jobs.submit[self._jobs].tolist()
        self._next = 0

    @property
    def next(self) -> float:
        """When the next one comes; inf: never."""
        return float(self._times[self._next]) if self._next < len(self._times) else inf

    def until(self, now: float) -> Iterator[int]:
        while self.next <= now:
            self._next += 1
            yield self._jobs[self._next - 1]
