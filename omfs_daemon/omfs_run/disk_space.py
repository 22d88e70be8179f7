"""Whether a directory takes a checkpoint. Asked before anything is stopped: for DMTCP a full disk kills the program."""

import errno
import os

from omfs_daemon.omfs_run.drivers import processes
from omfs_daemon.omfs_run.drivers.driver import CannotStop

PER_PROCESS = 25 * 1000 * 1000  # bytes beside the memory: the tool's own
MARGIN = 64 * 1000 * 1000

_TRIAL = ".omfs-trial"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def needed(pid: int) -> int:
    """Bytes that a checkpoint of the process and its descendants may take; shared memory counts for each."""
    members = processes.tree(pid)
    return sum(processes.resident(member) for member in members) + PER_PROCESS * len(members) + MARGIN


def require_room(directory: str, pid: int) -> None:
    """CannotStop (the program is alive) unless a file can be made there and there is room. A quota is not seen."""
    path = os.path.join(directory, _TRIAL)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(descriptor, b"x" * 4096)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            os.unlink(path)
        state = os.statvfs(directory)
    except OSError as error:
        raise refusal(directory, error) from None
    free, wanted = state.f_bavail * state.f_frsize, needed(pid)
    if free < wanted:
        text = "{}: {:.0f} MB free, a checkpoint may take {:.0f} MB".format(directory, free / 1e6, wanted / 1e6)
        raise CannotStop("no_space", text, alive=True)


def refusal(directory: str, error: OSError) -> CannotStop:
    """The same for an error while the program runs."""
    why = "no_space" if error.errno in _NO_SPACE else "not_writable"
    return CannotStop(why, "{} takes no checkpoint: {}".format(directory, error.strerror or error), alive=True)
