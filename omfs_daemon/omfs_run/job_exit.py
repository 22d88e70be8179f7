"""How a run of the launcher ends so that its job is held and never looks completed; and what it tells meanwhile."""

import signal
from typing import Optional, Tuple, Union

from omfs_daemon.omfs_run.run_tool import CallFailed
from omfs_daemon.omfs_run.batch_script import Form
from omfs_daemon.omfs_run.message import say
from omfs_daemon.omfs_run.signals import Inbox
from omfs_daemon.protocol.exit_codes import HELD
from omfs_daemon.protocol.exit_codes import STOPPED
from omfs_daemon.omfs_run.slurm_job import Settings
from omfs_daemon.omfs_run.slurm_job import SlurmJob

EXIT, REQUEUE, NONE = "exit", "requeue", "none"  # ways to leave: by exit code, by scontrol requeuehold, none that holds


def way_out(form: Form, settings: Settings) -> Tuple[str, str]:
    """The way to leave, and why the daemon must not ask for a checkpoint ("" if it may).

    The exit code counts only if nothing comes after us, that is if we are the batch shell.
    """
    if form.is_shell and settings.covers(STOPPED) and settings.covers(HELD):
        way = EXIT
    elif settings.requeue:
        way = REQUEUE
    else:
        way = NONE
    if form.fault:
        return way, form.fault
    if way == NONE and form.is_shell:
        return way, "the job could not be held: submit with --requeue, or have RequeueExitHold=101-109 in slurm.conf"
    if way == NONE:
        return way, "the job could not be held: submit with --requeue, or write `exec omfs-run ...` in the batch script"
    return way, ""


class Desk:
    """Between one run of the launcher and Slurm. ``fault``: why the daemon must not ask; None while it is unknown."""

    def __init__(self, job: SlurmJob, form: Form, inbox: Inbox) -> None:
        self.job = job
        self.fault: Optional[str] = None
        self._form = form
        self._inbox = inbox
        self._way = EXIT if form.is_shell else REQUEUE

    def look(self) -> None:
        """Ask Slurm how this job can be held; what is found out is kept."""
        try:
            self._way, self.fault = way_out(self._form, self.job.settings())
        except CallFailed as error:
            say("cannot ask Slurm how the job can be held (it is asked again): {}".format(error))
            return
        if self.fault:
            say("the job cannot be stopped for others: {}".format(self.fault))

    def tell(self, state: str, **fields: Union[str, int, float]) -> None:
        """Put the word into the job's comment, without waiting for it."""
        self.job.tell(state, fields)

    def leave(self, code: int) -> int:
        """The exit code with which to end; where it would not hold the job, the job has been requeued and held."""
        self.job.flush()
        if self._way == REQUEUE:
            self._inbox.take()  # a TERM of before is not the end that the requeue brings
            if not self.job.requeue_hold(lambda: signal.SIGTERM in self._inbox.take()):
                say("the job could not be requeued and held; its checkpoint, if it has one, is kept")
        elif self._way == NONE:
            say("the job cannot be held; its checkpoint, if it has one, is kept")
        return code
