"""House vocabulary: form -> batch script."""

import re
import signal
from typing import Mapping, NamedTuple
from omfs_daemon.omfs_run.drivers.processes import catches
from omfs_daemon.omfs_run.drivers.processes import _number

_BATCH_STEPS = ("", "batch", "4294967291")  # SLURM_BATCH_SCRIPT of slurm.h: where Slurm sets it for the batch step


class Form(NamedTuple):
    """``is_shell``: we are the batch shell (``exec omfs-run``). ``fault``: why we cannot be asked, or ""."""

    is_shell: bool
    fault: str


def look(environment: Mapping[str, str], pid: int, proc: str = "/proc") -> Form:
    """Slurm names the batch shell's pid in SLURM_TASK_PID; each shell from there to us must catch the signal."""
    if environment.get("SLURM_STEP_ID", "") not in _BATCH_STEPS:
        return Form(False, "it was started by srun: start it in the batch script itself, and srun below it")
    if environment.get("SLURM_HET_SIZE"):
        return Form(False, "a job of several components cannot be requeued by itself")
    shell = environment.get("SLURM_TASK_PID", "")
    if not re.match(r"[0-9]{1,10}$", shell):
        return Form(False, "SLURM_TASK_PID is not set: no batch job")
    if int(shell) == pid:
        return Form(True, "")
    above = pid
    while above != int(shell):
        above = _number(proc, above, "PPid", 10)
        if above <= 1:
            return Form(False, "it was not started by the batch script (a container?): write `exec omfs-run ...` there")
        if not catches(above, signal.SIGUSR1, proc):
            return Form(False, "the batch script would die of SIGUSR1: write `exec omfs-run ...` as its last line")
    return Form(False, "")
