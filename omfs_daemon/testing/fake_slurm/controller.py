"""An in-memory Slurm with a clock passed in: for tests, property tests and the demo's replay.

It behaves as Slurm 22.05 was measured to behave; ``tests/contract/`` runs against both. It advances lazily: every call
first processes the events up to ``clock()``. Nothing in it is random.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.limits import SiteLicense, SiteLimits
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.testing.fake_slurm.events import Timing
from omfs_daemon.testing.fake_slurm.fake_admission import FakeAdmission
from omfs_daemon.testing.fake_slurm.fake_job_submit import (
    is_refused_to_operator,
    is_refused_to_owner,
    is_release_refused_to_owner,
    may_start_by_itself,
    recorded_by_administrator,
    with_wait_word,
    without_wait_word,
    would_hold_be_lost,
)
from omfs_daemon.testing.fake_slurm.fake_jobs import (
    BAD_CONSTRAINTS,
    History,
    Record,
    Submission,
    new_record,
    whole_request,
)
from omfs_daemon.testing.fake_slurm.fake_licenses import LicenseCounts
from omfs_daemon.testing.fake_slurm.fake_limits import FakeLimits, partition_refuses
from omfs_daemon.testing.fake_slurm.fake_nodes import FakeNode
from omfs_daemon.testing.fake_slurm.node_failures import NodeFailures
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from omfs_daemon.testing.fake_slurm.restarts import Restarts
from omfs_daemon.testing.fake_slurm.scheduler import Scheduler

_TIMING = Timing()


class FakeSlurm(NodeFailures, Restarts):
    """The cluster, and what users and failures do to it; ``FakeGateway`` is the administrator's side."""

    def __init__(
        self,
        clock: Callable[[], float],
        nodes: Iterable[Node],
        partitions: Iterable[Partition] = (),
        timing: Timing = _TIMING,
        licenses: Mapping[str, int] | None = None,
        plugin: bool = False,
    ) -> None:
        """``plugin``: with what job_submit.lua does about marks; with ``admission``, also with its holds at submit."""
        self.plugin = plugin
        self.admission: FakeAdmission | None = None
        nodes = list(nodes)
        parts = list(partitions) or [Partition("main", frozenset(node.name for node in nodes))]
        self.partitions = {part.name: part for part in parts}
        fake_nodes = {
            node.name: FakeNode.empty(replace(node, partitions=tuple(p.name for p in parts if node.name in p.nodes)))
            for node in nodes
        }
        super().__init__(clock(), fake_nodes, LicenseCounts(licenses or {}), timing)
        self._clock = clock
        self.booted = f"{clock():.0f}"
        """When slurmctld has started; a test may set it."""
        self._unlooked: list[Record] = []
        self._limits = FakeLimits(lambda: [one for one in self._jobs.live.values() if one.active], lambda: self.now)
        self._scheduler = Scheduler(self.fake_nodes, self.partitions, self._start, timing, self.licenses, self._limits)
        self._queue = self._scheduler.queue

    def let_lack(self, lacks: Callable[[Record], str]) -> None:
        """From now on jobs lack something that only Slurm knows (a limit, for instance): its word, "" for nothing.
        ``Resources``: Slurm says so, and does not start the job."""
        self.catch_up()
        self._scheduler.lacks = lacks
        self.wake()

    @classmethod
    def uniform(cls, clock: Callable[[], float], nodes: int = 4, cpus: int = 4, memory: int = 8_000 << 20) -> FakeSlurm:
        """``nodes`` equal nodes n1, n2… in one partition ``main``."""
        return cls(clock, [Node(f"n{number}", cpus, memory) for number in range(1, nodes + 1)])

    # -- users -------------------------------------------------------------------------------------
    def submit(self, what: Submission) -> int:
        """A new job, or array; its id. Raises ValueError for a partition or licenses that do not exist."""
        return self.submit_all((what,))[0]

    def submit_all(self, several: Iterable[Submission]) -> list[int]:
        """Several before Slurm looks at its queue."""
        self.catch_up()
        found = [self._enter(what) for what in several]
        self._schedule()
        return found

    def _enter(self, what: Submission) -> int:
        partitions = what.request.partitions or (next(iter(self.partitions)),)
        requests = (what.request, *what.parts)
        if not {name for one in requests for name in one.partitions} <= set(self.partitions):
            raise ValueError(f"no such partition: {partitions}; there are {sorted(self.partitions)}")
        if not self.licenses.exist(what.licenses):
            raise ValueError(f"no such licenses: {what.licenses}; there are {self.licenses.rows()}")
        uid = self._jobs.uid(what.user) if what.uid is None else what.uid
        whole = whole_request([replace(one, partitions=one.partitions or partitions) for one in requests])
        record = new_record(self._jobs.new_id(len(requests)), what, uid, self.now, whole, partitions)
        if self.admission is not None and what.hold is Hold.NONE and not may_start_by_itself(record):
            record.hold, record.admin_comment = self.admission.hold_and_mark(what, uid, self.now)
        self._jobs.add(record)
        self.consider(record)
        return record.id

    def cancel(self, job_id: int) -> None:
        """scancel; all tasks of an array."""
        self.catch_up()
        for record in list(self._jobs.live_of(job_id)):
            self.end(record, "CANCELLED")

    def user_hold(self, job_id: int) -> bool:
        """``scontrol hold`` by the owner, also of a running job; False if refused. It never weakens an administrator's
        hold."""
        self.catch_up()
        records = list(self._jobs.live_of(job_id))
        if self.plugin and any(is_refused_to_owner(record) or would_hold_be_lost(record) for record in records):
            return False
        for record in records:
            if self.plugin:
                record.comment = without_wait_word(record.comment)
            if record.hold is Hold.NONE:
                self.set_hold(record, Hold.USER)
        return bool(records)

    def user_release(self, job_id: int) -> bool:
        """``scontrol release`` by the owner; False if refused, as under an administrator's hold. What we must admit is
        held by the gate then."""
        self.catch_up()
        held = list(self._jobs.live_of(job_id))
        if any(record.hold is Hold.ADMIN or (self.plugin and is_release_refused_to_owner(record)) for record in held):
            return False
        for record in held:
            if self.plugin and record.hold is Hold.USER and not may_start_by_itself(record):
                self.hold_at_gate(record)
            else:
                self.release(record)
        return bool(held)

    def requeue_hold(self, job_id: int) -> bool:
        """``scontrol requeuehold`` by the owner or an administrator: a hold that the owner can end. False: refused."""
        self.catch_up()
        found = [record for record in self._jobs.live_of(job_id) if record.active and record.requeue]
        for record in found:
            self.requeue(record, hold=True)
        return bool(found)

    # -- administrators ----------------------------------------------------------------------------
    def admin_hold(self, job_id: int, by_user: bool = False, is_operator: bool = False) -> bool:
        """``scontrol hold`` by root, or an Operator; ``by_user``: ``scontrol uhold``, which the owner can end. False if
        refused."""
        self.catch_up()
        records = list(self._jobs.live_of(job_id))
        if self.plugin and is_operator and any(is_refused_to_operator(record, holds=True) for record in records):
            return False
        for record in records:
            if self.plugin and not is_operator:
                self._record_administrator(record, holds=True)
            record.held_text = ""
            self.set_hold(record, Hold.USER if by_user else Hold.ADMIN)
        return bool(records)

    def admin_release(self, job_id: int, is_operator: bool = False) -> bool:
        """``scontrol release`` by root, or an Operator; False if refused."""
        self.catch_up()
        records = list(self._jobs.live_of(job_id))
        if self.plugin and is_operator and any(is_refused_to_operator(record, holds=False) for record in records):
            return False
        for record in records:
            if self.plugin and not is_operator:
                self._record_administrator(record, holds=False)
            self.release(record)
        return bool(records)

    @staticmethod
    def _record_administrator(record: Record, holds: bool) -> None:
        record.admin_comment = recorded_by_administrator(record, holds)
        record.comment = without_wait_word(record.comment)

    # -- jobs on nodes ------------------------------------------------------------------------------
    def behave(self, job_id: int, launched: OmfsRunBehavior) -> None:
        """From now on omfs-run in the job does this."""
        self.catch_up()
        self._jobs.records[job_id].launched = launched

    def set_comment(self, job_id: int, comment: str) -> None:
        """``scontrol update comment=`` by the owner."""
        self.catch_up()
        record = self._jobs.records[job_id]
        record.comment, record.shown = comment, None

    def shrink(self, job_id: int, keep: Collection[str]) -> None:
        """``scontrol update nodelist=`` of a running job by its owner: it gives up its other nodes."""
        self.catch_up()
        record = self._jobs.records[job_id]
        for taken in record.taken:
            if taken.node not in keep:
                self.fake_nodes[taken.node].give_back(taken)
        record.taken = tuple(taken for taken in record.taken if taken.node in keep)
        record.shown = None
        self.wake()

    def refusal(self, record: Record, nodes: frozenset[str] = frozenset()) -> str:
        """Slurm's word for what besides resources keeps a job from starting (on these nodes), "" for nothing."""
        pinned = replace(record, request=replace(record.request, required_nodes=nodes)) if nodes else record
        refusals = [partition_refuses(record, self.partitions[name]) for name in record.partitions]
        return self._scheduler.lacking(pinned) if "" in refusals else refusals[0]

    # -- for assertions ----------------------------------------------------------------------------
    @property
    def history(self) -> Mapping[int, History]:
        """The history of every job and array task, by raw id; never forgotten."""
        self.catch_up()
        return self._jobs.history

    def processes(self) -> dict[str, int]:
        """CPUs with running processes, per node: more than the node has after a resume on busy CPUs."""
        self.catch_up()
        used = dict.fromkeys(self.fake_nodes, 0)
        for record in self._running.values():
            for taken in record.taken:
                used[taken.node] += taken.cores.bit_count()
        return used

    def next_event(self) -> float | None:
        """When the next event is due: a simulated clock may jump there."""
        self.catch_up()
        return self._events.next_at()

    # -- state as the gateway sees it --------------------------------------------------------------
    def live(self) -> list[Job]:
        """All jobs that have not ended."""
        return [record.view(self.now) for record in self._jobs.live.values()]

    @property
    def records(self) -> Mapping[int, Record]:
        """All known jobs, ended ones too, by raw id."""
        return self._jobs.records

    def records_of(self, job_id: int) -> list[Record]:
        return self._jobs.records_of(job_id)

    def node_views(self) -> list[Node]:
        return [node.view() for node in self.fake_nodes.values()]

    def site_limits(self) -> SiteLimits:
        """What ``scontrol`` and ``sacctmgr`` show of limits."""
        licenses = {row.name: SiteLicense(row.total) for row in self.licenses.rows()}
        return replace(self._limits.site, licenses={**licenses, **(self._limits.site.licenses or {})})

    def set_limits(self, site: SiteLimits) -> None:
        """What an administrator changes with sacctmgr, and reservations; ``FakeLimits`` enforces them."""
        self.catch_up()
        self._limits.site = site
        for reservation in site.reservations or ():
            self._events.plan(reservation.end, self.wake)
        self.wake()

    def update_partition(self, name: str, **changes: Any) -> None:
        """``scontrol update partitionname=``; ``changes``: of the fields of ``Partition``."""
        self.catch_up()
        self.partitions[name] = replace(self.partitions[name], **changes)
        for record in self._queue:
            self._queue.put(record)
        self.wake()

    # -- parts of orders (called after catch_up) ---------------------------------------------------
    def set_hold(self, record: Record, hold: Hold) -> None:
        if hold is not Hold.NONE and record.eligible is not None and record.eligible <= self.now:
            record.eligible = None  # Slurm sets it anew when it looks at the released job
        record.hold = hold
        if hold is Hold.NONE:
            record.held_text, record.reason, record.special_exit = "", "None", False
        if hold is Hold.NONE and record.what.after:
            record.shown = None
            self._unlooked.append(record)
            self.wake()
        else:
            self.reconsider(record)

    def release(self, record: Record) -> None:
        """Slurm resets the nice of a job that is not held."""
        if record.hold is Hold.NONE:
            record.nice = 0
        self.set_hold(record, Hold.NONE)

    def hold_at_gate(self, record: Record) -> None:
        """The plug-in's hold after an act of the owner's, who cannot write AdminComment."""
        record.comment = with_wait_word(record.comment)
        self.set_hold(record, Hold.USER)

    def depend(self, record: Record, after: int) -> None:
        record.what = replace(record.what, after=(after,))
        self._jobs.add_dependent(record, after)
        self.reconsider(record)

    def pin(self, record: Record, nodes: frozenset[str]) -> None:
        """Slurm holds a job whose pin it can never honor, until it is pinned elsewhere or released."""
        record.request = replace(record.request, required_nodes=nodes)
        if record.held_text == BAD_CONSTRAINTS:
            self.set_hold(record, Hold.NONE)
        else:
            self.reconsider(record)

    def set_licenses(self, record: Record, licenses: tuple[tuple[str, int], ...]) -> None:
        """The licenses that it asks for; a running job holds them at once, even if others do."""
        if record.active:
            self.licenses.give_back(record.licenses)
            self.licenses.take(licenses)
        record.licenses, record.shown = licenses, None
        if record.active:
            self.wake()
        else:
            self.reconsider(record)

    def reconsider(self, record: Record) -> None:
        """Something that decides whether or when it starts has changed: the next tick considers it."""
        record.shown = None
        self._queue.drop(record)
        if record.state is JobState.PENDING:
            self.consider(record)

    def consider(self, record: Record) -> None:
        """Queue a waiting job if nothing but resources is missing, else come back when that may be so."""
        if record.state is not JobState.PENDING:
            return
        record.depends = any(next(self._jobs.live_of(other), None) for other in record.what.after)
        if record.hold is not Hold.NONE or record.ended_parts:
            return
        if record.depends:
            record.reason = "Dependency"
            return
        if record.eligible is None:
            record.eligible = max(self.now, record.what.begin)
        if record.eligible > self.now:
            record.reason = "BeginTime"
            self._at(record.eligible, record, self.reconsider)
            return
        if record.deadline < inf:  # Slurm does not look at it while anything else keeps the job from starting
            latest = record.deadline - (record.what.time_limit if record.what.time_limit < inf else 0.0)
            if latest < self.now:
                self.end(record, "DEADLINE")
                return
            self._at(latest + 1, record, self.reconsider)
        if not self._scheduler.can_ever_run(record):
            record.hold, record.held_text = Hold.USER, BAD_CONSTRAINTS
            return
        record.reason = "None"
        self._queue.put(record)
        self.wake()

    def split(self, record: Record, task: int) -> Record:
        """One task of a pending array as a job of its own; the last one keeps the array's id."""
        if len(record.tasks) <= 1:
            return record
        single = replace(record, id=self._jobs.new_id(), tasks=(task,), history=History(), shown=None)
        record.tasks, record.shown = tuple(one for one in record.tasks if one != task), None
        self._jobs.add(single)
        self.consider(single)
        return single

    # -- time --------------------------------------------------------------------------------------
    def catch_up(self) -> None:
        """Process all events that are due by ``clock()``."""
        self._events.run_until(self._clock())

    def wake(self) -> None:
        """Slurm's background tick will process the queue."""
        self._events.plan_tick("main", self.timing.sched_interval, self._schedule)

    def _schedule(self) -> None:
        """The main scheduler at once, backfill at its next turn. What jobs just released wait for is seen only now."""
        released, self._unlooked = self._unlooked, []
        for record in released:
            self.reconsider(record)
        self._scheduler.main_pass()
        if self._queue:
            self._events.plan_tick("backfill", self.timing.bf_interval, self._backfill)

    def _backfill(self) -> None:
        self._scheduler.backfill_pass(self.now, self._running.values())
