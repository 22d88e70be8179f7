"""The real-time jobs that wait: those that are due, and why the others wait."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.policy.arrays.job_arrays import WaitingJobs
from omfs_daemon.policy.arrays.node_arrays import Bools
from omfs_daemon.policy.plan import Reason, Wait
from omfs_daemon.policy.realtime_standing import RealtimeStanding, in_order_of_slowdown, is_first_on_idle, standing
from omfs_daemon.policy.rules.realtime_terms import RealtimeTerms
from omfs_daemon.policy.victims.need import RealtimeNeed, ResourceNeed
from omfs_daemon.policy.waiting_groups import JobGroup
from omfs_daemon.policy.working_state import WorkingState


class RealtimeQueue:
    """The real-time jobs that wait.

    standings  of all of them
    due        the jobs that are due, the greatest slowdown first, each with a group of its own kind: while they wait,
               the others that are alike are ordinary jobs of their account
    early      those that are not due yet but could start, and are first on idle nodes
    """

    def __init__(
        self,
        working_state: WorkingState,
        waiting: WaitingJobs,
        ready: Bools,
        groups: Mapping[int, JobGroup],
        busy: Collection[str],
        now: float,
    ) -> None:
        self.now = now
        self.standings: list[RealtimeStanding] = []
        self.due: list[tuple[Job, JobGroup]] = []
        self.early: set[str] = set()
        self.is_due: Bools = np.zeros(len(ready), dtype=bool)
        self._not_due: dict[str, RealtimeStanding] = {}
        of_class = {number: group for number, group in groups.items() if group.kind.job_class.realtime is not None}
        if not of_class:
            return
        due: list[tuple[RealtimeStanding, Job]] = []
        for at in np.flatnonzero(np.isin(waiting.alike, list(of_class))).tolist():
            job, group = waiting.jobs[at], of_class[int(waiting.alike[at])]
            terms = group.kind.job_class.realtime
            if terms is None or job.ref in busy:
                continue
            one = standing_of(working_state, job, terms, group.kind.job_class.name, now)
            self.standings.append(one)
            if one.is_due and ready[at]:
                self.is_due[at] = True
                due.append((one, job))
            elif not one.is_due:
                self._not_due[job.ref] = one
                if ready[at] and is_first_on_idle(one.limit, working_state.rules):
                    self.early.add(job.ref)
        number_of = dict(zip((job.id for job in waiting.jobs), waiting.alike.tolist(), strict=True)) if due else {}
        own: dict[int, JobGroup] = {}
        for _, job in in_order_of_slowdown(due):
            number = number_of[job.id]
            if number not in own:
                own[number] = replace(of_class[number], known_need=due_need(working_state, job, now))
            self.due.append((job, own[number]))

    def explained(self, waits: Sequence[Wait], jobs: Sequence[Job], reasons: Sequence[Reason]) -> _Parts:
        """The waits of a plan, with what a job that is not due waits for; nothing changes for others."""
        if not self._not_due:
            return list(waits), list(jobs), list(reasons)
        single = [self._explained(wait) for wait in waits]
        left: list[Job] = []
        kept: list[Reason] = []
        for job, reason in zip(jobs, reasons, strict=True):
            if job.ref in self._not_due:
                single.append(self._explained(Wait(job.ref, job.account, reason)))
            else:
                left.append(job)
                kept.append(reason)
        return single, left, kept

    def _explained(self, wait: Wait) -> Wait:
        one = self._not_due.get(wait.ref)
        if one is None or wait.reason not in _FOR_NODES:
            return wait
        return wait._replace(reason=Reason.NOT_DUE, detail=one.text(self.now))


def standing_of(working_state: WorkingState, job: Job, terms: RealtimeTerms, name: str, now: float) -> RealtimeStanding:
    """How this waiting job stands; ``name``: of its class."""
    cpus, size = working_state.capacity.cpus_of(job.request), working_state.rules.job_size
    return standing(job, terms, name, size, cpus, working_state.usage.cpus, working_state.history, now)


def due_need(working_state: WorkingState, job: Job, now: float) -> ResourceNeed | None:
    """What a real-time job needs that is due; None if it is not, or not real-time."""
    job_class = working_state.kinds.of(job).job_class
    terms = job_class.realtime
    if terms is None or not standing_of(working_state, job, terms, job_class.name, now).is_due:
        return None
    return working_state.need_of(job)._replace(realtime=realtime_need(working_state, terms, now))


def realtime_need(working_state: WorkingState, terms: RealtimeTerms, now: float) -> RealtimeNeed:
    """Of a job of these terms that is due now."""
    state = working_state
    return RealtimeNeed(terms, state.usage.cpus, now, state.history.waits_since, state.remaining)


_Parts = tuple[list[Wait], list[Job], list[Reason]]
_FOR_NODES = (Reason.BEYOND_ENTITLEMENT, Reason.NOT_ENOUGH_VICTIMS)


def urgent_and_due(urgent: Iterable[tuple[Job, JobGroup]], queue: RealtimeQueue) -> list[tuple[Job, JobGroup, Reason]]:
    """Those for which jobs are preempted whatever their account uses, in the order of the pass."""
    return [
        *((job, group, Reason.URGENT) for job, group in urgent),
        *((job, group, Reason.REALTIME) for job, group in queue.due),
    ]
