"""The interface of drivers for VEOS; each call is about one engine."""

import errno
import os
import stat
from typing import List, NamedTuple, Optional, Sequence, Tuple

from omfs_daemon.omfs_node.movers.mover import CannotMove

# Sub-states of a VE process (libveosinfo).
ACTIVE, SWAPPING_OUT, SWAPPED_OUT, SWAPPING_IN = 1, 2, 3, 4
# State of a VE process whose threads are all stopped, and of a pid that VEOS cannot report on.
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
    """Calls raise CannotMove if VEOS is not running (not_usable) or hangs (tool_hung).

    Calls for different engines may come from different threads; calls for one engine never overlap.
    """

    def open(self, ves: Sequence[int]) -> None:
        """Prepare for calls about these engines; called from the main thread, possibly repeatedly."""

    def close(self) -> None:
        """Release what ``open`` acquired."""

    def processes(self, ve: int, pids: Sequence[int]) -> List[VeProcess]:
        """The processes with these pids, in any order."""
        raise NotImplementedError

    def swap_out(self, ve: int, pids: Sequence[int]) -> int:
        """Request it; returns 0 (queued, not done) or a negative errno. After EPERM some of them are queued."""
        raise NotImplementedError

    def swap_in(self, ve: int, pids: Sequence[int]) -> int:
        """Request it; see ``swap_out``."""
        raise NotImplementedError

    def memory(self, ve: int) -> Optional[Tuple[int, int]]:
        """Bytes of the engine's memory: total and free; None if this driver does not know."""
        raise NotImplementedError

    def area_used(self, ve: int) -> Optional[int]:
        """Bytes in the engine's swap area; None if this driver does not know."""
        raise NotImplementedError


def check_trusted(path: str) -> None:
    """Raises CannotMove("not_usable") unless only root can write this file, which root will load or run."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise CannotMove("not_usable", "%s: %s" % (path, error.strerror)) from None
    if not stat.S_ISREG(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
        raise CannotMove("not_usable", "%s: not a file that only root can write" % path)


def batches(pids: Sequence[int]) -> List[List[int]]:
    """The pids in lists of a length that VEOS accepts."""
    return [list(pids[start : start + BATCH]) for start in range(0, len(pids), BATCH)]


def veos_refusal(ve: int, what: str, code: int) -> CannotMove:
    """The error for a negative return value of VEOS."""
    if code == -errno.ENOTSUP:
        return CannotMove("not_usable", "VE %d: partial process swapping is switched off" % ve)
    if code == -1:  # also the library's value when it cannot reach VEOS
        return CannotMove("not_usable", "VE %d: VEOS does not respond (%s)" % (ve, what))
    return CannotMove("tool_failed", "VE %d: %s: %s" % (ve, what, os.strerror(-code) if code < 0 else code))
