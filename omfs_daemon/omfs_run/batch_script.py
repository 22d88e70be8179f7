"""How the batch script started us: whether the daemon may send the batch shell a signal."""

import re
import signal
from typing import Mapping, NamedTuple

from omfs_daemon.omfs_run.drivers.processes import catches, status_number

_BATCH_STEPS = ("", "batch", "4294967291")  # SLURM_BATCH_SCRIPT in slurm.h, if Slurm sets it for the batch step


class BatchScript(NamedTuple):
    """``is_shell``: we are the batch shell (``exec omfs-run``). ``fault``: why we cannot be signaled, or ""."""

    is_shell: bool
    fault: str


def check_batch_script(environment: Mapping[str, str], pid: int, proc: str = "/proc") -> BatchScript:
    """SLURM_TASK_PID is the batch shell's pid; each shell from there to us must catch the checkpoint signal."""
    if environment.get("SLURM_STEP_ID", "") not in _BATCH_STEPS:
        return BatchScript(False, "it was started by srun: start omfs-run in the batch script, and srun under omfs-run")
    if environment.get("SLURM_HET_SIZE"):
        return BatchScript(False, "a heterogeneous job cannot be requeued from inside")
    shell = environment.get("SLURM_TASK_PID", "")
    if not re.match(r"[0-9]{1,10}$", shell):
        return BatchScript(False, "SLURM_TASK_PID is not set: this is not a batch job")
    if int(shell) == pid:
        return BatchScript(True, "")
    above = pid
    while above != int(shell):
        above = status_number(proc, above, "PPid", 10)
        if above <= 1:
            return BatchScript(
                False, "it was not started by the batch script (a container?): write `exec omfs-run ...` there"
            )
        if not catches(above, signal.SIGUSR1, proc):
            return BatchScript(False, "SIGUSR1 would kill the batch script: write `exec omfs-run ...` as its last line")
    return BatchScript(False, "")
