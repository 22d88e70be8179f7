"""Whether a directory has room for a checkpoint, checked first: with DMTCP a full disk kills the program."""

import errno
import os

from omfs_daemon.omfs_run.drivers import processes
from omfs_daemon.omfs_run.drivers.driver import PER_PROCESS, CannotStop

MARGIN = 64 * 1000 * 1000

_TRIAL = ".omfs-trial"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def needed_bytes(pid: int) -> int:
    """Bytes that a checkpoint of a process and its descendants may take; shared memory counts for each of them."""
    members = processes.process_tree(pid)
    return sum(processes.resident_bytes(member) for member in members) + PER_PROCESS * len(members) + MARGIN


def require_space(directory: str, pid: int) -> None:
    """CannotStop (the program is alive) unless a file can be created and there is enough space. Ignores quotas."""
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
        raise cannot_write(directory, error) from None
    free, needed = state.f_bavail * state.f_frsize, needed_bytes(pid)
    if free < needed:
        text = "{}: {:.0f} MB free, a checkpoint may take {:.0f} MB".format(directory, free / 1e6, needed / 1e6)
        raise CannotStop("no_space", text, alive=True)


def cannot_write(directory: str, error: OSError) -> CannotStop:
    """The same for an error of a write."""
    why = "no_space" if error.errno in _NO_SPACE else "not_writable"
    return CannotStop(why, "cannot write a checkpoint to {}: {}".format(directory, error.strerror or error), alive=True)
