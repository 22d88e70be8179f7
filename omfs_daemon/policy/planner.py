"""The planner: one pass over the waiting jobs. Snapshot, history, rules, and time give a ``Plan``.

The order of the pass:

1. Urgent jobs: one that fits starts; otherwise regular jobs are preempted for it; otherwise it waits before all regular
   jobs (UJFB, section IV).
2. Real-time jobs that are due, the greatest slowdown first: one that fits starts; otherwise the cheapest jobs are
   preempted for it (Nickolay et al. 2021); otherwise it has the rights of a regular job. One that is not due is a
   regular job, but the first on idle resources if it may take them from all accounts later.
3. Regular jobs whose account uses less than its entitlement: one that fits starts; otherwise jobs of accounts above
   their entitlement are preempted for it (OMFS, Algorithm 1, lines 31-36).
4. All others borrow idle resources (line 26) or wait (line 28).

In each, preempted jobs come first, then Slurm's priority decides. A non-preemptible job that would take its account
beyond the entitlement waits whatever is idle (line 23). Resources that are being freed are promised to the job that
fits there: no other job is preempted for it or given them. Waiting jobs that are alike (account, class, request) form a
group. While resources only become fewer, what is decided once holds for all behind it. An account that loses jobs in
this plan, and jobs behind a blocked one, are considered again in the next.
"""

from __future__ import annotations

from math import inf

import numpy as np

from omfs_daemon.cluster.job_shape import shape_of, shape_of_user
from omfs_daemon.cluster.jobs import Allocation, Hold, Job, JobState
from omfs_daemon.cluster.snapshot import PreemptionHistory, Snapshot
from omfs_daemon.policy.admission_holds import AdmissionHolds
from omfs_daemon.policy.admission_room import room_without_hold
from omfs_daemon.policy.arrays.job_arrays import WaitingJobs, task_refs
from omfs_daemon.policy.arrays.node_arrays import Bools
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.arrays.usage import account_rows
from omfs_daemon.policy.plan import (
    HoldChange,
    Plan,
    PlannedPreemption,
    PlannedResume,
    Reason,
    Start,
    Wait,
    Waits,
)
from omfs_daemon.policy.preemption_search import PreemptionSearch
from omfs_daemon.policy.ranking import Ranking
from omfs_daemon.policy.realtime_queue import RealtimeQueue, urgent_and_due
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.rules.job_kinds import JobKind
from omfs_daemon.policy.rules.queue_order import Band, band_of, queue_order
from omfs_daemon.policy.start_checks.answer import Answer, AnswerKind
from omfs_daemon.policy.start_checks.static_rules import StartChecks, leaving_victims
from omfs_daemon.policy.victims.need import ResourceNeed, VictimChoice
from omfs_daemon.policy.waiting_groups import GroupedJobs, JobGroup, JobQueue, pending_cpus
from omfs_daemon.policy.working_state import WorkingState


def make_plan(
    snapshot: Snapshot, history: PreemptionHistory, rules: Rules, now: float, arrays: SnapshotArrays | None = None
) -> Plan:
    """What should happen now. Pure: no I/O, no clock. ``arrays``: the snapshot's, if they exist already."""
    return _Pass(arrays or SnapshotArrays(snapshot), history, rules, now).run()


class _Pass:
    """The state of one call of :func:`make_plan`."""

    def __init__(self, arrays: SnapshotArrays, history: PreemptionHistory, rules: Rules, now: float) -> None:
        self.taken, self.history, self.rules, self.now = arrays.taken, history, rules, now
        self.working_state = WorkingState(arrays, history, rules)
        self.capacity, self.usage = self.working_state.capacity, self.working_state.usage
        self.busy = {ref for preemption in history.under_way for ref in (preemption.preemptor, *preemption.victims)}
        self._decided = set(self.busy)
        self.admission_holds = AdmissionHolds(self.working_state)
        self.ranking = Ranking(self.usage, rules.rank_depth)
        self.start_checks = StartChecks(arrays, history, now)
        self._groups: dict[int, JobGroup] = {}
        self.search = PreemptionSearch(self.working_state, now)
        self._preemptions_left = rules.max_preemptions_per_cycle
        self.starts: list[Start] = []
        self.promises: list[Start] = []
        self.preemptions: list[PlannedPreemption] = []
        self.resumes: list[PlannedResume] = []
        self.waits: list[Wait] = []

    # -- the pass ---------------------------------------------------------------------------------------
    def run(self) -> Plan:
        preempted, urgent, realtime, queue = self._sort_jobs()
        accounts = {group.kind.leaf.index for group in self._groups.values()}
        self.ranking.is_one_account = self.rules.keeps_account_order and len(accounts) == 1
        for job, group, reason in urgent_and_due(urgent, realtime):
            self._first(job, group, reason)
        self._start_early(realtime, queue)
        self._regular(preempted, queue)
        waits = Waits(*realtime.explained(self.waits, *queue.remaining()))
        preemptors = {planned.preemptor for planned in self.preemptions}
        holds, releases = self.admission_holds.changes(preemptors)
        waiting = self.working_state.job_arrays.waiting
        banded = waiting.jobs[waiting.banded].tolist()
        # The order only matters if something waits: a job beyond the plan, too, may keep those behind it from nodes.
        is_ordered = bool(waits) or any(job.hold is Hold.NONE for job in self.working_state.job_arrays.set_aside)
        ranks = self.ranking.changes(banded, preemptors | self.busy) if is_ordered else ()
        return Plan(
            taken=self.taken,
            now=self.now,
            starts=tuple(self.starts),
            preemptions=tuple(self.preemptions),
            resumes=tuple(self.resumes),
            holds=holds,
            releases=releases,
            kept=self.admission_holds.kept(self._refs),
            ranks=ranks,
            waits=waits,
            accounts=account_rows(self.usage, pending_cpus(self._groups.values(), len(self.usage.entitled))),
            cpus=self.usage.cpus,
            promises=tuple(self.promises),
            room=room_without_hold(self.usage, self.admission_holds.claims(self.now)),
            urgent=tuple(job.ref for job, _ in urgent),
            realtime=tuple(realtime.standings),
        )

    def _sort_jobs(self) -> tuple[GroupedJobs, GroupedJobs, RealtimeQueue, JobQueue]:
        """The jobs that could start, each with its group: preempted, urgent, real-time, and all others."""
        waiting, patterns = self.working_state.job_arrays.waiting, self.working_state.job_arrays.patterns.first
        groups, known_preempted = self._groups, self.history.preempted
        by_number = np.zeros((2, len(patterns)), dtype=bool)
        is_urgent, needs_hold_check = by_number
        for number, tasks in enumerate(np.bincount(waiting.alike, weights=waiting.tasks).tolist()):
            if tasks:
                kind = self._add_group(number, patterns[number], int(tasks))
                if kind.job_class.urgent:
                    is_urgent[number] = True
                if kind.non_preemptible or patterns[number].hold is not Hold.NONE:
                    needs_hold_check[number] = True
        left = ~self._entirely_busy(waiting)
        changing = waiting.jobs[left & needs_hold_check[waiting.alike]].tolist()
        self.admission_holds.update(changing, self._refs, self.now)
        ready = left & (waiting.ready <= self.now)
        urgent = ready & is_urgent[waiting.alike]
        preempted: Bools = np.zeros(len(ready), dtype=bool)
        if known_preempted:
            preempted = (
                ready & ~urgent & np.array([job.ref in known_preempted for job in waiting.jobs.tolist()], dtype=bool)
            )
        queues: list[GroupedJobs] = [
            [(waiting.jobs[at], groups[int(waiting.alike[at])]) for at in np.flatnonzero(mask)]
            for mask in (preempted, urgent)
        ]
        for job in self.working_state.job_arrays.suspended:
            if job.ref in known_preempted and job.ref not in self.busy:
                # One that is set aside resumes on idle CPUs; nobody is preempted for it.
                kind = self.working_state.kinds.of(job)
                queues[0].append((job, JobGroup(kind, job.request, beyond=bool(job.set_aside))))
        realtime = RealtimeQueue(self.working_state, waiting, ready & ~preempted, groups, self.busy, self.now)
        regular = ready & ~urgent & ~preempted & ~realtime.is_due
        first, second = ([queue[at] for at in queue_order([job for job, _ in queue])] for queue in queues)
        # A new rank makes Slurm compute a job's age anew, so jobs of equal priority would take each other's rank again
        # and again.
        first.sort(key=lambda queued: -band_of(queued[0]))
        return first, second, realtime, JobQueue(waiting, np.flatnonzero(regular), groups)

    def _entirely_busy(self, waiting: WaitingJobs) -> Bools:
        """Which waiting jobs are part of a preemption with all their tasks."""
        known = self.working_state.job_arrays.find(self.busy).values()
        return np.isin(waiting.ids, [job.id for job in known if not self._refs(job)])

    def _add_group(self, number: int, job: Job, tasks: int) -> JobKind:
        """Most accounts are full, so most groups are known from the start to be beyond the entitlement."""
        kind = self.working_state.kinds.of(job)
        beyond = not kind.job_class.urgent and self.capacity.cpus_of(job.request) > self.usage.room(kind.leaf)
        self._groups[number] = JobGroup(kind, job.request, tasks, beyond)
        return kind

    def _refs(self, job: Job) -> list[str]:
        """The job, or the tasks of a waiting array, without those that are part of a preemption or start early."""
        refs = task_refs(job)
        return [ref for ref in refs if ref not in self._decided] if self._decided else refs

    def _first(self, job: Job, group: JobGroup, reason: Reason) -> None:
        """An urgent job, or a real-time one that is due."""
        band = Band.URGENT if reason is Reason.URGENT else Band.REALTIME
        for ref in self._refs(job):
            if self._is_refused(job, ref, self.start_checks.for_good(job)):
                return
            if group.blocked is None:
                self._make_room(job, ref, group, reason)
            else:
                self._wait(job, ref, group.blocked)
            if not self.preemptions or self.preemptions[-1].preemptor != ref:
                self.ranking.put(job, ref, band)
            if group.blocked is not None:
                return

    def _regular(self, preempted: GroupedJobs, queue: JobQueue) -> None:
        borrowers: list[tuple[Job, JobGroup, int]] = []
        firsts: dict[int, int] = {}
        for job, group in preempted:
            first = 0 if group.beyond else self._entitled(job, group)
            if first is not None:
                borrowers.append((job, group, first))
        for at, job, group in queue.walk(lambda group: group.is_decided):
            first = self._entitled(job, group)
            if first is None:
                queue.remove(at)
            else:
                firsts[at] = first
        for job, group, first in borrowers:
            self._borrow(job, group, first)
        for group in self._groups.values():
            if (
                group.blocked is None
                and not group.kind.non_preemptible
                and group.request.cpus > self.capacity.now.total
            ):
                group.blocked = Reason.BEYOND_ENTITLEMENT
        for at, job, group in queue.walk(lambda group: group.is_blocked):
            self._borrow(job, group, firsts.get(at, 0))
            queue.remove(at)

    def _start_early(self, realtime: RealtimeQueue, queue: JobQueue) -> None:
        """Real-time jobs that are not due start on idle nodes before others, from which these would soon be taken."""
        if not realtime.early:
            return
        for at, job, group in queue.walk(lambda group: group.kind.job_class.realtime is None):
            if job.ref not in realtime.early or self.start_checks.answer(job).kind is AnswerKind.NO:
                continue
            need = group.need(self.working_state, job)
            for ref in self._refs(job):
                self.ranking.put(job, ref, Band.REALTIME)
                allocations = need.place(self.capacity.now)
                if allocations is None:
                    break  # other tasks need as much, and ranks are for others, too
                is_entitled = self.usage.entitles(need.leaf, need.cpus)
                self._start(job, ref, need, allocations, Reason.ENTITLED if is_entitled else Reason.BORROWS)
                self._decided.add(ref)
            if not self._refs(job):
                queue.remove(at)

    def _entitled(self, job: Job, group: JobGroup) -> int | None:
        """Start or make room for the tasks within the entitlement; returns the first task beyond it."""
        need = group.need(self.working_state, job)
        for at, ref in enumerate(self._refs(job)):
            if ref in self.admission_holds.to_hold:
                self._wait(job, ref, self.admission_holds.reason_of(job))
                return None
            if not self.usage.entitles(need.leaf, need.cpus):
                group.beyond = True
                return at
            if self._is_beyond_for_good(job, ref, group):
                self._wait(job, ref, group.blocked or Reason.NON_PREEMPTIBLE_BEYOND)
                return None
            if self._is_refused(job, ref, self.start_checks.for_good(job)):
                return None
            if group.blocked is None:
                made = self._make_room(job, ref, group, Reason.ENTITLED)
            else:
                self._wait(job, ref, group.blocked)
                made = False
            if not self.preemptions or self.preemptions[-1].preemptor != ref:
                ranked = self.ranking.expect(job, ref, need, ref in self.history.preempted)
                group.ranked = group.ranked or not ranked or self.ranking.is_full
            if not made:
                return None
        return None

    def _borrow(self, job: Job, group: JobGroup, first: int) -> None:
        """Idle CPUs are lent to any account (OMFS, line 26). Without any, jobs of its own account may give way."""
        for ref in self._refs(job)[first:]:
            if ref in self.history.preempted:
                self.ranking.put(job, ref, Band.PREEMPTED_BORROWER)
            if ref in self.admission_holds.to_hold:
                self._wait(job, ref, self.admission_holds.reason_of(job))
                return
            if self._is_refused(job, ref, self.start_checks.answer(job)):
                return
            if group.blocked is None and not self._is_beyond_for_good(job, ref, group):
                need = group.need(self.working_state, job)
                allocations = need.place(self.capacity.now)
                if allocations is not None:
                    self._start(job, ref, need, allocations, Reason.BORROWS)
                    continue
                is_taken = bool(self.capacity.now.blocked[need.ref])
                otherwise = Reason.OWN_CPUS_TAKEN if is_taken else Reason.BEYOND_ENTITLEMENT
                is_own = need.own_since < inf and self._is_within_entitlement(job, need)
                if is_own and need.place(self.capacity.then) is None:
                    if self._preempt_others(job, ref, group, Reason.OWN_ACCOUNT, otherwise):
                        continue
                    return
                group.blocked = otherwise
            self._wait(job, ref, group.blocked or Reason.BEYOND_ENTITLEMENT)
            return

    def _is_within_entitlement(self, job: Job, need: ResourceNeed) -> bool:
        """Always, if it is preemptible. An administrator may have released a non-preemptible job that is not."""
        more = 0 if self.admission_holds.is_counted(job) else need.cpus
        return not need.non_preemptible or self.usage.admits_non_preemptible(need.leaf, more)

    def _is_beyond_for_good(self, job: Job, ref: str, group: JobGroup) -> bool:
        """Whether a held non-preemptible job does not fit besides those that run or may start at any moment."""
        if not group.kind.non_preemptible or job.hold is Hold.NONE:
            return False
        if self.admission_holds.is_counted(job):
            group.blocked = self.admission_holds.why_held(job, ref) or group.blocked
            return self.admission_holds.why_held(job, ref) is not None
        need = group.need(self.working_state, job)
        if self.usage.admits_non_preemptible(need.leaf, need.cpus):
            return False
        group.blocked = Reason.NON_PREEMPTIBLE_BEYOND
        return True

    # -- decisions ----------------------------------------------------------------------------------------
    def _make_room(self, job: Job, ref: str, group: JobGroup, reason: Reason) -> bool:
        """Start the job, promise it what is being freed, or preempt others; False if it must wait."""
        need = group.need(self.working_state, job)
        now = need.place(self.capacity.now)
        allocations = now or need.place(self.capacity.then)
        if allocations is not None and self._is_refused(job, ref, self.start_checks.answer(job)):
            return False
        if now is not None:
            self._start(job, ref, need, now, reason)
            return True
        if allocations is not None:
            self.start_checks.count(job, allocations)
            self.promises.append(Start(ref, job.account, Reason.BEING_FREED, allocations, len(self.preemptions)))
            self.working_state.promise(need, allocations, not self.admission_holds.is_counted(job))
            self._wait(job, ref, Reason.BEING_FREED)
            return True
        return self._preempt_others(job, ref, group, reason)

    def _preempt_others(
        self, job: Job, ref: str, group: JobGroup, reason: Reason, otherwise: Reason = Reason.NOT_ENOUGH_VICTIMS
    ) -> bool:
        """False if the job must wait; ``otherwise``: why, if not enough jobs may be preempted for it."""
        need = group.need(self.working_state, job)
        backs_off = self._backs_off(job, ref, need.urgent or need.realtime is not None)
        if backs_off is not None:
            self._wait(job, ref, backs_off)
            return False
        left = self._preemptions_left
        tried = self.history.tried.get(ref, ())
        choice = self.search.find(need, tried) if left > 0 else None
        entitled = need.realtime is not None and left > 0 and self.usage.entitles(need.leaf, need.cpus)
        if choice is None and entitled and self._backs_off(job, ref, False) is None:
            need, reason = need._replace(realtime=None), Reason.ENTITLED
            choice = self.search.find(need, tried)
        if choice is None and tried and left > 0:
            self._wait(job, ref, Reason.TRIED_IN_VAIN)
            return False
        if choice is None or (len(choice.victims) > left and self.preemptions):
            group.blocked = otherwise if choice is None and left > 0 else Reason.ENOUGH_PREEMPTIONS
            self._wait(job, ref, group.blocked)
            return False
        leaving = leaving_victims(self.search.victims(choice), self.rules)
        if self._is_refused(job, ref, self.start_checks.answer(job, choice.allocations, leaving)):
            return False
        self.start_checks.count(job, choice.allocations, leaving)
        self._preempt(job, ref, need, choice, reason)
        return True

    def _is_refused(self, job: Job, ref: str, answer: Answer) -> bool:
        """Whether Slurm would not start the job: it gets no nodes, and waits with Slurm's reason."""
        if answer.kind is AnswerKind.NO:
            self._wait(job, ref, Reason.WOULD_NOT_START, answer)
        return answer.kind is AnswerKind.NO

    def _backs_off(self, job: Job, ref: str, is_promised: bool) -> Reason | None:
        """``is_promised``: it is urgent or a due real-time job, which may be brief."""
        history = self.history
        shape = shape_of(job) if history.shapes else ""
        alike = (history.shapes.get(one, 0.0) for one in (shape, shape_of_user(shape, job.user)))
        if max(*alike, history.backoff.get(ref, 0.0)) > self.now:
            return Reason.TRIED_IN_VAIN
        return Reason.BRIEF_JOBS if not is_promised and history.users.get(job.user, 0.0) > self.now else None

    def _start(
        self, job: Job, ref: str, need: ResourceNeed, allocations: tuple[Allocation, ...], reason: Reason
    ) -> None:
        self.start_checks.count(job, allocations)
        if job.state is JobState.SUSPENDED:
            self.resumes.append(PlannedResume(ref, job.account, allocations, len(self.preemptions)))
        else:
            self.starts.append(Start(ref, job.account, reason, allocations, len(self.preemptions)))
            is_released_here = need.non_preemptible and not self.admission_holds.is_counted(job)
            if job.hold is not Hold.NONE and (is_released_here or job.request.unplaced):
                self.admission_holds.releases.append(HoldChange(ref, job.account, Reason.WITHIN_ENTITLEMENT))
        self.working_state.start(need, allocations, not self.admission_holds.is_counted(job))

    def _preempt(self, job: Job, ref: str, need: ResourceNeed, choice: VictimChoice, reason: Reason) -> None:
        """Add the preemption, and plan on as if the victims had freed their resources and the preemptor ran there."""
        victims = self.search.victims(choice)
        self.preemptions.append(self.search.planned(job, ref, need, choice, reason))
        self.working_state.preempt(victims)
        self.working_state.promise(need, choice.allocations, not self.admission_holds.is_counted(job))
        self.search.candidates.remove(at for at, _ in choice.victims)
        self._preemptions_left -= len(victims)

    def _wait(self, job: Job, ref: str, reason: Reason, answer: Answer | None = None) -> None:
        self.waits.append(Wait(ref, job.account, reason, answer))
