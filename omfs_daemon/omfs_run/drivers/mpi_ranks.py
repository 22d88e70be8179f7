"""MPI ranks that `mpirun` or `srun` started on this node, recognized by their environments."""

import os
from typing import Dict, List, Sequence, Tuple

from omfs_daemon.omfs_run.drivers import processes

# Variables of ranks, not of the daemons between `mpirun` and them: how many ranks there are on the node.
_OF_MPI = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")  # Open MPI; MPICH, Intel MPI, MVAPICH
# A step's tasks; a batch script has none.
_OF_SRUN = ("SLURM_STEP_ID",)

_STARTERS = {
    "mpirun": _OF_MPI,
    "mpiexec": _OF_MPI,
    "mpiexec.hydra": _OF_MPI,
    "orterun": _OF_MPI,
    "prterun": _OF_MPI,
    "srun": _OF_SRUN,
}


def rank_variables(command: Sequence[str]) -> Sequence[str]:
    """The variables that identify a rank of this command; empty if it is not known to start ranks."""
    return _STARTERS.get(os.path.basename(command[0]), ())


def all_survive(number: int, names: Sequence[str], mark: Tuple[str, str]) -> bool:
    """Whether all expected ranks run here and each survives the signal.

    ``names``: see :func:`rank_variables`; ``mark``: a variable and its value that only ours have. Processes that a rank
    starts do not count.
    """
    ours = {pid: variables for pid, variables in _environments().items() if variables.get(mark[0]) == mark[1]}
    ranks = {pid: variables for pid, variables in ours.items() if any(name in variables for name in names)}
    first = {pid: variables for pid, variables in ranks.items() if processes.parent(pid) not in ranks}
    expected = max([_expected(variables) for variables in first.values()], default=1)
    return len(first) >= expected and all(processes.survives(pid, number) for pid in first)


def _expected(variables: Dict[str, str]) -> int:
    counts = [variables[name] for name in _OF_MPI if variables.get(name, "").isdigit()]
    return max([int(each) for each in counts], default=1)


def _environments() -> Dict[int, Dict[str, str]]:
    # Of all our user's processes.
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and _is_ours(name):
            try:
                with open("/proc/{}/environ".format(name), errors="replace") as file:
                    found[int(name)] = _variables(file.read().split("\0"))
            except OSError:
                continue  # it has ended, or must not be read
    return found


def _is_ours(pid: str) -> bool:
    try:
        return os.stat("/proc/{}".format(pid)).st_uid == os.geteuid()
    except OSError:
        return False


def _variables(words: List[str]) -> Dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)
