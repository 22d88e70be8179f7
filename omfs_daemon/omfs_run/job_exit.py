"""How a run ends so that its job is held and never looks completed, and what it reports until then."""

import signal
from typing import Optional, Tuple, Union

from omfs_daemon.omfs_run.batch_script import BatchScript
from omfs_daemon.omfs_run.message import message
from omfs_daemon.omfs_run.run_tool import CallFailed
from omfs_daemon.omfs_run.signals import Inbox
from omfs_daemon.omfs_run.slurm_job import RequeueSettings, SlurmJob
from omfs_daemon.protocol.exit_codes import HELD, REQUEUE_EXIT_HOLD, STOPPED

EXIT, REQUEUE, NONE = "exit", "requeue", "none"  # held by its exit code, by scontrol requeuehold, or not at all


def how_to_hold(script: BatchScript, settings: RequeueSettings) -> Tuple[str, str]:
    """How the job can be held, and why the daemon must not request a checkpoint ("" if it may).

    The exit code counts only if nothing comes after us, that is, if we are the batch shell.
    """
    if script.is_shell and settings.covers(STOPPED) and settings.covers(HELD):
        hold_by = EXIT
    elif settings.requeue:
        hold_by = REQUEUE
    else:
        hold_by = NONE
    if script.fault or hold_by != NONE:
        return hold_by, script.fault
    if script.is_shell:
        remedy = "set RequeueExitHold={} in slurm.conf".format(REQUEUE_EXIT_HOLD)
    else:
        remedy = "write `exec omfs-run ...` in the batch script"
    return hold_by, "the job could not be held: submit with --requeue, or {}".format(remedy)


class JobExit:
    """Reports and the end of one run. ``fault``: why the daemon must not request a checkpoint; None while unknown."""

    def __init__(self, job: SlurmJob, script: BatchScript, inbox: Inbox) -> None:
        self.job = job
        self.fault: Optional[str] = None
        self._script = script
        self._inbox = inbox
        self._hold_by = EXIT if script.is_shell else REQUEUE

    def ask_slurm(self) -> None:
        """Ask Slurm how this job can be held, and remember it."""
        try:
            self._hold_by, self.fault = how_to_hold(self._script, self.job.settings())
        except CallFailed as error:
            message("cannot ask Slurm how the job can be held (will retry): {}".format(error))
            return
        if self.fault:
            message("the job cannot be preempted: {}".format(self.fault))

    def report(self, state: str, **fields: Union[str, int, float]) -> None:
        """Write a report into the job's comment, without waiting for it."""
        self.job.report(state, fields)

    def leave(self, code: int) -> int:
        """The exit code to end with; where it would not hold the job, the job has been requeued and held."""
        self.job.flush()
        if self._hold_by == REQUEUE:
            self._inbox.take()  # an earlier TERM is not that of the requeue
            if not self.job.requeue_hold(lambda: signal.SIGTERM in self._inbox.take()):
                message("the job could not be requeued and held; its checkpoint, if it has one, is kept")
        elif self._hold_by == NONE:
            message("the job cannot be held; its checkpoint, if it has one, is kept")
        return code
