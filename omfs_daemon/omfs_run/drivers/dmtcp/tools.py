"""DMTCP's commands and version, and what watching and checkpointing a program share."""

from omfs_daemon.omfs_run.drivers.dmtcp.versions import REHEARSES, Quirks, Version, quirks_of, shown, takes_plug_ins
from omfs_daemon.omfs_run.drivers.driver import CannotStop

# DMTCP's exit codes: for its own failures (we set DMTCP_FAIL_RC; its default, 99, may be a program's own), and for what
# it kills.
FAILED = 83
KILLED = 0

POLL = 0.05  # seconds between two questions to the coordinator
SHORT_POLL = 0.02  # seconds between two checks that need no coordinator
QUIT_SECONDS = 3.0


class Tools:
    """The paths of DMTCP's commands, its version, and how that version behaves."""

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
    def takes_plug_ins(self) -> bool:
        return takes_plug_ins(self.version)

    @property
    def rehearses(self) -> bool:
        """Whether rehearsals are tried with this version."""
        return self.takes_plug_ins and self.version >= REHEARSES

    @property
    def shown(self) -> str:
        return shown(self.version)


def program_lost(why: str, message: str) -> CannotStop:
    """CannotStop for a program that has ended."""
    return CannotStop(why, message, alive=False)
