"""What a run under DMTCP has in its scratch directory, and its environment.

DMTCP is told its directory once, when the program starts, and looks at the path when it writes. So the path is one in
the scratch directory, which becomes a link to the directory of the generation just before each checkpoint.
"""

import os
from typing import Dict, Mapping

from omfs_daemon.omfs_run.drivers.dmtcp import environment as environments
from omfs_daemon.omfs_run.drivers.driver import CannotStart


class Place:
    """What a run has in its scratch directory, and its environment."""

    def __init__(self, scratch: str, environment: Mapping[str, str]) -> None:
        scratch = self.scratch = os.path.abspath(scratch)
        self.port_file = os.path.join(scratch, "dmtcp-port")
        self.link = os.path.join(scratch, "dmtcp-images")
        temporary = os.path.join(scratch, "dmtcp-tmp")
        self.mark = b"DMTCP_TMPDIR=" + os.fsencode(temporary)
        self.mpi_session = ""
        self._aside = 0
        self.environment: Dict[str, str] = environments.clean(environment, self.link, temporary)
        try:
            if os.path.lexists(self.port_file):
                os.unlink(self.port_file)
            # A directory, not yet a link: dmtcp_restart would follow it for good.
            self.point_nowhere()
            os.makedirs(temporary, 0o700, exist_ok=True)
        except OSError as error:
            raise CannotStart("no_scratch", "cannot use {}: {}".format(scratch, error.strerror)) from None

    def use_mpi(self) -> None:
        self.mpi_session = environments.mpi_session(self.environment)
        self.environment = environments.for_open_mpi(self.environment, self.mpi_session)

    def point_to(self, directory: str) -> None:
        """From now on DMTCP writes into ``directory``; what lay at its own place (nothing, normally) is set aside."""
        new = self.link + ".new"
        if os.path.lexists(new):
            os.unlink(new)
        os.symlink(os.path.abspath(directory), new)
        self._set_aside()
        os.rename(new, self.link)

    def point_nowhere(self) -> None:
        """From now on DMTCP writes into an empty directory in the scratch."""
        self._set_aside()
        os.mkdir(self.link, 0o700)

    def _set_aside(self) -> None:
        if os.path.islink(self.link):
            os.unlink(self.link)
        elif os.path.lexists(self.link):
            while os.path.lexists("{}.{}".format(self.link, self._aside)):
                self._aside += 1
            os.rename(self.link, "{}.{}".format(self.link, self._aside))
