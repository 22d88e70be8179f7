"""Paths and version of DMTCP's commands; what watching and checkpointing share."""

from omfs_daemon.omfs_run.drivers.dmtcp.versions import Quirks
from omfs_daemon.omfs_run.drivers.dmtcp.versions import Version
from omfs_daemon.omfs_run.drivers.dmtcp.versions import quirks_of
from omfs_daemon.omfs_run.drivers.dmtcp.versions import shown
from omfs_daemon.omfs_run.drivers.driver import CannotStop

# DMTCP's exit codes: for its own failures, and of what it kills.
FAILED = 99
KILLED = 0

_POLL = 0.05
_GLANCE = 0.02  # at what can be seen without asking the coordinator
# A process in the kernel can hold up a checkpoint; after this long of running on it surely is over.
_SURELY_OVER_AFTER = 30.0
_QUIT_SECONDS = 3.0


class Tools:
    """The paths of DMTCP's commands, its version and how that version behaves."""

    def __init__(self, launch: str, command: str, restart: str, coordinator: str, version: Version) -> None:
        self.launch = launch
        self.command = command
        self.restart = restart
        self.coordinator = coordinator
        self.version = version

    @property
    def quirks(self) -> Quirks:
        return quirks_of(self.version)

    @property
    def shown(self) -> str:
        return shown(self.version)


def _gone(why: str, message: str) -> CannotStop:
    return CannotStop(why, message, alive=False)
