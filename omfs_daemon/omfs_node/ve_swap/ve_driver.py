"""What a way of talking to VEOS must be able to do, one engine at a time."""

import errno
import os
import stat
from typing import List, NamedTuple, Optional, Sequence, Tuple

from omfs_daemon.omfs_node.movers.mover import CannotMove

# Sub-states of a VE process (libveosinfo).
ACTIVE, SWAPPING_OUT, SWAPPED_OUT, SWAPPING_IN = 1, 2, 3, 4
# State of a VE process whose threads are all stopped; -1 stands for "this pid cannot be told about".
STOPPED = 3
BAD = -1

BATCH = 64  # pids in one call


class VeProcess(NamedTuple):
    """A pid on an engine. With state BAD ``sub`` is a negative errno: ESRCH not on this engine, EPERM out of reach."""

    pid: int
    state: int
    sub: int
    swapped: int  # bytes in the swap area
    swappable: int  # bytes on the engine that could go there


class VeDriver:
    """Calls raise CannotMove for what the caller cannot mend: a VEOS that is away (not_usable) or hangs (tool_hung).

    Calls for different engines may come from different threads, those for one engine come one after the other.
    """

    def open(self, ves: Sequence[int]) -> None:
        """Get ready to ask about these engines, from the main thread; may be called again."""

    def close(self) -> None:
        """Let go of what ``open`` made."""

    def processes(self, ve: int, pids: Sequence[int]) -> List[VeProcess]:
        """One for each pid, in any order."""
        raise NotImplementedError

    def swap_out(self, ve: int, pids: Sequence[int]) -> int:
        """Order it: 0 (queued, nothing more) or a negative errno; with EPERM some of them are queued."""
        raise NotImplementedError

    def swap_in(self, ve: int, pids: Sequence[int]) -> int:
        """Order it; as ``swap_out``."""
        raise NotImplementedError

    def memory(self, ve: int) -> Optional[Tuple[int, int]]:
        """Bytes of the engine's memory: total and free; None if this driver cannot tell."""
        raise NotImplementedError

    def area_used(self, ve: int) -> Optional[int]:
        """Bytes in the engine's swap area; None if this driver cannot tell."""
        raise NotImplementedError


def check_trusted(path: str) -> None:
    """Raises CannotMove("not_usable") unless only root can write this file: root will load or run it."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise CannotMove("not_usable", "%s: %s" % (path, error.strerror)) from None
    if not stat.S_ISREG(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
        raise CannotMove("not_usable", "%s: not a file that only root can write" % path)


def batches(pids: Sequence[int]) -> List[List[int]]:
    """The pids in lists that VEOS takes."""
    return [list(pids[start : start + BATCH]) for start in range(0, len(pids), BATCH)]


def refusal(ve: int, what: str, code: int) -> CannotMove:
    """What a negative answer of VEOS to a question means."""
    if code == -errno.ENOTSUP:
        return CannotMove("not_usable", "VE %d: partial process swapping is switched off" % ve)
    if code == -1:  # also what the library says when it cannot reach VEOS
        return CannotMove("not_usable", "VE %d: VEOS does not answer (%s)" % (ve, what))
    return CannotMove("tool_failed", "VE %d: %s: %s" % (ve, what, os.strerror(-code) if code < 0 else code))
