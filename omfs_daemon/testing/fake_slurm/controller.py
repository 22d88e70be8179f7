"""An in-memory Slurm with a clock passed in: for tests, property tests and the demo's replay.

It behaves as Slurm 22.05 was measured to behave, for better or worse; ``tests/contract/`` runs against both. It
advances lazily: every call first brings the world to ``clock()``, event after event. Nothing in it is random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.testing.fake_slurm.events import Events
from omfs_daemon.testing.fake_slurm.events import Timing
from omfs_daemon.testing.fake_slurm.fake_jobs import BAD_CONSTRAINTS
from omfs_daemon.testing.fake_slurm.fake_jobs import REQUEUED_HELD
from omfs_daemon.testing.fake_slurm.fake_jobs import History
from omfs_daemon.testing.fake_slurm.fake_jobs import Record
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from omfs_daemon.testing.fake_slurm.omfs_run_behaviour import Launched
from omfs_daemon.testing.fake_slurm.fake_licenses import LicenceBook
from omfs_daemon.testing.fake_slurm.fake_licenses import in_order
from omfs_daemon.testing.fake_slurm.fake_nodes import NodeBook
from omfs_daemon.testing.fake_slurm.fake_nodes import Placement
from omfs_daemon.testing.fake_slurm.fake_omfs_run import OmfsRun
from omfs_daemon.testing.fake_slurm.job_table import Registry
from omfs_daemon.testing.fake_slurm.scheduler import Scheduler

_TIMING = Timing()


class FakeSlurm:
    """The cluster, and what its users and the world do to it; :meth:`gateway` is the administrator's side."""

    def __init__(
        self,
        clock: Callable[[], float],
        nodes: Iterable[Node],
        partitions: Iterable[Partition] = (),
        timing: Timing = _TIMING,
        licences: Mapping[str, int] | None = None,
    ) -> None:
        nodes = list(nodes)
        parts = list(partitions) or [Partition("main", frozenset(node.name for node in nodes))]
        self.timing = timing
        self.partitions: Mapping[str, Partition] = {part.name: part for part in parts}
        self.books = {
            node.name: NodeBook.empty(replace(node, partitions=tuple(p.name for p in parts if node.name in p.nodes)))
            for node in nodes
        }
        self.licences = LicenceBook(licences or {})
        self._jobs = Registry()
        self._omfs_run = OmfsRun(self)
        self._clock = clock
        self._events = Events(clock())
        self._running: dict[int, Record] = {}
        self._scheduler = Scheduler(
            self.books,
            self.partitions,
            self._start,
            timing.bf_window,
            timing.bf_max_blocked,
            timing.bf_max_tested,
            self.licences,
        )

    @classmethod
    def uniform(cls, clock: Callable[[], float], nodes: int = 4, cpus: int = 4, memory: int = 8_000 << 20) -> FakeSlurm:
        """``nodes`` equal nodes n1, n2… in one partition ``main``."""
        return cls(clock, [Node(f"n{number}", cpus, memory) for number in range(1, nodes + 1)])

    # -- the users' side ---------------------------------------------------------------------------
    def submit(self, what: Submission) -> int:
        """A new job, or array; its id. Raises ValueError for a partition or licences that do not exist."""
        self.catch_up()
        partitions = what.request.partitions or (next(iter(self.partitions)),)
        if not set(partitions) <= set(self.partitions):
            raise ValueError(f"no such partition: {partitions}; there are {sorted(self.partitions)}")
        if not self.licences.exist(what.licenses):
            raise ValueError(f"no such licences: {what.licenses}; there are {self.licences.rows()}")
        uid = self._jobs.uid(what.user) if what.uid is None else what.uid
        record = Record(
            self._jobs.new_id(),
            what,
            uid,
            self.now,
            replace(what.request, partitions=partitions),
            partitions,
            hold=what.hold,
            nice=what.nice,
            tasks=tuple(sorted(what.array)),
            admin_comment=what.admin_comment,
            licenses=in_order(what.licenses),
            launched=what.launched,
            requeue=what.requeue,
            comment=what.comment,
        )
        if what.array:
            record.array_id = record.id
        self._jobs.know(record)
        self.consider(record)
        self._schedule()
        return record.id

    def cancel(self, job_id: int) -> None:
        """scancel; all tasks of an array."""
        self.catch_up()
        for record in list(self._jobs.live_of(job_id)):
            self.end(record, "CANCELLED")

    def user_hold(self, job_id: int) -> bool:
        """``scontrol hold`` by the owner; False if refused. It never weakens an administrator's hold."""
        self.catch_up()
        waiting = [record for record in self._jobs.live_of(job_id) if record.state is JobState.PENDING]
        for record in waiting:
            if record.hold is Hold.NONE:
                self.set_hold(record, Hold.USER)
        return bool(waiting)

    def user_release(self, job_id: int) -> bool:
        """``scontrol release`` by the owner; False if refused, as under an administrator's hold."""
        self.catch_up()
        held = list(self._jobs.live_of(job_id))
        if any(record.hold is Hold.ADMIN for record in held):
            return False
        for record in held:
            self.set_hold(record, Hold.NONE)
        return bool(held)

    # -- the world's side --------------------------------------------------------------------------
    def node_down(self, name: str) -> None:
        """A node dies: its jobs are requeued (not held), or end if they may not be."""
        self.catch_up()
        self.books[name].up = False
        for record in list(self._jobs.live.values()):
            if any(taken.node == name for taken in record.taken):
                self._lose_node(record)
        self._schedule()

    def node_up(self, name: str) -> None:
        """A node is back, also from a drain."""
        self.catch_up()
        self.books[name].up, self.books[name].drained = True, False
        self.wake()

    def drain(self, name: str) -> None:
        """No new jobs on a node; those on it go on."""
        self.catch_up()
        self.books[name].drained = True

    def behave(self, job_id: int, launched: Launched) -> None:
        """From now on the launcher in the job does this."""
        self.catch_up()
        self._jobs.records[job_id].launched = launched

    def set_comment(self, job_id: int, comment: str) -> None:
        """``scontrol update comment=`` by the owner."""
        self.catch_up()
        record = self._jobs.records[job_id]
        record.comment, record.shown = comment, None

    # -- for assertions ----------------------------------------------------------------------------
    @property
    def history(self) -> Mapping[int, History]:
        """What became of every job and array task so far, by raw id; never forgotten."""
        self.catch_up()
        return self._jobs.history

    def processes(self) -> dict[str, int]:
        """CPUs whose processes really run, per node: above the node's CPUs after a resume over busy ones."""
        self.catch_up()
        used = dict.fromkeys(self.books, 0)
        for record in self._running.values():
            for taken in record.taken:
                used[taken.node] += taken.cores.bit_count()
        return used

    def next_event(self) -> float | None:
        """When the world next changes by itself: where a simulated clock may jump to."""
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
        return [book.view() for book in self.books.values()]

    # -- what orders are made of (called after catch_up) --------------------------------------------
    def set_hold(self, record: Record, hold: Hold) -> None:
        record.hold = hold
        if hold is Hold.NONE:
            record.held_text, record.reason, record.special_exit = "", "None", False
        self.reconsider(record)

    def pin(self, record: Record, nodes: frozenset[str]) -> None:
        """Slurm holds a job whose pin it can never honour, until it is pinned otherwise or released."""
        record.request = replace(record.request, required_nodes=nodes)
        if record.held_text == BAD_CONSTRAINTS:
            self.set_hold(record, Hold.NONE)
        else:
            self.reconsider(record)

    def set_licences(self, record: Record, licenses: tuple[tuple[str, int], ...]) -> None:
        """What it waits for, or holds: then even if others hold them."""
        if record.active:
            self.licences.give_back(record.licenses)
            self.licences.take(licenses)
        record.licenses, record.shown = licenses, None
        if record.active:
            self.wake()
        else:
            self.reconsider(record)

    def reconsider(self, record: Record) -> None:
        """Something that decides whether or when it starts has changed: the next tick will see it."""
        record.shown = None
        self._scheduler.queue.drop(record)
        if record.state is JobState.PENDING:
            self.consider(record)

    def consider(self, record: Record) -> None:
        """Queue a waiting job if nothing but resources is missing, else come back when that may be so."""
        if record.state is not JobState.PENDING or record.hold is not Hold.NONE:
            return
        if any(next(self._jobs.live_of(other), None) for other in record.what.after):
            record.reason = "Dependency"
            return
        if record.eligible is None:
            record.eligible = max(self.now, record.what.begin)
        if record.eligible > self.now:
            record.reason = "BeginTime"
            self._at(record.eligible, record, self.reconsider)
            return
        if not self._scheduler.can_ever_run(record):
            record.hold, record.held_text = Hold.USER, BAD_CONSTRAINTS
            return
        record.reason = "None"
        self._scheduler.queue.put(record)
        self.wake()

    def split(self, record: Record, task: int) -> Record:
        """One task of a waiting array as a job of its own; the last one keeps the array's id."""
        if len(record.tasks) <= 1:
            return record
        single = replace(record, id=self._jobs.new_id(), tasks=(task,), history=History(), shown=None)
        record.tasks, record.shown = tuple(one for one in record.tasks if one != task), None
        self._jobs.know(single)
        self.consider(single)
        return single

    def suspend(self, record: Record) -> None:
        self._stand_still(record)
        record.state, record.hold = JobState.SUSPENDED, Hold.ADMIN
        record.history.suspensions += 1
        for taken in record.taken:
            self.books[taken.node].busy &= ~taken.cores
        self.wake()

    def resume(self, record: Record) -> None:
        """Runs on whoever has its cores now."""
        record.state, record.hold = JobState.RUNNING, Hold.NONE
        for taken in record.taken:
            self.books[taken.node].busy |= taken.cores
        self._run(record)

    def requeue(self, record: Record, hold: bool, held_text: str = REQUEUED_HELD) -> None:
        """End an active job and put it back; without ``held_text`` it shows the hold as anybody's."""
        if hold:
            record.hold, record.held_text = Hold.USER, held_text
        self._count_as_requeued(record)
        self._complete(record, back=True)

    def send(self, record: Record, signal: str, batch_only: bool) -> None:
        """A signal to an active job: it may save its work, or end."""
        record.history.signals.append((self.now, signal, batch_only))
        if signal == record.what.saves_on:
            record.checkpoint = record.work(self.now)
        if record.launched is not None and signal == "USR1" and batch_only:
            self._omfs_run.asked_to_stop(record)
        elif signal == "KILL" or (signal == "TERM" and not record.what.ignores_term):
            self.end(record, "FAILED")

    def end(self, record: Record, outcome: str) -> None:
        """Take a job off for good."""
        if record.state is JobState.COMPLETING:
            record.back = False
            record.history.outcome = record.history.outcome or outcome
            return
        record.history.outcome = outcome
        if record.active:
            record.history.done = record.work(self.now)
            self._complete(record, back=False)
        else:
            self._retire(record)

    # -- time --------------------------------------------------------------------------------------
    @property
    def now(self) -> float:
        return self._events.now

    def catch_up(self) -> None:
        """Let everything happen that is due by ``clock()``."""
        self._events.run_until(self._clock())

    def plan(self, at: float, happen: Callable[[], None]) -> None:
        self._events.plan(at, happen)

    def wake(self) -> None:
        """Slurm's background tick will look at the queue."""
        self._events.plan_tick("main", self.timing.sched_interval, self._schedule)

    def _schedule(self) -> None:
        """The main scheduler at once, backfill at its next turn."""
        self._scheduler.main_pass()
        if self._scheduler.queue:
            self._events.plan_tick("backfill", self.timing.bf_interval, self._backfill)

    def _backfill(self) -> None:
        self._scheduler.backfill_pass(self.now, self._running.values())

    def _at(self, at: float, record: Record, happen: Callable[[Record], None]) -> None:
        """An event of a job, void once something else has happened to it (its ``epoch`` has moved on)."""
        self._events.plan(at, partial(self._if_still, record, record.epoch, happen))

    @staticmethod
    def _if_still(record: Record, epoch: int, happen: Callable[[Record], None]) -> None:
        if record.epoch == epoch:
            happen(record)

    # -- the life of a job -------------------------------------------------------------------------
    def _start(self, record: Record, partition: str, placements: Sequence[Placement]) -> None:
        job = self.split(record, record.tasks[0]) if len(record.tasks) > 1 else record
        self._scheduler.queue.drop(job)
        job.state, job.partition, job.started, job.ran = JobState.RUNNING, partition, self.now, 0.0
        job.taken = tuple(book.take(cpus, job.request) for book, cpus in placements)
        self.licences.take(job.licenses)
        job.history.starts.append(self.now)
        self._omfs_run.before_start(job)
        self._run(job)
        self._omfs_run.started(job)

    def _run(self, record: Record) -> None:
        record.epoch += 1
        record.since, record.shown = self.now, None
        self._running[record.id] = record
        work, limit = record.what.run_time - record.work(self.now), record.what.time_limit - record.ran
        outcome = "COMPLETED" if work <= limit else "TIMEOUT"
        self._at(self.now + max(0.0, min(work, limit)), record, partial(self.end, outcome=outcome))

    def _stand_still(self, record: Record) -> None:
        record.epoch += 1
        record.ran = record.ran_until(self.now)
        record.since, record.shown = None, None
        self._running.pop(record.id, None)

    def _complete(self, record: Record, back: bool) -> None:
        """From here on its CPUs are free in the books, but nothing starts on its nodes until it has left."""
        suspended = record.state is JobState.SUSPENDED
        self._stand_still(record)
        if back:
            record.ran = 0.0
        record.state, record.back = JobState.COMPLETING, back
        for taken in record.taken:
            self.books[taken.node].give_back(taken, cores=not suspended)
            self.books[taken.node].completing += 1
        killed = record.history.outcome not in ("COMPLETED", "FAILED")
        wait = self.timing.kill_wait if killed and record.what.ignores_term else 0.0
        self._at(self.now + wait + self.timing.completing, record, self._leave)

    def _leave(self, record: Record) -> None:
        for taken in record.taken:
            self.books[taken.node].completing -= 1
        self.licences.give_back(record.licenses)
        if record.back:
            self._wait_again(record)
        else:
            self._retire(record)
        self._schedule()

    def _count_as_requeued(self, record: Record) -> None:
        record.history.lost += record.work(self.now) - record.checkpoint
        record.saved = record.checkpoint
        record.restarts += 1

    def _wait_again(self, record: Record) -> None:
        record.epoch += 1
        record.state, record.back, record.taken = JobState.PENDING, False, ()
        record.eligible = self.now + self.timing.requeue_delay
        record.partition, record.started, record.shown = "", None, None
        self.consider(record)

    def _retire(self, record: Record) -> None:
        record.epoch += 1
        self._scheduler.queue.drop(record)
        record.history.ended = self.now
        for dependent in self._jobs.retire(record):
            self.reconsider(dependent)
        self._at(self.now + self.timing.min_job_age, record, self._jobs.forget)

    def _lose_node(self, record: Record) -> None:
        if record.state is JobState.COMPLETING:
            return
        if not record.requeue:
            self.end(record, "NODE_FAIL")
            return
        suspended = record.state is JobState.SUSPENDED
        self._count_as_requeued(record)
        self._stand_still(record)
        record.ran = 0.0
        for taken in record.taken:
            self.books[taken.node].give_back(taken, cores=not suspended)
        self.licences.give_back(record.licenses)
        self._wait_again(record)
