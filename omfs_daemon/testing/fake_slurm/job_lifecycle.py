"""A job of the fake from its start to its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.testing.fake_slurm.events import Events, Timing
from omfs_daemon.testing.fake_slurm.fake_jobs import REQUEUED_HELD, Record
from omfs_daemon.testing.fake_slurm.fake_licenses import LicenseCounts
from omfs_daemon.testing.fake_slurm.fake_nodes import FakeNode, Placement
from omfs_daemon.testing.fake_slurm.fake_omfs_run import OmfsRun
from omfs_daemon.testing.fake_slurm.job_table import JobTable
from omfs_daemon.testing.fake_slurm.scheduler import PendingQueue


class JobLifecycle(ABC):
    """What a job does to nodes, licenses and the queue when it starts, is suspended, is requeued, or ends."""

    _queue: PendingQueue

    def __init__(self, now: float, fake_nodes: Mapping[str, FakeNode], licenses: LicenseCounts, timing: Timing) -> None:
        self.fake_nodes = fake_nodes
        self.licenses = licenses
        self.timing = timing
        self._events = Events(now)
        self._jobs = JobTable()
        self._running: dict[int, Record] = {}
        self._omfs_run = OmfsRun(self)

    @property
    def next_id(self) -> int:
        """Of the job that is submitted next."""
        return self._jobs.next_id

    # -- what the controller does ------------------------------------------------------------------
    @abstractmethod
    def consider(self, record: Record) -> None:
        """Queue a pending job if only resources are missing, else check again when that may be so."""

    @abstractmethod
    def reconsider(self, record: Record) -> None:
        """Something that decides whether or when it starts has changed."""

    @abstractmethod
    def split(self, record: Record, task: int) -> Record:
        """One task of a pending array as a job of its own."""

    @abstractmethod
    def wake(self) -> None:
        """The queue must be processed again."""

    @abstractmethod
    def _schedule(self) -> None:
        """Start what can start."""

    # -- orders (called after catch_up) ------------------------------------------------------------
    def suspend(self, record: Record) -> None:
        self._pause(record)
        record.state, record.hold = JobState.SUSPENDED, Hold.ADMIN
        record.history.suspensions += 1
        for taken in record.taken:
            self.fake_nodes[taken.node].busy &= ~taken.cores
        self.wake()

    def resume(self, record: Record) -> None:
        """Runs even if others have its cores now."""
        record.state, record.hold = JobState.RUNNING, Hold.NONE
        for taken in record.taken:
            self.fake_nodes[taken.node].busy |= taken.cores
        self._run(record)

    def set_time_limit(self, record: Record, seconds: float) -> None:
        record.what, record.shown = replace(record.what, time_limit=seconds), None
        if record.state is JobState.RUNNING:
            self._pause(record)
            self._run(record)

    def requeue(self, record: Record, hold: bool, held_text: str = REQUEUED_HELD) -> None:
        """End an active job and queue it again; ``hold``: in a hold that its owner can end, which shows as a user's
        without ``held_text``. Else a hold that it has stays."""
        if hold:
            record.hold, record.held_text = Hold.USER, held_text
        self._count_as_requeued(record)
        self._complete(record, back=True)

    def requeue_ended(self, record: Record) -> None:
        """Queue an ended job again; it keeps its hold."""
        self._jobs.revive(record)
        self._count_as_requeued(record)
        record.history.outcome = ""
        self._wait_again(record)

    def send(self, record: Record, signal: str, batch_only: bool) -> None:
        """A signal to an active job: it may save its work, or end."""
        record.history.signals.append((self.now, signal, batch_only))
        if any(self.fake_nodes[taken.node].stuck for taken in record.taken):
            return  # Slurm says nothing of a signal that does not arrive
        if signal == record.what.saves_on:
            record.checkpoint = record.work(self.now)
        if record.launched is not None and signal == "USR1" and batch_only:
            self._omfs_run.checkpoint_requested(record)
        elif signal == "KILL" or (signal == "TERM" and not record.what.ignores_term):
            self.end(record, "FAILED")

    def end(self, record: Record, outcome: str) -> None:
        """End a job."""
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

    def end_part(self, record: Record, at: int) -> None:
        """A part of a running heterogeneous job ends by itself: the others run on, but never start again."""
        mine = [taken for taken, part in zip(record.taken, record.part_of, strict=True) if part == at]
        for taken in mine:
            self.fake_nodes[taken.node].give_back(taken)
        record.taken = tuple(taken for taken in record.taken if taken not in mine)
        record.part_of = tuple(part for part in record.part_of if part != at)
        record.ended_parts, record.shown = record.ended_parts | {at}, None
        self.wake()

    # -- time --------------------------------------------------------------------------------------
    @property
    def now(self) -> float:
        return self._events.now

    def plan(self, at: float, happen: Callable[[], None]) -> None:
        self._events.plan(at, happen)

    def _at(self, at: float, record: Record, happen: Callable[[Record], None]) -> None:
        """An event of a job, void once something else has happened to it (its ``epoch`` has moved on)."""
        self._events.plan(at, partial(self._if_still, record, record.epoch, happen))

    @staticmethod
    def _if_still(record: Record, epoch: int, happen: Callable[[Record], None]) -> None:
        if record.epoch == epoch:
            happen(record)

    # -- from start to end -------------------------------------------------------------------------
    def _start(self, record: Record, partition: str, placements: Sequence[Placement]) -> None:
        job = self.split(record, record.tasks[0]) if len(record.tasks) > 1 else record
        self._queue.drop(job)
        job.state, job.partition, job.started, job.ran = JobState.RUNNING, partition, self.now, 0.0
        requests = job.request.parts or (job.request,)
        job.taken = tuple(node.take(cpus, requests[part]) for node, cpus, part in placements)
        job.part_of = tuple(placement.part for placement in placements)
        self.licenses.take(job.licenses)
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

    def _pause(self, record: Record) -> None:
        record.epoch += 1
        record.ran = record.ran_until(self.now)
        record.since, record.shown = None, None
        self._running.pop(record.id, None)

    def _complete(self, record: Record, back: bool) -> None:
        """From here on its CPUs count as free, but nothing starts on its nodes until it has left them."""
        suspended = record.state is JobState.SUSPENDED
        self._pause(record)
        if back:
            record.ran = 0.0
        record.state, record.back = JobState.COMPLETING, back
        for taken in record.taken:
            self.fake_nodes[taken.node].give_back(taken, cores=not suspended)
            self.fake_nodes[taken.node].completing += 1
        killed = record.history.outcome not in ("COMPLETED", "FAILED")
        wait = self.timing.kill_wait if killed and record.what.ignores_term else 0.0
        self._at(self.now + wait + self.timing.completing, record, self._leave)

    def _leave(self, record: Record) -> None:
        """Where a node is stuck it stays (``node_failures.py``)."""
        if not any(self.fake_nodes[taken.node].stuck for taken in record.taken):
            self._free(record)

    def _free(self, record: Record) -> None:
        """The end of completing."""
        record.epoch += 1
        for taken in record.taken:
            self.fake_nodes[taken.node].completing -= 1
        self.licenses.give_back(record.licenses)
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
        self._queue.drop(record)
        record.history.ended = self.now
        for dependent in self._jobs.retire(record):
            self.reconsider(dependent)
        self._at(self.now + self.timing.min_job_age, record, self._jobs.forget)
