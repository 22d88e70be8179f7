"""The loop in virtual time: what happens by itself, then passes of the policy until one decides nothing new.

At one instant: ends, then stops that come to their next step, then arrivals; beneficiaries whose victims are gone
start; then the policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf

import numpy as np

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.cluster.snapshot import Stopped
from omfs_daemon.policy.validator import Conditions
from omfs_daemon.policy.validator import Verdict
from omfs_daemon.policy.validator import judge
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.plan import Reclaim
from omfs_daemon.policy.plan import Resume
from omfs_daemon.policy.plan import Start
from omfs_daemon.policy.planner import plan
from omfs_daemon.simulate.engine.planner_cluster import Cluster
from omfs_daemon.simulate.engine.planner_preemptions import Area
from omfs_daemon.simulate.engine.planner_preemptions import Stop
from omfs_daemon.simulate.engine.planner_preemptions import Stops
from omfs_daemon.simulate.engine.planner_work import Work
from omfs_daemon.simulate.engine.omfs_case import Case
from omfs_daemon.simulate.engine.omfs_case import Trail
from omfs_daemon.simulate.engine.omfs_case import case_of
from omfs_daemon.simulate.engine.omfs_case import outcome_of
from omfs_daemon.simulate.engine.omfs_case import wakes_at
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.preemption_delay import set_seconds
from omfs_daemon.simulate.engine.scenario import Setting

END, STEP, BACK, WAKE = range(4)
"""What comes due, in the order in which it is done: a job ends; a stop comes to its next step; a job that is brought
back computes again; a job may be stopped from now on."""

FRESH = Conditions(max_age=0.0)


def by_plan(setting: Setting) -> Outcome:
    """OMFS by the daemon's own planner, on a counter of CPUs or on nodes."""
    case = case_of(setting)
    return outcome_of(setting, case, trail_by_plan(setting, case))


def trail_by_plan(setting: Setting, case: Case) -> Trail:
    return _Engine(setting, case).run()


class _Engine:
    """The state of one simulation; jobs are known by their index into the workload."""

    def __init__(self, setting: Setting, case: Case) -> None:
        self.case = case
        self.cluster, self.work = Cluster(setting, case), Work(case)
        self.stops, self.area = Stops(), Area(case)
        self.stopped: dict[str, Stopped] = {}
        self.resumed: dict[str, float] = {}
        self._due: list[tuple[float, int, int, int]] = []
        self._arrivals = _Arrivals(case)
        self._numbers = count()
        self._now = 0.0

    def run(self) -> Trail:
        while (now := min(self._due[0][0] if self._due else inf, self._arrivals.next)) < inf:
            self._now = now
            self._happen()
            while self._decide() or self._is_due():
                self._happen()
        return self.work.trail()

    # -- what happens by itself -------------------------------------------------------------------------------
    def _is_due(self) -> bool:
        return bool(self._due) and self._due[0][0] <= self._now

    def _happen(self) -> None:
        while self._is_due():
            _, what, job, turn = heappop(self._due)
            if what == STEP:
                self._go_on(job, turn)
            elif turn == self.work.turn[job]:
                if what == END:
                    self._end(job)
                elif what == BACK:
                    self.area.give_back(job)
        for job in self._arrivals.until(self._now):
            self.cluster.arrive(job)
        for stop in self.stops:
            if not stop.left and self.cluster.is_idle(stop.shares):
                self._begin(stop.beneficiary, stop.shares)
                self.stops.done(stop)

    def _end(self, job: int) -> None:
        if self.stops.ended(job):
            self.area.give_back(job)
        self.work.end(job, self._now)
        self.cluster.leave(job)

    def _go_on(self, beneficiary: int, number: int) -> None:
        """The signal reaches the victims, or the last of them is gone."""
        costs, stop = self.case.costs, self.stops.of(beneficiary, number)
        if stop is None:
            return
        if stop.since is None:
            stop.since = self._now
            for job in stop.left:
                if self.work.works_from[job] > self._now:  # it was still being brought back
                    self.area.give_back(job)
                self.work.break_off(job, self._now)
            gone = self._now + set_seconds(stop.left, costs.stop, costs.queueing, costs.pinned)
            heappush(self._due, (gone, STEP, beneficiary, number))
            return
        for job in stop.left:
            self.work.gone(job, stop.since, self._now)
            self.cluster.put_back(job)
            method = "suspend" if costs.pinned[job] else "requeue"
            self.stopped[str(job + 1)] = Stopped(self._now, method, str(beneficiary + 1))
        stop.left.clear()

    # -- what the policy decides -----------------------------------------------------------------------------
    def _decide(self) -> bool:
        """One pass; whether it decided anything new."""
        waiting = [job for index, job in self.cluster.jobs.items() if not job.runs and not self.stops.concerns(index)]
        if not waiting:
            return False
        if any(job.qos == "urgent" for job in waiting):
            self._tell_run_times()
        snapshot, scene = self.cluster.look(self._now)
        ledger, rules = self._ledger(), self.cluster.rules
        suggested = plan(snapshot, ledger, rules, self._now, scene)
        verdict = judge(suggested, snapshot, ledger, rules, self._now, FRESH, scene)
        return self._apply(suggested, verdict)

    def _tell_run_times(self) -> None:
        """Only what urgent jobs go by, so it need not always be up to date."""
        for index, job in self.cluster.jobs.items():
            if job.runs:
                self.cluster.has_run(index, self.work.progress(index, self._now))

    def _ledger(self) -> Ledger:
        jobs, work, area = self.cluster.jobs, self.work, self.area
        spared = [index for index, job in jobs.items() if job.runs and not area.takes(index)]
        return Ledger(
            stopped=self.stopped,
            running_since=self.resumed,
            stop_times={str(index + 1): tuple(work.stopped_at[index]) for index in jobs if work.stopped_at[index]},
            spared={str(index + 1): inf for index in spared},
            commitments=tuple(stop.commitment() for stop in self.stops),
        )

    def _apply(self, suggested: Plan, verdict: Verdict) -> bool:
        """In the order of the decisions, up to the first stop that the swap area has no room for; what comes after is
        planned anew. Returns whether anything was decided."""
        for hold in suggested.holds:
            self.cluster.hold(_index(hold.ref))
        begins: list[Start | Resume] = sorted((*suggested.starts, *verdict.resumes), key=lambda one: one.after)
        for at, reclaim in enumerate(suggested.reclaims):
            while begins and begins[0].after <= at:
                self._begin(_index(begins[0].ref), begins.pop(0).shares)
            if reclaim in verdict.reclaims:
                if not self.area.reserve([_index(victim.ref) for victim in reclaim.victims]):
                    return True
                self._stop_for(reclaim)
        for one in begins:
            self._begin(_index(one.ref), one.shares)
        return bool(suggested.holds or begins or suggested.starts or verdict.resumes or verdict.reclaims)

    def _begin(self, index: int, shares: tuple[Share, ...]) -> None:
        """It starts, or runs on after a stop."""
        was_suspended = self.cluster.jobs[index].state is JobState.SUSPENDED
        end, turn = self.work.begin(index, self._now), self.work.turn[index]
        self.cluster.run(index, shares, self._now)
        self.stopped.pop(str(index + 1), None)
        heappush(self._due, (end, END, index, turn))
        if was_suspended:
            self.resumed[str(index + 1)] = self._now
            if self.work.works_from[index] > self._now:
                heappush(self._due, (self.work.works_from[index], BACK, index, turn))
            else:
                self.area.give_back(index)
        if self.case.costs.stoppable[index]:
            rules = self.cluster.rules
            for at in wakes_at(self._now, self.work.stopped_at[index], rules.quantum, rules.max_stops_per_hour):
                if self._now < at < inf:
                    heappush(self._due, (at, WAKE, index, turn))

    def _stop_for(self, reclaim: Reclaim) -> None:
        victims = tuple(_index(victim.ref) for victim in reclaim.victims)
        beneficiary, number = _index(reclaim.beneficiary), next(self._numbers)
        self.cluster.release(beneficiary)
        self.stops.add(Stop(number, beneficiary, reclaim.account, reclaim.shares, reclaim.urgent, victims))
        for victim in victims:
            self.work.decide_stop(victim, beneficiary, self._now)
        heappush(self._due, (self._now + self.case.costs.latency, STEP, beneficiary, number))


def _index(ref: str) -> int:
    """The job's index into the workload."""
    return int(ref) - 1


class _Arrivals:
    """The jobs in the order in which they come; those that can never run do not come at all."""

    def __init__(self, case: Case) -> None:
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
