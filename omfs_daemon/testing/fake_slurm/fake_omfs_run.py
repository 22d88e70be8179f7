"""omfs-run at work inside the fake's jobs: it keeps its word in the comment and answers USR1.

As measured: a batch script that exits 101 to 109 (RequeueExitHold) is requeued at once; it waits as SPECIAL_EXIT in a
hold that its owner may release, with comment, rank and licences kept. One that may not be requeued has failed (24.05 or
later; before, it was requeued all the same).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.testing.fake_slurm.fake_jobs import Record
from omfs_daemon.testing.fake_slurm.omfs_run_behaviour import OnRestart
from omfs_daemon.testing.fake_slurm.omfs_run_behaviour import OnUsr1
from omfs_daemon.testing.fake_slurm.omfs_run_behaviour import with_word

_STOPPED_FOR = 1.0  # a suspended launcher does nothing: look again after so long


class Host(Protocol):
    """What of the fake it needs."""

    @property
    def now(self) -> float: ...

    def plan(self, at: float, happen: Callable[[], None]) -> None: ...

    def end(self, record: Record, outcome: str) -> None: ...

    def requeue(self, record: Record, hold: bool, held_text: str) -> None: ...


class OmfsRun:
    """All launchers of one cluster."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def before_start(self, record: Record) -> None:
        """What of the job's work it will go on from."""
        record.launcher = ""
        record.failures = 0
        launched = record.launched
        if launched is not None and record.generations and launched.on_restart is OnRestart.FRESH:
            record.history.lost += record.saved
            record.saved = record.checkpoint = 0.0

    def started(self, record: Record) -> None:
        if record.launched is not None:
            self._in_this_run(record.launched.ready_after, record, self._is_ready)

    def asked_to_stop(self, record: Record) -> None:
        """USR1 to the batch shell."""
        launched = record.launched
        if launched is None:
            return
        if not record.launcher or launched.on_usr1 is OnUsr1.DIE:
            self._host.end(record, "FAILED")
        elif launched.on_usr1 is not OnUsr1.IGNORE and record.launcher != "stopping":
            self._say(record, "stopping")
            self._in_this_run(launched.seconds, record, self._has_tried)

    def _is_ready(self, record: Record) -> None:
        launched = record.launched
        if launched is None:
            return
        if not record.generations:
            self._say(record, "ready")
        elif launched.on_restart is OnRestart.HELD:
            self._say(record, "held", why=launched.why)
            self._exit_special(record)
        elif launched.on_restart is OnRestart.FRESH:
            self._say(record, "ready", fresh=1)
        else:
            said = {"from": record.generations, "seconds": f"{launched.ready_after:.2f}", "lost": "0.0"}
            self._say(record, "ready", **said)

    def _has_tried(self, record: Record) -> None:
        launched = record.launched
        if launched is None:
            return
        if launched.on_usr1 is OnUsr1.FAIL:
            record.failures += 1
            self._say(record, "failed", why=launched.why, times=record.failures)
            return
        record.checkpoint = record.work(self._host.now)
        record.generations += 1
        self._say(record, "stopped", bytes=launched.size, seconds=f"{launched.seconds:.2f}")
        self._exit_special(record)

    def _exit_special(self, record: Record) -> None:
        """Exit code 101 or 102."""
        if not record.requeue:
            self._host.end(record, "FAILED")
            return
        record.special_exit = True
        self._host.requeue(record, hold=True, held_text="")

    def _say(self, record: Record, state: str, **said: object) -> None:
        method = record.launched.method if record.launched else ""
        record.launcher = state
        record.comment = with_word(record.comment, record.restarts, state, method=method, **said)
        record.shown = None

    def _in_this_run(self, after: float, record: Record, happen: Callable[[Record], None]) -> None:
        run = record.restarts

        def due() -> None:
            if record.restarts != run or not record.active:
                return
            if record.state is JobState.SUSPENDED:
                self._host.plan(self._host.now + _STOPPED_FOR, due)
            else:
                happen(record)

        self._host.plan(self._host.now + after, due)
