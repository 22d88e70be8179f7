"""The ranks that `mpirun` or `srun` has started on this node, told from their environments."""

import os
from typing import Dict, List, Sequence, Tuple

from omfs_daemon.omfs_run.drivers.processes import survives as form_survives
from omfs_daemon.omfs_run.drivers import processes

# What only ranks have in their environment, not the daemons between `mpirun` and them: how many there are on the node.
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


def signs(command: Sequence[str]) -> Sequence[str]:
    """By which of its variables a rank is known that the command starts; none: it is not known to start any."""
    return _STARTERS.get(os.path.basename(command[0]), ())


def all_survive(number: int, names: Sequence[str], mark: Tuple[str, str]) -> bool:
    """Whether there are ranks here, as many as there are to be, and each takes the signal without dying.

    ``names``: see :func:`signs`; ``mark``: a variable and its value, which only ours have. What a rank starts in turn
    is its own business.
    """
    ours = {pid: variables for pid, variables in _environments().items() if variables.get(mark[0]) == mark[1]}
    ranks = {pid: variables for pid, variables in ours.items() if any(name in variables for name in names)}
    first = {pid: variables for pid, variables in ranks.items() if processes.parent(pid) not in ranks}
    awaited = max([_awaited(variables) for variables in first.values()], default=1)
    return len(first) >= awaited and all(form_survives(pid, number) for pid in first)


def _awaited(variables: Dict[str, str]) -> int:
    told = [variables[name] for name in _OF_MPI if variables.get(name, "").isdigit()]
    return max([int(each) for each in told], default=1)


def _environments() -> Dict[int, Dict[str, str]]:
    # Of all processes that are ours to read.
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and _is_ours(name):
            try:
                with open("/proc/{}/environ".format(name), errors="replace") as file:
                    found[int(name)] = _variables(file.read().split("\0"))
            except OSError:
                continue  # it has ended, or is none to be read
    return found


def _is_ours(pid: str) -> bool:
    try:
        return os.stat("/proc/{}".format(pid)).st_uid == os.geteuid()
    except OSError:
        return False


def _variables(words: List[str]) -> Dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)
