"""Finding and ending all that belongs to a program under DMTCP, by pid and never by name.

A process belongs to it if it descends from the one we started, is in its process group, is listed by the coordinator,
or was started with our mark in its environment. All four are needed: the coordinator and orphans have init as parent,
programs make groups of their own, and a restarted process shows no environment.
"""

import contextlib
import os
import signal
from typing import Callable, Dict, Iterable, List, NamedTuple, Set


class Process(NamedTuple):
    """``start``: in clock ticks since boot; with the pid it names a process for good."""

    pid: int
    parent: int
    group: int
    start: int


def look(proc: str = "/proc") -> Dict[int, Process]:
    """All processes but zombies, which have ended already."""
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
            found[int(name)] = Process(int(name), int(fields[1]), int(fields[2]), int(fields[19]))
    return found


def belonging(root: int, known: Iterable[Process], mark: bytes) -> Set[Process]:
    """What belongs to the program started as ``root`` and in the group ``root``; ``known``: found before or listed."""
    alive = look()
    mine = {process for process in known if alive.get(process.pid, process).start == process.start}
    mine = {process for process in mine if process.pid in alive}
    mine |= {
        process for process in alive.values() if root in (process.pid, process.group) or _marked(process.pid, mark)
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


def processes_of(pids: Iterable[int]) -> List[Process]:
    """The processes with these pids that run as ourselves now."""
    alive = look()
    found = []
    for pid in pids:
        try:
            if pid in alive and os.stat("/proc/{}".format(pid)).st_uid == os.geteuid():
                found.append(alive[pid])
        except OSError:
            continue
    return found


def end_all(find: Callable[[], Set[Process]], sleep: Callable[[float], None], rounds: int = 500) -> bool:
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
