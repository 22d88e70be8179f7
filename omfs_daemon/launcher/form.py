"""Whether the request for a checkpoint, a signal to the batch shell alone, reaches us without ending the job."""

import os
import re
import signal
from typing import Mapping, NamedTuple

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


def catches(pid: int, number: int, proc: str = "/proc") -> bool:
    """Whether the process has a handler for the signal; a process that is gone or not ours to look at has none."""
    return bool(_number(proc, pid, "SigCgt", 16) >> (number - 1) & 1)


def survives(pid: int, number: int, proc: str = "/proc") -> bool:
    """Whether the process takes the signal without dying: by a handler, or as `srun` does, blocked and waited for."""
    return catches(pid, number, proc) or bool(_number(proc, pid, "SigBlk", 16) >> (number - 1) & 1)


def _number(proc: str, pid: int, name: str, base: int) -> int:
    try:
        with open(os.path.join(proc, str(pid), "status")) as status:
            for line in status:
                if line.startswith(name + ":"):
                    return int(line.split()[1], base)
    except OSError:
        pass
    return 0
