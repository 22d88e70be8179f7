"""What makes a rehearsal harmful: it restarts a copy of the program while the program itself is held.

The copy executes none of the program's instructions, but DMTCP opens again what the program had open. Private memory,
pipes, unnamed socket pairs, and plain files are safe: the program is held, so the files are as they were, and they are
neither cut nor written (if somebody else writes to them, they stay as they are). The rest the two would share, or take
from each other.
"""

import os
import re
import stat
from typing import Iterable, Mapping, Optional

from omfs_daemon.omfs_run.drivers.dmtcp import libraries
from omfs_daemon.omfs_run.drivers.processes import command_name, memory_map

_MAPPED = re.compile(r"^\S+ \S(w)\S(s) \S+ \S+ \d+ *(.*)$")
# Input, output, and error are the new run's after a restart; 821 is DMTCP's own connection, in all releases.
_NOT_OPENED = ("0", "1", "2", "821")
_SYSV = ("shm", "sem", "msg")


def harm(pids: Iterable[int], environment: Mapping[str, str], temporary: str, proc: str = "/proc") -> str:
    """What a rehearsal would harm, for instance ``a socket of python (pid 812)``; "" if nothing.

    environment: of the start; temporary: DMTCP's own directory, whose files do not count.
    """
    plug_ins = [name for name in environment.get("DMTCP_PLUGIN", "").split(":") if name]
    if any(os.path.basename(name) != libraries.CHILDREN for name in plug_ins):
        return "a plug-in of your own (DMTCP_PLUGIN), which would run"
    for kind in _SYSV:
        if _has_sysv(os.path.join(proc, "sysvipc", kind)):
            return "System V shared memory, semaphores, or message queues of your user on this node"
    for pid in pids:
        what = _shared_file(proc, pid, temporary) or _shared_memory(proc, pid, temporary)
        if what:
            return "{} of {} (pid {})".format(what, command_name(pid, proc) or "a process", pid)
    return ""


def _has_sysv(path: str) -> bool:
    try:
        with open(path) as file:
            titles = file.readline().split()
            return any(int(line.split()[titles.index("uid")]) == os.geteuid() for line in file)
    except (OSError, ValueError, IndexError):
        return False


def _shared_file(proc: str, pid: int, temporary: str) -> str:
    directory = os.path.join(proc, str(pid), "fd")
    try:
        names = os.listdir(directory)
    except OSError:
        return ""
    for name in names:
        path = os.path.join(directory, name)
        try:
            target, mode = os.readlink(path), os.stat(path).st_mode
        except OSError:
            continue
        if name in _NOT_OPENED or _is_below(target, temporary):
            continue
        what = _kind(target, mode, proc, pid)
        if what:
            return what
    return ""


def _kind(target: str, mode: int, proc: str, pid: int) -> Optional[str]:
    if stat.S_ISSOCK(mode):
        return None if _is_pair(target, proc, pid) else "a socket"
    if stat.S_ISFIFO(mode):
        return None if target.startswith("pipe:") else "a named pipe"
    if stat.S_ISREG(mode) and not os.path.exists(target):
        return "a deleted file or a message queue"
    return None


def _is_pair(target: str, proc: str, pid: int) -> bool:
    """Whether a socket is a connected Unix one without a name."""
    inode = target[len("socket:[") : -1]
    try:
        with open(os.path.join(proc, str(pid), "net", "unix")) as file:
            for line in file:
                # Num RefCount Protocol Flags Type St Inode Path
                fields = line.split()
                if len(fields) > 6 and fields[6] == inode:
                    return len(fields) == 7 and fields[5] == "03"
    except OSError:
        pass
    return False


def _shared_memory(proc: str, pid: int, temporary: str) -> str:
    found = (_MAPPED.match(line.rstrip("\n")) for line in memory_map(pid, proc))
    return "shared memory" if any(one and not _is_below(one.group(3), temporary) for one in found) else ""


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(os.path.join(os.path.realpath(directory), ""))
