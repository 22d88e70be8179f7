"""The policy: one pass over the waiting jobs. ``Snapshot + ledger + rules + now`` give a ``Plan``.

The order of the pass:

1. Urgent jobs: what fits starts; else regular jobs are stopped, longest remaining first; else it waits in its
   own queue, before all regular ones (UJFB, section IV).
2. Regular jobs whose account uses less than its entitlement: what fits starts; else jobs of accounts
   above their entitlement are stopped (OMFS, Algorithm 1, lines 31-36).
3. All others: what fits on what is idle may borrow (line 26), the rest waits (line 28).

Inside each, stopped jobs come first, then Slurm's own priority counts. A job that is never stopped and would take
its account beyond the entitlement waits whatever is idle (line 23). A job that will fit on what is being freed already
is promised that: nobody is stopped for it, and nobody else counts on it.

Waiting jobs that are alike (account, class, request) form a group: while the books only fill up, what holds for one of
them holds for all behind it, so it is decided once. An account that gives in this plan, and a job behind one of its
group that was refused, are looked at afresh in the next cycle only.
"""

from __future__ import annotations

from collections.abc import Iterable
import numpy as np
from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.policy.arrays.job_arrays import Waiting
from omfs_daemon.policy.arrays.job_arrays import task_refs
from omfs_daemon.policy.arrays.free_resources import Frontier
from omfs_daemon.policy.admission_holds import Gating
from omfs_daemon.policy.rules.job_kinds import Kind
from omfs_daemon.policy.arrays.node_arrays import Bools
from omfs_daemon.policy.rules.queue_order import Band
from omfs_daemon.policy.plan import Change
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.plan import Reason
from omfs_daemon.policy.plan import Reclaim
from omfs_daemon.policy.plan import Resume
from omfs_daemon.policy.plan import Start
from omfs_daemon.policy.plan import Victim
from omfs_daemon.policy.plan import Wait
from omfs_daemon.policy.plan import Waits
from omfs_daemon.policy.victims.candidates import Pool
from omfs_daemon.policy.rules.queue_order import in_order
from omfs_daemon.policy.ranking import Ranking
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.arrays.snapshot_arrays import Scene
from omfs_daemon.policy.working_state import Standing
from omfs_daemon.policy.arrays.usage import account_rows
from omfs_daemon.policy.victims.choice import Choice
from omfs_daemon.policy.victims.need import Need
from omfs_daemon.policy.victims.choice import choose
from omfs_daemon.policy.waiting_groups import _Group
from omfs_daemon.policy.waiting_groups import _Queue
from omfs_daemon.policy.waiting_groups import _Line


def plan(snapshot: Snapshot, ledger: Ledger, rules: Rules, now: float, scene: Scene | None = None) -> Plan:
    """What should happen now. Pure: no I/O, no clock of its own. ``scene``: the snapshot's, if it is laid out."""
    return _Pass(snapshot.taken, scene or Scene(snapshot), ledger, rules, now).run()


class _Pass:
    """The working state of one pass; lives for one call of :func:`plan`."""

    def __init__(self, taken: float, scene: Scene, ledger: Ledger, rules: Rules, now: float) -> None:
        self.taken, self.ledger, self.rules, self.now = taken, ledger, rules, now
        self.standing = Standing(scene, ledger, rules)
        self.capacity, self.usage = self.standing.capacity, self.standing.usage
        self.in_transit = {ref for stop in ledger.commitments for ref in (stop.beneficiary, *stop.victims)}
        self.gating = Gating(self.standing)
        self.ranking = Ranking(self.usage, rules.rank_depth)
        self._groups: dict[int, _Group] = {}
        self._rooms: dict[int, int] = {}
        self._pool: Pool | None = None
        self._stops_left = rules.max_stops_per_cycle
        self._in_vain: dict[tuple[int, bool], Frontier] = {}
        self.starts: list[Start] = []
        self.promises: list[Start] = []
        self.reclaims: list[Reclaim] = []
        self.resumes: list[Resume] = []
        self.waits: list[Wait] = []

    # -- the pass ---------------------------------------------------------------------------------------
    def run(self) -> Plan:
        heads, urgent, line = self._sorted_out()
        for job, group in urgent:
            self._urgent(job, group)
        self._regular(heads, line)
        waits = Waits(self.waits, *line.rest())
        beneficiaries = {reclaim.beneficiary for reclaim in self.reclaims}
        holds, releases = self.gating.changes(beneficiaries)
        waiting = self.standing.crowd.waiting
        banded = waiting.jobs[waiting.banded].tolist()
        # Where nobody waits, order does not matter and nothing is told to Slurm.
        ranks = self.ranking.changes(banded, beneficiaries | self.in_transit) if waits else ()
        return Plan(
            taken=self.taken,
            now=self.now,
            starts=tuple(self.starts),
            reclaims=tuple(self.reclaims),
            resumes=tuple(self.resumes),
            holds=holds,
            releases=releases,
            ranks=ranks,
            waits=waits,
            accounts=account_rows(self.usage, self._pending()),
            promises=tuple(self.promises),
        )

    def _sorted_out(self) -> tuple[_Queue, _Queue, _Line]:
        """The jobs that could start, each with its group: stopped ones, urgent ones, all others."""
        waiting, patterns = self.standing.crowd.waiting, self.standing.crowd.patterns.first
        groups, stopped = self._groups, self.ledger.stopped
        by_number = np.zeros((2, len(patterns)), dtype=bool)
        is_urgent, is_gated = by_number
        for number, tasks in enumerate(np.bincount(waiting.alike, weights=waiting.tasks).tolist()):
            if tasks:
                kind = self._group_up(number, patterns[number], int(tasks))
                if kind.job_class.urgent:
                    is_urgent[number] = True
                if kind.fixed or patterns[number].hold is not Hold.NONE:
                    is_gated[number] = True
        left = ~self._all_in_transit(waiting)
        self._gate(waiting.jobs[left & is_gated[waiting.alike]].tolist())
        ready = left & (waiting.ready <= self.now)
        urgent = ready & is_urgent[waiting.alike]
        heads: Bools = np.zeros(len(ready), dtype=bool)
        if stopped:
            heads = ready & ~urgent & np.array([job.ref in stopped for job in waiting.jobs.tolist()], dtype=bool)
        queues: list[_Queue] = [
            [(waiting.jobs[at], groups[int(waiting.alike[at])]) for at in np.flatnonzero(mask)]
            for mask in (heads, urgent)
        ]
        for job in self.standing.crowd.suspended:
            if job.ref in stopped and job.ref not in self.in_transit:
                queues[0].append((job, _Group(self.standing.kinds.of(job), job.request)))
        first, second = ([queue[at] for at in in_order([job for job, _ in queue])] for queue in queues)
        return first, second, _Line(waiting, np.flatnonzero(ready & ~urgent & ~heads), groups)

    def _all_in_transit(self, waiting: Waiting) -> Bools:
        """Which waiting jobs are part of a stop with all their tasks."""
        known = self.standing.crowd.find(self.in_transit).values()
        return np.isin(waiting.ids, [job.id for job in known if not self._refs(job)])

    def _gate(self, jobs: Iterable[Job]) -> None:
        """Look after holds: of jobs that are never stopped, and of all that are held."""
        unheld = []
        for job in jobs:
            if not self.standing.kinds.of(job).fixed:
                self.gating.let_go(job)
            elif job.hold is not Hold.NONE:
                self.gating.strengthen(job)
            else:
                unheld.append(job)
        self.gating.admit(unheld, self._refs, self.now)

    def _group_up(self, number: int, job: Job, tasks: int) -> Kind:
        """Most accounts are full, so for most groups it is plain from the start that they are beyond."""
        kind = self.standing.kinds.of(job)
        room = self._rooms.get(kind.leaf.index)
        if room is None:
            room = self._rooms[kind.leaf.index] = self.usage.room(kind.leaf)
        beyond = not kind.job_class.urgent and self.capacity.cpus_of(job.request) > room
        self._groups[number] = _Group(kind, job.request, tasks, beyond)
        return kind

    def _refs(self, job: Job) -> list[str]:
        """The job, or the tasks of a waiting array, apart from those that are part of a stop already."""
        refs = task_refs(job)
        return [ref for ref in refs if ref not in self.in_transit] if self.in_transit else refs

    def _urgent(self, job: Job, group: _Group) -> None:
        for ref in self._refs(job):
            if group.shut is None:
                self._make_room(job, ref, group, Reason.URGENT)
            else:
                self._wait(job, ref, group.shut)
            if not self.reclaims or self.reclaims[-1].beneficiary != ref:
                self.ranking.put(job, ref, Band.URGENT)
            if group.shut is not None:
                return

    def _pending(self) -> list[int]:
        """CPUs that wait, by entity."""
        pending = [0] * len(self.usage.entitled)
        for group in self._groups.values():
            for index in group.kind.leaf.path:
                pending[index] += group.request.cpus * group.tasks
        return pending

    def _regular(self, heads: _Queue, line: _Line) -> None:
        borrowers: list[tuple[Job, _Group, int]] = []
        firsts: dict[int, int] = {}
        for job, group in heads:
            first = 0 if group.beyond else self._entitled(job, group)
            if first is not None:
                borrowers.append((job, group, first))
        for at, job, group in line.walk(lambda group: group.is_decided):
            first = self._entitled(job, group)
            if first is None:
                line.leave(at)
            else:
                firsts[at] = first
        for job, group, first in borrowers:
            self._borrow(job, group, first)
        for group in self._groups.values():
            if group.shut is None and not group.kind.fixed and group.request.cpus > self.capacity.now.total:
                group.shut = Reason.BEYOND_ENTITLEMENT
        for at, job, group in line.walk(lambda group: group.is_shut):
            self._borrow(job, group, firsts.get(at, 0))
            line.leave(at)

    def _entitled(self, job: Job, group: _Group) -> int | None:
        """Start or make room for what its account owns; returns which task is the first beyond it."""
        need = group.need(self.standing, job)
        for at, ref in enumerate(self._refs(job)):
            if ref in self.gating.to_hold:
                self._wait(job, ref, Reason.NON_PREEMPTIBLE_BEYOND)
                return None
            if not self.usage.entitles(need.leaf, need.cpus):
                group.beyond = True
                return at
            if self._is_beyond_for_good(job, group):
                self._wait(job, ref, Reason.NON_PREEMPTIBLE_BEYOND)
                return None
            if group.shut is None:
                made = self._make_room(job, ref, group, Reason.ENTITLED)
            else:
                self._wait(job, ref, group.shut)
                made = False
            if not self.reclaims or self.reclaims[-1].beneficiary != ref:
                ranked = self.ranking.expect(job, ref, need, ref in self.ledger.stopped)
                group.ranked = group.ranked or not ranked or self.ranking.is_full
            if not made:
                return None
        return None

    def _borrow(self, job: Job, group: _Group, first: int) -> None:
        """What is idle is lent to anybody (OMFS, Algorithm 1, line 26)."""
        for ref in self._refs(job)[first:]:
            if ref in self.ledger.stopped:
                self.ranking.put(job, ref, Band.STOPPED_BORROWER)
            if ref in self.gating.to_hold:
                self._wait(job, ref, Reason.NON_PREEMPTIBLE_BEYOND)
                return
            if group.shut is None and not self._is_beyond_for_good(job, group):
                need = group.need(self.standing, job)
                shares = need.place(self.capacity.now)
                if shares is not None:
                    self._start(job, ref, need, shares, Reason.BORROWS)
                    continue
                group.shut = Reason.BEYOND_ENTITLEMENT
            self._wait(job, ref, group.shut or Reason.BEYOND_ENTITLEMENT)
            return

    def _is_beyond_for_good(self, job: Job, group: _Group) -> bool:
        """Whether a held job that is never stopped does not fit on top of what runs or may start at any moment.

        One that nothing holds was counted already.
        """
        if not group.kind.fixed or job.hold is Hold.NONE:
            return False
        need = group.need(self.standing, job)
        if self.usage.admits_fixed(need.leaf, need.cpus):
            return False
        group.shut = Reason.NON_PREEMPTIBLE_BEYOND
        return True

    # -- decisions ----------------------------------------------------------------------------------------
    def _make_room(self, job: Job, ref: str, group: _Group, reason: Reason) -> bool:
        """Start the job, promise it what is being freed, or stop others; False with the reason noted if none can be."""
        need = group.need(self.standing, job)
        shares = need.place(self.capacity.now)
        if shares is not None:
            self._start(job, ref, need, shares, reason)
            return True
        shares = need.place(self.capacity.then)
        if shares is not None:
            self.promises.append(Start(ref, job.account, Reason.BEING_FREED, shares, len(self.reclaims)))
            self.standing.promise(need, shares, job.hold is not Hold.NONE)
            self._wait(job, ref, Reason.BEING_FREED)
            return True
        if self.ledger.backoff.get(ref, 0.0) > self.now:
            self._wait(job, ref, Reason.TRIED_IN_VAIN)
            return False
        choice, why_not = self._victims_for(need)
        if choice is None:
            group.shut = why_not
            self._wait(job, ref, why_not)
            return False
        self._reclaim(job, ref, need, choice, reason)
        return True

    def _start(self, job: Job, ref: str, need: Need, shares: tuple[Share, ...], reason: Reason) -> None:
        if job.state is JobState.SUSPENDED:
            self.resumes.append(Resume(ref, job.account, shares, len(self.reclaims)))
        else:
            self.starts.append(Start(ref, job.account, reason, shares, len(self.reclaims)))
            if job.hold is not Hold.NONE and (need.fixed or job.request.unplaced):
                self.gating.releases.append(Change(ref, job.account, Reason.WITHIN_SHARE))
        self.standing.start(need, shares, job.hold is not Hold.NONE)

    def _victims_for(self, need: Need) -> tuple[Choice | None, Reason]:
        if self._stops_left <= 0:
            return None, Reason.ENOUGH_STOPS
        in_vain = self._in_vain.setdefault((need.leaf.index, need.urgent), Frontier())
        if not need.shares and in_vain.covers(need.request):
            return None, Reason.NOT_ENOUGH_TO_STOP
        choice = choose(need, self.pool, self.capacity.then, self.usage, self.rules)
        if choice is None:
            if not need.shares:
                in_vain.add(need.request)
            return None, Reason.NOT_ENOUGH_TO_STOP
        if len(choice.victims) > self._stops_left and self.reclaims:
            return None, Reason.ENOUGH_STOPS
        return choice, Reason.ENTITLED

    def _reclaim(self, job: Job, ref: str, need: Need, choice: Choice, reason: Reason) -> None:
        """Note it, and go on planning as if the victims were gone and the beneficiary there."""
        victims = [(self.pool.jobs[at], method) for at, method in choice.victims]
        cpus = {at: int(self.pool.cpus[at]) for at, _ in choice.victims}
        self.reclaims.append(
            Reclaim(
                beneficiary=ref,
                account=job.account,
                reason=reason,
                urgent=need.urgent,
                suspended=job.state is JobState.SUSPENDED,
                shares=choice.shares,
                victims=tuple(
                    Victim(self.pool.jobs[at].ref, self.pool.jobs[at].account, method, cpus[at])
                    for at, method in choice.victims
                ),
                submitted=job.submit,
                numbers={
                    "cpus": need.cpus,
                    "idle": self.capacity.now.total,
                    "entitled": self.usage.entitled[need.leaf.index],
                    "used": self.usage.all[need.leaf.index],
                },
            )
        )
        self.standing.stop(victims)
        self.standing.promise(need, choice.shares, job.hold is not Hold.NONE)
        self.pool.remove(cpus)
        self._stops_left -= len(victims)

    def _wait(self, job: Job, ref: str, reason: Reason) -> None:
        self.waits.append(Wait(ref, job.account, reason))

    @property
    def pool(self) -> Pool:
        if self._pool is None:
            standing = self.standing
            self._pool = Pool(standing.crowd, standing.machine, standing.kinds, standing.ways, self.ledger, self.now)
        return self._pool
