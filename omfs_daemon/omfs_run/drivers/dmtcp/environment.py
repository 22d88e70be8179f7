"""The environment in which a program runs under DMTCP."""

import os
import re
import stat
from typing import Dict, Mapping, Optional, Sequence

from omfs_daemon.omfs_run.drivers.dmtcp.tools import FAILED
from omfs_daemon.omfs_run.drivers.driver import CannotStart

# Choices of the user that do not affect the protocol. DMTCP's other variables are dropped: they name other coordinators
# and directories, checkpoint at intervals, in the background, or make errors hang.
_KEPT = ("DMTCP_SIGCKPT", "DMTCP_PLUGIN", "DMTCP_ALLOC_PLUGIN", "DMTCP_DL_PLUGIN", "DMTCP_CKPT_OPEN_FILES")

_MPI_STARTERS = ("mpirun", "mpiexec", "orterun")
_MPI_IMAGE = re.compile(r"ckpt_(?:mpirun|mpiexec|orterun)[._]")


def dmtcp_environment(
    environment: Mapping[str, str], directory: str, temporary: str, plug_in: Optional[str] = None
) -> Dict[str, str]:
    """``environment`` with what DMTCP needs; ``directory`` is for the images, ``temporary`` for its own files.

    ``plug_in``: a plug-in of ours, loaded before the user's.
    """
    kept = {name: value for name, value in environment.items() if not name.startswith("DMTCP_") or name in _KEPT}
    # Compression is 6 to 20 times slower. --ckptdir is not enough: dmtcp_restart passes the directory to the
    # coordinator in no other way, and the coordinator writes the restart script into it.
    kept.update(DMTCP_GZIP="0", DMTCP_TMPDIR=temporary, DMTCP_CHECKPOINT_DIR=directory, DMTCP_FAIL_RC=str(FAILED))
    if plug_in is not None:
        others = kept.get("DMTCP_PLUGIN", "")
        kept["DMTCP_PLUGIN"] = "{}:{}".format(plug_in, others) if others else plug_in
    return kept


def is_mpi(command: Sequence[str]) -> bool:
    """Whether a command starts Open MPI's ranks."""
    return bool(command) and os.path.basename(command[0]) in _MPI_STARTERS


def holds_mpi(images: Sequence[str]) -> bool:
    """Whether one of these images is of a starter of Open MPI's ranks."""
    return any(_MPI_IMAGE.match(image) is not None for image in images)


def for_open_mpi(environment: Mapping[str, str], session: str) -> Dict[str, str]:
    """What Open MPI needs to run under DMTCP on one node; ``session``: a directory for its own files.

    It must use TCP only, and neither ask Slurm for ranks nor keep files open below /sys. Parameters that the user has
    set stay.
    """
    kept = {name: value for name, value in environment.items() if not name.startswith(("SLURM_", "PMI_", "PMIX_"))}
    kept["HWLOC_COMPONENTS"] = "-linuxio"
    kept.setdefault("OMPI_MCA_plm", "isolated")
    kept.setdefault("OMPI_MCA_ras", "^slurm")
    kept.setdefault("OMPI_MCA_btl", "self,tcp")
    kept["OMPI_MCA_orte_tmpdir_base"] = session
    return kept


def mpi_session(environment: Mapping[str, str]) -> str:
    """The directory for Open MPI's own files, made if needed; raises CannotStart if others can access it.

    It has the same name in each run of the job, as its files are open in the images; so it is not in the scratch
    directory.
    """
    job = environment.get("SLURM_JOB_ID", "")
    name = "omfs-mpi-{}-{}".format(os.geteuid(), job if job.isdigit() else "none")
    path = os.path.join(environment.get("OMFS_MPI_TMPDIR") or "/tmp", name)  # noqa: S108 - checked below
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise CannotStart(
            "no_scratch", "cannot make Open MPI's directory {}: {}".format(path, error.strerror)
        ) from None
    entry = os.lstat(path)
    if not stat.S_ISDIR(entry.st_mode) or entry.st_uid != os.geteuid() or entry.st_mode & 0o077:
        raise CannotStart("no_scratch", "Open MPI's directory {} must be yours, with mode 0700".format(path))
    return path


def checkpoint_signal(environment: Mapping[str, str]) -> Optional[int]:
    """The signal that DMTCP itself uses in every process (DMTCP_SIGCKPT; 12 = SIGUSR2); None if it is not a number."""
    text = environment.get("DMTCP_SIGCKPT", "12")
    return int(text) if text.isdigit() else None
