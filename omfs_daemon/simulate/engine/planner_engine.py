"""The loop in virtual time: what happens by itself, then cycles of the daemon until one decides nothing new.

Cycles decide by the daemon's own functions (``preemption/decisions.py``): from planner and validator over the steps of
preemptions to the orders that are missing. The simulated cluster carries these out. What Slurm does by itself it does
as the plan expects: jobs start where the plan says, and a preemptor once its nodes are idle; so nodes and ranks need no
orders. Suspended jobs are resumed where the plan says, too, for the swap area counts in the order of the plan.

At one instant: ends, then preemptions that reach their next step, then arrivals; preemptors whose victims are gone
start; then the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from math import inf

import numpy as np

from omfs_daemon.cluster.jobs import Allocation, Job, JobState
from omfs_daemon.cluster.snapshot import PreemptionHistory
from omfs_daemon.policy.plan import Plan, PlannedPreemption, PlannedResume, Start
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.validator import Conditions, Verdict, validate
from omfs_daemon.policy.victims.eligibility import has_preemptions_left
from omfs_daemon.preemption.decisions import add_orders, begin_preemptions, go_on
from omfs_daemon.preemption.effects import Effects
from omfs_daemon.preemption.methods.registry import BUILT_IN
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.preemption import Preemption
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import State
from omfs_daemon.preemption.state_fold import state_after
from omfs_daemon.simulate.engine.learned_runs import LearnedRuns
from omfs_daemon.simulate.engine.omfs_case import OmfsCase, Trail, case_of, outcome_of, preemptible_times
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.planner_cluster import Cluster
from omfs_daemon.simulate.engine.planner_preemptions import LeavingVictims, SwapArea
from omfs_daemon.simulate.engine.planner_work import JobWork
from omfs_daemon.simulate.engine.preemption_delay import preemption_seconds
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.slurm.orders import HoldJobs, MarkJobs, ReleaseJobs, RequeueJobs, SuspendJobs

END, STEP, RESUMED, MATURES = range(4)
"""Events, in the order in which they are processed: a job ends; a preemption reaches its next step; a resumed job
computes again; a job becomes preemptible."""

FRESH = Conditions(max_age=0.0)
METHODS = {method.traits.name: method for method in BUILT_IN}


class _AsPlanned(Observation):
    def taken_by(
        self, allocations: Sequence[Allocation], leaving: Sequence[Job], since: float, until: float = inf
    ) -> list[str]:
        """Nobody: a preemptor starts once its nodes are idle, even if the plan has let others start there before."""
        return []


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
        self.cluster, self.work, self.area = Cluster(scenario, case), JobWork(case), SwapArea(case)
        learning = scenario.conventions.learning
        self.learned = None if learning is None else LearnedRuns(scenario.workload, learning, np.arange(len(case.leaf)))
        self.state = State()
        self.settings = Settings(self.cluster.rules, METHODS, start_timeout=inf, preempt_timeout=inf)
        self.leaving: dict[int, LeavingVictims] = {}
        self._due: list[tuple[float, int, int, int]] = []
        self._arrivals = _Arrivals(case)
        self._now = 0.0

    def run(self) -> Trail:
        while (now := min(self._due[0][0] if self._due else inf, self._arrivals.next)) < inf:
            self._now = now
            self._process_due()
            while self._decide() or self._is_due():
                self._process_due()
        trail = self.work.trail()
        return trail if self.learned is None else trail._replace(estimate=self.learned.seconds)

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
            if self.learned is not None:
                self.learned.arrive(job)
        for number, victims in sorted(self.leaving.items()):
            allocations = self.state.preemptions[number].preemptor.allocations
            if not victims.left and self.cluster.is_idle(allocations):
                self._begin(victims.preemptor, allocations)
                del self.leaving[number]

    def _end(self, job: int) -> None:
        for victims in self.leaving.values():
            if job in victims.left:
                victims.left.remove(job)
                self.area.give_back(job)
        self.work.end(job, self._now)
        if self.learned is not None:
            self.learned.end(job, float(self.case.jobs.run[job]), self._now)
        self.cluster.leave(job)

    def _advance_preemption(self, preemptor: int, number: int) -> None:
        """The signal reaches the victims, or the last of them is gone."""
        costs, victims = self.case.costs, self.leaving.get(number)
        if victims is None:
            return
        if victims.since is None:
            victims.since = self._now
            for job in victims.left:
                if self.work.works_from[job] > self._now:  # it was still resuming
                    self.area.give_back(job)
                self.work.interrupt(job, self._now)
            freed = self._now + preemption_seconds(victims.left, costs.preemption, costs.queueing, costs.pinned)
            heappush(self._due, (freed, STEP, preemptor, number))
            return
        for job in victims.left:
            self.work.free_cpus(job, victims.since, self._now)
            self.cluster.preempt(job)
        victims.left.clear()

    # -- what the policy decides -----------------------------------------------------------------------------
    def _decide(self) -> bool:
        """One cycle; returns whether it decided anything new."""
        under_way = {ref for preemption in self.state.preemptions.values() for ref in preemption.refs}
        waiting = [job for job in self.cluster.jobs.values() if not job.runs and job.ref not in under_way]
        if not waiting and not under_way and not self.state.preempted:
            return False
        if any(job.qos == "urgent" for job in waiting):
            self._update_run_times()
        snapshot, arrays = self.cluster.observe(self._now)
        observation = _AsPlanned(snapshot)
        before = self.state
        effects = go_on(before, observation, self._now, self.settings, fresh=before.preemptions)
        state = state_after(before, effects.records)
        history, rules = self._history(state), self.cluster.rules
        plan = make_plan(snapshot, history, rules, self._now, arrays)
        verdict = validate(plan, snapshot, history, rules, self._now, FRESH, arrays)
        accepted = Verdict(tuple(self._start(plan, verdict)), (), ())
        effects.add(begin_preemptions(accepted, state, observation, self._now, self.settings))
        state = state_after(before, effects.records)
        add_orders(effects, state, plan, accepted, observation, self._now, self.settings, is_full=True)
        self.state = state_after(before, effects.records)
        self._carry_out(effects)
        return bool(plan.holds or plan.starts or verdict.resumes or verdict.preemptions)

    def _update_run_times(self) -> None:
        """Only urgent jobs depend on them, so they are not always up to date."""
        running = [index for index, job in self.cluster.jobs.items() if job.runs]
        worked = [self.work.progress(index, self._now) for index in running]
        for index, seconds in zip(running, worked, strict=True):
            self.cluster.has_run(index, seconds)
        if self.learned is not None:
            self.cluster.will_run(dict(zip(running, self.learned.remaining(running, worked), strict=True)))

    def _history(self, state: State) -> PreemptionHistory:
        """What the daemon knows, with what the simulated costs say of victims: a preemption counts from its decision,
        and a job is spared that the swap area has no room for.

        Published results keep their rules: the limit per hour spares a job from urgent ones too, no quantum grows, no
        user waits for having had brief jobs, and no jobs are set apart.
        """
        jobs, work, area = self.cluster.jobs, self.work, self.area
        spared = {str(index + 1): inf for index, job in jobs.items() if job.runs and not area.takes(index)}
        history = replace(
            state.preemption_history(self.settings.rules.methods),
            preemption_times={
                str(index + 1): tuple(work.preempted_at[index]) for index in jobs if work.preempted_at[index]
            },
            preemption_counts={},
            users={},
            set_apart={},
        )
        rules = self.cluster.rules
        limited = [ref for ref in history.preemption_times if not has_preemptions_left(ref, history, rules, self._now)]
        return replace(history, spared=spared | dict.fromkeys(limited, inf))

    def _start(self, plan: Plan, verdict: Verdict) -> Iterator[PlannedPreemption]:
        """What starts or resumes by itself, in the order of the plan; yields the preemptions up to the first one that
        the swap area has no room for. The rest is planned again."""
        begins: list[Start | PlannedResume] = sorted((*plan.starts, *verdict.resumes), key=lambda one: one.after)
        for at, planned in enumerate(plan.preemptions):
            while begins and begins[0].after <= at:
                self._begin(_index(begins[0].ref), begins.pop(0).allocations)
            if planned in verdict.preemptions:
                if not self.area.reserve([_index(victim.ref) for victim in planned.victims]):
                    return
                yield planned
        for one in begins:
            self._begin(_index(one.ref), one.allocations)

    def _carry_out(self, effects: Effects) -> None:
        for preemption in effects.begun:
            for victim in preemption.victims:
                self.work.decide_preemption(_index(victim.ref), _index(preemption.preemptor.ref), self._now)
        for chain in effects.chains:
            for order in (*chain.fields, *chain.transitions):
                match order:
                    case HoldJobs(refs):
                        self._for_each(refs, self.cluster.hold)
                    case ReleaseJobs(refs):
                        self._for_each(refs, self.cluster.release)
                    case MarkJobs(refs, word):
                        self._for_each(refs, partial(self.cluster.mark, word=word))
                    case RequeueJobs() | SuspendJobs() if chain.preemption not in self.leaving:
                        self._signal(self.state.preemptions[chain.preemption])

    def _for_each(self, refs: Iterable[str], carry_out: Callable[[int], None]) -> None:
        """Not for jobs that have just started, which the daemon has not observed."""
        for ref in refs:
            index = _index(ref)
            if self.cluster.jobs[index] is self.cluster.snapshot.jobs[index + 1]:
                carry_out(index)

    def _signal(self, preemption: Preemption) -> None:
        """The victims will get a signal, together."""
        preemptor = _index(preemption.preemptor.ref)
        self.leaving[preemption.id] = LeavingVictims(preemptor, [_index(victim.ref) for victim in preemption.victims])
        heappush(self._due, (self._now + self.case.costs.latency, STEP, preemptor, preemption.id))

    def _begin(self, index: int, allocations: tuple[Allocation, ...]) -> None:
        """The job starts, or resumes after a preemption."""
        was_suspended = self.cluster.jobs[index].state is JobState.SUSPENDED
        end, turn = self.work.begin(index, self._now), self.work.turn[index]
        self.cluster.run(index, allocations, self._now)
        heappush(self._due, (end, END, index, turn))
        if was_suspended:
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
