"""Find and kill all processes of a program under DMTCP, by pid and never by name.

A process belongs to it if it descends from the one we started, is in its process group, is listed by the coordinator,
was started with our DMTCP_TMPDIR in its environment, or has a file open in there. All five are needed: the coordinator
and orphans have init as parent, programs make groups of their own, a restarted process shows no environment, and the
child of one is listed by nobody if it was forked when the checkpoint began: DMTCP does not end it with the others.
"""

import contextlib
import os
import signal
from typing import Callable, Dict, Iterable, List, NamedTuple, Set


class DmtcpProcess(NamedTuple):
    """``start``: in clock ticks since boot; with the pid it identifies a process."""

    pid: int
    parent: int
    group: int
    start: int


def all_processes_now(proc: str = "/proc") -> Dict[int, DmtcpProcess]:
    """All processes except zombies, which have ended."""
    found = {}
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            with open(os.path.join(proc, name, "stat"), "rb") as file:
                # The command's name in brackets may hold brackets and blanks itself.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if len(fields) > 19 and fields[0] not in (b"Z", b"X"):
            found[int(name)] = DmtcpProcess(int(name), int(fields[1]), int(fields[2]), int(fields[19]))
    return found


def belonging(root: int, known: Iterable[DmtcpProcess], temporary: str) -> Set[DmtcpProcess]:
    """The processes of the program started as ``root`` in group ``root``.

    ``known``: found before or listed; ``temporary``: its DMTCP_TMPDIR.
    """
    mark, inside = b"DMTCP_TMPDIR=" + os.fsencode(temporary), temporary + "/"
    alive = all_processes_now()
    mine = {process for process in known if alive.get(process.pid, process).start == process.start}
    mine = {process for process in mine if process.pid in alive}
    mine |= {
        process
        for process in alive.values()
        if root in (process.pid, process.group) or _marked(process.pid, mark) or _has_open(process.pid, inside)
    }
    mine = {process for process in mine if process.pid != os.getpid()}
    while True:
        pids = {process.pid for process in mine}
        children = {process for process in alive.values() if process.parent in pids} - mine
        if not children:
            return mine
        mine |= children


def _marked(pid: int, mark: bytes) -> bool:
    try:
        with open("/proc/{}/environ".format(pid), "rb") as file:
            return mark in file.read(1 << 20).split(b"\0")
    except OSError:
        return False


def _has_open(pid: int, inside: str) -> bool:
    directory = "/proc/{}/fd".format(pid)
    try:
        names = os.listdir(directory)
    except OSError:
        return False
    for name in names:
        with contextlib.suppress(OSError):
            if os.readlink(os.path.join(directory, name)).startswith(inside):
                return True
    return False


def processes_of(pids: Iterable[int]) -> List[DmtcpProcess]:
    """Those of these pids that are running processes of our own user."""
    alive = all_processes_now()
    found = []
    for pid in pids:
        try:
            if pid in alive and os.stat("/proc/{}".format(pid)).st_uid == os.geteuid():
                found.append(alive[pid])
        except OSError:
            continue
    return found


def kill_until_gone(find: Callable[[], Set[DmtcpProcess]], sleep: Callable[[float], None], rounds: int = 500) -> bool:
    """SIGKILL until ``find`` finds nothing more; False if something survives (in the kernel, on a dead file server)."""
    for _ in range(rounds):
        left = find()
        if not left:
            return True
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)
        sleep(0.01)
    return False
