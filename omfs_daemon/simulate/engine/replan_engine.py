"""Jobs on places in virtual time, by a plan that is made anew at each event."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.policy.replan.plan_problem import GO_ON, PlanProblem
from omfs_daemon.policy.replan.plan_search import FoundPlan, SearchLimits
from omfs_daemon.simulate.engine.learned_runs import LearnedRuns
from omfs_daemon.simulate.engine.replan_problem import (
    CHECKPOINT,
    PlacedMachine,
    PresentJobs,
    plan_problem_of,
)

Search = Callable[[PlanProblem, Floats, SearchLimits], FoundPlan]


class Happening(IntEnum):
    """What a plan is made at; those of one instant in this order. LOOK: a real-time job is due, or what a plan puts off
    has its time."""

    END = 0
    WRITTEN = 1
    SUBMISSION = 2
    LOOK = 3


class ReplanStay(NamedTuple):
    """A job's time on one place, in seconds: it reads its checkpoint up to ``works_from``, computes up to ``end``, and
    if it is preempted then, writes one up to ``gone``. ``done``: work that was safe before; ``kept``: that is after it.
    """

    job: int
    place: int
    begin: float
    works_from: float
    end: float
    gone: float
    done: float
    kept: float


class Replanning:
    """One run: ``stays`` has what became of the jobs. ``learned``: predicts their run times; ``for_victims_only``: not
    for plans, only for the costs of victims without one."""

    def __init__(
        self,
        machine: PlacedMachine,
        search: Search,
        limits: SearchLimits,
        learned: LearnedRuns | None = None,
        for_victims_only: bool = False,
    ) -> None:
        self.stays: list[ReplanStay] = []
        self._machine, self._search, self._limits = machine, search, limits
        self._learned, self._for_victims_only = learned, for_victims_only
        self._jobs, self._state = machine.jobs, machine.state
        self._never_preempted = machine.jobs.realtime | (machine.jobs.victim_max == -np.inf)
        count = len(machine.jobs.submit)
        self._position = np.zeros(count)
        self._turn = [0] * count
        self._waiting: set[int] = set()
        self._running: set[int] = set()
        self._writing: set[int] = set()
        self._events: list[tuple[float, Happening, int, int]] = []
        for job in range(count):
            self._at(float(machine.jobs.submit[job]), Happening.SUBMISSION, job)

    def run(self) -> list[ReplanStay]:
        """Until all jobs are done."""
        while self._events:
            now = self._events[0][0]
            changed = False
            while self._events and self._events[0][0] <= now:
                _, what, job, turn = heappop(self._events)
                if turn == self._turn[job]:
                    self._happen(what, job, now)
                    changed = True
            if changed and self._waiting:
                self._replan(now)
        return self.stays

    def _at(self, time: float, what: Happening, job: int) -> None:
        if time < np.inf:
            heappush(self._events, (time, what, job, self._turn[job]))

    def _happen(self, what: Happening, job: int, now: float) -> None:
        if what == Happening.END:
            self._leave(job, now, now, float(self._jobs.run[job]))
            if self._learned is not None:
                self._learned.end(job, float(self._jobs.run[job]), now)
        elif what == Happening.WRITTEN:
            self._writing.discard(job)
            self._waiting.add(job)
        elif what == Happening.SUBMISSION:
            self._waiting.add(job)
            if self._learned is not None:
                self._predict(job, self._learned)
            if self._jobs.act_at[job] > now:
                self._at(float(self._jobs.act_at[job]), Happening.LOOK, job)

    def _predict(self, job: int, learned: LearnedRuns) -> None:
        self._jobs.predicted[job] = learned.arrive(job)
        if not self._for_victims_only:
            self._jobs.length[job] = self._jobs.predicted[job]

    def _replan(self, now: float) -> None:
        never = self._never_preempted
        present = PresentJobs(
            sorted(job for job in self._running if not never[job]),
            sorted(job for job in self._running if never[job]),
            sorted(self._writing),
            sorted(self._waiting),
        )
        chosen, problem = present.planned, plan_problem_of(self._machine, present, now)
        found = self._search(problem, self._position[chosen], self._limits)
        self._position[chosen] = len(chosen)
        self._position[chosen[found.plan.order]] = np.arange(len(found.plan.order))
        self._preempt(chosen, problem, found, len(present.running))
        for task in np.flatnonzero(found.starts.start <= now):
            self._start(int(chosen[task]), int(found.starts.place[task]), now)

    def _preempt(self, chosen: Ints, problem: PlanProblem, found: FoundPlan, running: int) -> None:
        """Preempt for what starts as soon as the place is free; what a plan needs later is put off until then."""
        places, tasks, now = problem.places, problem.tasks, problem.now
        start, place, choice = found.starts.start, found.starts.place, found.plan.choice
        preempted = []
        for task in range(running):
            if choice[task] == GO_ON:
                continue
            begin = places.begin[tasks.held[task]]
            shared = places.shared[begin : places.begin[tasks.held[task] + 1]]
            taken = np.isin(place, shared)
            taken[task] = False
            first = start[taken].min(initial=np.inf)
            release = tasks.release[task, choice[task]]
            if first <= release:
                preempted.append(task)
                continue
            start[task] = np.nan
            self._at(now + first - release, Happening.LOOK, int(chosen[task]))
        together = sum(self._jobs.queueing[chosen[task]] for task in preempted if choice[task] == CHECKPOINT)
        for task in preempted:
            self._stop(int(chosen[task]), bool(choice[task] == CHECKPOINT), float(together), now)

    def _start(self, job: int, place: int, now: float) -> None:
        state = self._state
        self._waiting.remove(job)
        self._running.add(job)
        self._turn[job] += 1
        state.place[job], state.begin[job] = place, now
        state.works_from[job] = now + (self._jobs.seconds[job] if state.done[job] > 0 else 0.0)
        self._at(float(state.works_from[job] + self._jobs.run[job] - state.done[job]), Happening.END, job)

    def _stop(self, job: int, writes: bool, together: float, now: float) -> None:
        """``together``: seconds for which all that are written at once occupy what they share."""
        state = self._state
        if writes:
            until = now + max(float(self._jobs.seconds[job]), together)
            self._leave(job, now, until, float(state.done[job] + now - state.works_from[job]))
            state.gone[job] = until
            self._writing.add(job)
            self._at(until, Happening.WRITTEN, job)
        else:
            self._leave(job, now, now, float(state.done[job]))
            self._waiting.add(job)

    def _leave(self, job: int, now: float, gone: float, kept: float) -> None:
        state = self._state
        self._running.remove(job)
        self._turn[job] += 1
        works_from = min(float(state.works_from[job]), now)
        self.stays.append(
            ReplanStay(
                job, int(state.place[job]), float(state.begin[job]), works_from, now, gone, float(state.done[job]), kept
            )
        )
        state.done[job] = kept
