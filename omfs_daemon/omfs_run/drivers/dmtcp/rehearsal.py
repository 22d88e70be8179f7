"""A rehearsal: a copy of a fresh checkpoint is restarted before the program is given up.

The program is held by our plug-in when its checkpoint is written. A copy of it is restarted from the checkpoint, with a
coordinator and a directory of its own, until all of its processes are held in turn: DMTCP has then read the images,
restored memory, threads, and files, and has only to let the threads run. Not one instruction of the program is executed
by the copy, which is then killed. If it does not come so far, the program goes on as if there had been no checkpoint.
"""

from typing import Callable, Mapping, Sequence

from omfs_daemon.omfs_run.drivers.dmtcp.hold import ProcessHold
from omfs_daemon.omfs_run.drivers.dmtcp.rehearsal_safety import harm
from omfs_daemon.omfs_run.drivers.driver import PER_PROCESS, CannotStop
from omfs_daemon.omfs_run.drivers.processes import process_tree, resident_bytes
from omfs_daemon.omfs_run.memory_room import memory_room

Restart = Callable[[str, Sequence[str], float], None]


class Rehearsal:
    """Of one start of the program.

    environment, temporary: of the start, and its DMTCP_TMPDIR
    restart: restarts a copy from (directory, names of the images) until it is held, within (seconds), and kills it;
        raises CannotStart
    """

    def __init__(self, environment: Mapping[str, str], temporary: str, restart: Restart) -> None:
        self._environment = environment
        self._temporary = temporary
        self.restart = restart
        self.hold = ProcessHold(temporary)

    def require_harmless(self, pid: int) -> None:
        """CannotStop (the program is alive) if a copy of the program ``pid`` could do harm, or lacks memory."""
        members = process_tree(pid)
        harmed = harm(members, self._environment, self._temporary)
        if harmed:
            raise CannotStop("no_rehearsal", "a rehearsal could harm: {}".format(harmed), alive=True)
        used = sum(resident_bytes(member) for member in members)
        needed, room = used + PER_PROCESS * len(members), memory_room(self._environment, used)
        if room < needed:
            text = "a rehearsal may take {:.0f} MB of memory, and there are {:.0f} MB".format(needed / 1e6, room / 1e6)
            raise CannotStop("no_rehearsal", text, alive=True)
