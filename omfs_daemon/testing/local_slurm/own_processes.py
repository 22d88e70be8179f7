"""Find and end the processes of a private Slurm, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

_DAEMONS = frozenset({"slurmctld", "slurmscriptd", "slurmd", "slurmstepd", "slurmdbd", "mariadbd", "munged"})
_TRIES = 20


def end_all_in(directory: Path) -> list[psutil.Process]:
    """Kill the Slurm daemons that work in ``directory`` and their jobs; returns those that are left.

    slurmstepd survives its slurmd, and a job survives its slurmstepd, so it is done until none is found.
    """
    left = find_in(directory)
    for _ in range(_TRIES):
        if not left:
            break
        for process in left:
            try:
                process.kill()  # psutil compares the start time first, so a re-used pid is safe
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=1)
        left = find_in(directory)
    return left


def find_in(directory: Path) -> list[psutil.Process]:
    """The daemons that work in ``directory``, their jobs, and all descendants of both."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if _is_zombie(process) or not (_is_daemon(process, directory) or _is_job(process, directory)):
                continue
            found[process.pid] = process
            found.update((child.pid, child) for child in process.children(recursive=True) if not _is_zombie(child))
        except (psutil.Error, OSError):  # it has ended meanwhile
            continue
    return list(found.values())


def _is_zombie(process: psutil.Process) -> bool:
    return bool(process.status() == psutil.STATUS_ZOMBIE)


def _is_daemon(process: psutil.Process, directory: Path) -> bool:
    """A Slurm daemon which works in the directory: slurmstepd overwrites its arguments and environment, so look at
    its working directory and open files as well."""
    if process.name() not in _DAEMONS:
        return False
    return any(_inside(place, directory) for place in _places(process))


def _places(process: psutil.Process) -> Iterator[str]:
    yield process.environ().get("SLURM_CONF", "")
    for argument in process.cmdline():
        yield argument.partition("=")[2] or argument
    yield process.cwd()
    yield from (opened.path for opened in process.open_files())


def _is_job(process: psutil.Process, directory: Path) -> bool:
    """slurmd gives each job SLURM_CONF and SLURM_JOB_ID; a person's shell has at most the first."""
    environment = process.environ()
    return "SLURM_JOB_ID" in environment and _inside(environment.get("SLURM_CONF", ""), directory)


def _inside(place: str, directory: Path) -> bool:
    return bool(place) and Path(place).is_relative_to(directory)
