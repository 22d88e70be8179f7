"""Hold all processes of a start after a checkpoint, or at a restart, before the program itself runs again.

Our plug-in (plugins/dmtcp/children/hold.c) does it as long as there is a file, and tells by another which process is
held. The file names us: if we are gone, nobody is held.
"""

import contextlib
import os
from typing import List

from omfs_daemon.omfs_run.drivers.processes import alive

_HOLD, _HELD = "omfs-hold", "omfs-held."


class ProcessHold:
    """``directory``: DMTCP_TMPDIR of the start."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = os.path.join(directory, _HOLD)

    def begin(self) -> None:
        """From now on, whoever comes to the end of a checkpoint or a restart is held. Raises OSError."""
        self.end()
        with open(self._path + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(self._path + ".new", self._path)

    def held(self) -> List[int]:
        """The processes that are held."""
        names = os.listdir(self._directory)
        pids = [int(name[len(_HELD) :]) for name in names if name.startswith(_HELD) and name[len(_HELD) :].isdigit()]
        return [pid for pid in pids if alive(pid)]

    def end(self) -> None:
        """Let them go on."""
        for name in os.listdir(self._directory):
            if name == _HOLD or name.startswith(_HELD):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._directory, name))
