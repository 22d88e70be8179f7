"""omfs-run in the fake's jobs: it reports in the job comment and answers USR1.

As measured: a batch script that exits 101 to 109 (RequeueExitHold) is requeued at once. It is pending as SPECIAL_EXIT,
in a hold that its owner may release, and keeps comment, rank and licenses. One that may not be requeued has failed
(since 24.05; before, it was requeued all the same).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.protocol import job_comment
from omfs_daemon.testing.fake_slurm.fake_jobs import REQUEUED_HELD, Record
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OnRestart, OnUsr1, with_run_comment

_SUSPENDED_POLL = 1.0  # seconds until a suspended omfs-run is looked at again


class Host(Protocol):
    """The part of the fake that it uses."""

    @property
    def now(self) -> float: ...

    def plan(self, at: float, happen: Callable[[], None]) -> None: ...

    def end(self, record: Record, outcome: str) -> None: ...

    def requeue(self, record: Record, hold: bool, held_text: str) -> None: ...


class OmfsRun:
    """omfs-run in all jobs of one cluster."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def before_start(self, record: Record) -> None:
        """Choose the work from which the job continues."""
        record.run_state = ""
        record.failures = 0
        launched = record.launched
        if launched is not None and record.generations and launched.on_restart is OnRestart.FRESH:
            record.history.lost += record.saved
            record.saved = record.checkpoint = 0.0

    def started(self, record: Record) -> None:
        if record.launched is not None:
            self._in_this_run(record.launched.ready_after, record, self._is_ready)

    def checkpoint_requested(self, record: Record) -> None:
        """USR1 to the batch shell."""
        launched = record.launched
        if launched is None:
            return
        if not record.run_state or launched.on_usr1 is OnUsr1.DIE:
            self._host.end(record, "FAILED")
        elif launched.on_usr1 is not OnUsr1.IGNORE and record.run_state != job_comment.STOPPING:
            self._report(record, job_comment.STOPPING)
            self._in_this_run(launched.seconds, record, self._has_tried)

    def _is_ready(self, record: Record) -> None:
        launched = record.launched
        if launched is None:
            return
        if not record.generations:
            self._report(record, job_comment.READY)
        elif launched.on_restart is OnRestart.HELD:
            self._report(record, job_comment.HELD, why=launched.why)
            self._exit_special(record)
        elif launched.on_restart is OnRestart.FRESH:
            self._report(record, job_comment.READY, fresh=1)
        else:
            fields = {"from": record.generations, "seconds": launched.ready_after, "lost": 0.0}
            self._report(record, job_comment.READY, **fields)

    def _has_tried(self, record: Record) -> None:
        launched = record.launched
        if launched is None:
            return
        if launched.on_usr1 is OnUsr1.FAIL:
            record.failures += 1
            self._report(record, job_comment.FAILED, why=launched.why, times=record.failures)
            return
        record.checkpoint = record.work(self._host.now)
        record.generations += 1
        self._report(record, job_comment.STOPPED, bytes=launched.size, seconds=launched.seconds)
        self._exit_special(record)

    def _exit_special(self, record: Record) -> None:
        """Exit code 101 or 102, or ``scontrol requeuehold``."""
        if not record.requeue:
            self._host.end(record, "FAILED")
            return
        if record.launched is not None and record.launched.traps:
            self._host.requeue(record, hold=True, held_text=REQUEUED_HELD)
            return
        record.special_exit = True
        self._host.requeue(record, hold=True, held_text="")

    def _report(self, record: Record, state: str, **fields: str | int | float) -> None:
        method = record.launched.method if record.launched else ""
        record.run_state = state
        record.comment = with_run_comment(record.comment, record.restarts, state, method=method, **fields)
        record.shown = None

    def _in_this_run(self, after: float, record: Record, happen: Callable[[Record], None]) -> None:
        run = record.restarts

        def due() -> None:
            if record.restarts != run or not record.active:
                return
            if record.state is JobState.SUSPENDED:
                self._host.plan(self._host.now + _SUSPENDED_POLL, due)
            else:
                happen(record)

        self._host.plan(self._host.now + after, due)
