"""The job that we run in: its settings in Slurm, its comment, and how it is requeued and held."""

import re
import threading
import time
from typing import Callable, Mapping, NamedTuple, Optional, Union

from omfs_daemon.omfs_run.message import message
from omfs_daemon.omfs_run.run_tool import CallFailed, answer
from omfs_daemon.protocol import job_comment

_LIMIT = 10.0  # seconds for a command of Slurm
_REFUSALS = 5  # of requeuehold before we give up
_PAUSE = 5.0  # seconds between two tries; slurmctld may be restarting
_END_LIMIT = 120.0  # seconds for Slurm to end a requeued job


class RequeueSettings(NamedTuple):
    """What decides how the job can be held: RequeueExitHold in slurm.conf, and whether the job may be requeued."""

    requeue_exit_hold: str
    requeue: bool

    def covers(self, code: int) -> bool:
        """Whether RequeueExitHold, a list such as ``101-109,120``, has this exit code."""
        for part in self.requeue_exit_hold.split(","):
            first, _, last = part.strip().partition("-")
            if first.isdigit() and int(first) <= code <= int(last if last.isdigit() else first):
                return True
        return False


class SlurmJob:
    """One run of a job. ``reference``: its name in commands, as an array's last task has the job ID of the array."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.number = environment["SLURM_JOB_ID"]
        self.uid = environment.get("SLURM_JOB_UID", "")
        count = environment.get("SLURM_RESTART_COUNT", "")
        self.restarts = int(count) if count.isdigit() else 0
        nodes = environment.get("SLURM_JOB_NUM_NODES", "")
        self.nodes = int(nodes) if nodes.isdigit() else 1
        self.reference = self.number
        if environment.get("SLURM_ARRAY_JOB_ID") and environment.get("SLURM_ARRAY_TASK_ID"):
            self.reference = "{SLURM_ARRAY_JOB_ID}_{SLURM_ARRAY_TASK_ID}".format(**dict(environment))
        self._reporting: Optional[threading.Thread] = None

    def settings(self) -> RequeueSettings:
        """CallFailed if Slurm does not respond."""
        config = answer(["scontrol", "show", "config"], _LIMIT)
        found = re.search(r"^RequeueExitHold\s*=\s*(\S+)", config, re.MULTILINE)
        shown = answer(["scontrol", "--oneliner", "show", "job", self.reference], _LIMIT)
        requeue = re.search(r"\sRequeue=([01])\sRestarts=", shown)
        return RequeueSettings(found.group(1) if found else "", requeue is not None and requeue.group(1) == "1")

    def comment(self) -> str:
        """The job's comment; CallFailed if Slurm does not respond."""
        printed = answer(["squeue", "--noheader", "--jobs=" + self.reference, "--format=%A %k"], _LIMIT)
        number, _, comment = printed.rstrip("\n").partition(" ")
        if number != self.number:
            raise CallFailed("squeue does not show job {}".format(self.reference))
        return "" if comment == "(null)" else comment

    def report(self, state: str, fields: Mapping[str, Union[str, int, float]]) -> None:
        """Write a report into the job's comment, in a thread: a slow slurmctld must not delay a checkpoint."""
        text = job_comment.make_run_comment(self.restarts, state, dict(fields))
        self._reporting = threading.Thread(target=self._write_comment, args=(text, self._reporting), daemon=True)
        self._reporting.start()

    def flush(self) -> None:
        """Wait until the last report is written, or has failed."""
        if self._reporting is not None:
            self._reporting.join()

    def _write_comment(self, text: str, before: Optional[threading.Thread]) -> None:
        if before is not None:
            before.join()
        try:
            comment = job_comment.put_run_comment(self.comment(), text)
            answer(["scontrol", "update", "jobid=" + self.reference, "comment=" + comment], _LIMIT)
        except CallFailed as error:
            message("cannot write {} into the job's comment: {}".format(text, error))

    def requeue_hold(self, ended: Callable[[], bool]) -> bool:
        """Have Slurm requeue and hold the job, and wait until Slurm ends this run.

        ``ended``: whether Slurm has begun to end it. Retried while slurmctld is down; False if it refuses or the end
        does not come.
        """
        refusals = 0
        while True:
            try:
                answer(["scontrol", "requeuehold", self.reference], _LIMIT)
                break
            except CallFailed as error:
                message("cannot requeue and hold the job: {}".format(error))
                refusals += "Unable to contact" not in str(error) and "no response" not in str(error)
                if refusals >= _REFUSALS:
                    return False
            if _until(ended, _PAUSE):
                return True
        return _until(ended, _END_LIMIT)


def _until(condition: Callable[[], bool], limit: float) -> bool:
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
