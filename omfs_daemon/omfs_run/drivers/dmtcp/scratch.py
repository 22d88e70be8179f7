"""The files of one start under DMTCP, in the scratch directory of the run, and its environment.

A run starts the program again when a checkpoint cannot be restarted or the coordinator was killed. Each start has a
directory of its own, so that nothing of an earlier one is in its way or is taken for its own.

DMTCP is given its checkpoint directory once, when the program starts, and resolves the path when it writes. So the path
lies in the scratch directory and becomes a link to the generation's directory just before each checkpoint.
"""

import os
from typing import Dict, Mapping, Optional

from omfs_daemon.omfs_run.drivers.dmtcp import environment as environments
from omfs_daemon.omfs_run.drivers.driver import CannotStart


class ScratchDirectory:
    """The files of a start, and its environment."""

    def __init__(self, run: str, environment: Mapping[str, str], plug_in: Optional[str] = None) -> None:
        """``run``: the scratch directory of the run, in which this start gets a directory; CannotStart.

        ``plug_in``: for the program.
        """
        try:
            self.run = os.path.abspath(run)
            self.path = _new_directory(self.run)
        except OSError as error:
            raise CannotStart("no_scratch", "cannot use {}: {}".format(run, error.strerror)) from None
        self.port_file = os.path.join(self.path, "dmtcp-port")
        self.link = os.path.join(self.path, "dmtcp-images")
        self.temporary = os.path.join(self.path, "dmtcp-tmp")
        self.mpi_session = ""
        self._aside = 0
        self.environment: Dict[str, str] = environments.dmtcp_environment(
            environment, self.link, self.temporary, plug_in
        )
        try:
            # A directory, not a link yet: dmtcp_restart would resolve it once and for all.
            self.point_nowhere()
            os.mkdir(self.temporary, 0o700)
        except OSError as error:
            raise CannotStart("no_scratch", "cannot use {}: {}".format(self.path, error.strerror)) from None

    def use_mpi(self) -> None:
        """Prepare the environment for Open MPI; raises CannotStart."""
        self.mpi_session = environments.mpi_session(self.environment)
        self.environment = environments.for_open_mpi(self.environment, self.mpi_session)

    def has_restarted(self, pid: int) -> bool:
        """Whether this process has come back from its image: omfs_children.so then makes a file, in DMTCP's directory
        or one below."""
        name = "omfs-restarted-{}".format(pid)
        return any(name in files for _, _, files in os.walk(self.temporary))

    def point_to(self, directory: str) -> None:
        """From now on DMTCP writes into ``directory``; what the link's path held (normally nothing) is set aside."""
        new = self.link + ".new"
        if os.path.lexists(new):
            os.unlink(new)
        os.symlink(os.path.abspath(directory), new)
        self._set_aside()
        os.rename(new, self.link)

    def point_nowhere(self) -> None:
        """From now on DMTCP writes into an empty directory of its own."""
        self._set_aside()
        os.mkdir(self.link, 0o700)

    def _set_aside(self) -> None:
        if os.path.islink(self.link):
            os.unlink(self.link)
        elif os.path.lexists(self.link):
            while os.path.lexists("{}.{}".format(self.link, self._aside)):
                self._aside += 1
            os.rename(self.link, "{}.{}".format(self.link, self._aside))


def _new_directory(run: str) -> str:
    number = 1
    while True:
        path = os.path.join(run, "start-{}".format(number))
        try:
            os.mkdir(path, 0o700)
            return path
        except FileExistsError:
            number += 1
