"""What DMTCP would lose, found in /proc before a checkpoint is requested.

Each of these was tried with 4.2.0 and 5.0: the restart fails, or the program goes on with something missing or wrong.
Interval timers (``setitimer``) cannot be seen in /proc.
"""

import os
import re
import stat
from typing import Dict, Iterable, List, Optional, Set

from omfs_daemon.omfs_run.drivers.processes import parent

_O_TMPFILE = 0o20000000
_ANONYMOUS = {
    "[timerfd]": "timerfd",
    "inotify": "inotify",
    "[inotify]": "inotify",
    "[pidfd]": "pidfd",
}
_STANDARD = {"0", "1", "2"}  # those that the restarted program gets are the new run's
_PTMX = ("/dev/ptmx", "/dev/pts/ptmx")
_LOCK = re.compile(r"^\d+: (FLOCK|POSIX) +\S+ +\S+ +(\d+) ")
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")


def unfit(pids: Iterable[int], known: Optional[Set[int]] = None) -> str:
    """What a checkpoint would lose, for instance ``O_TMPFILE open by python (pid 812)``; "" if nothing.

    known: the processes that the coordinator lists; a process that is missing there would be lost itself.
    """
    members = list(pids)
    children = _children()
    for pid in members:
        name = _name(pid)
        what = _lost_child(children.get(pid, [])) or _lost_file(pid) or _lost_jobs(name, pid, children)
        if what:
            return "{} by {} (pid {})".format(what, name, pid)
        if known is not None and pid not in known and name:
            return "{} (pid {}) is not known to DMTCP".format(name, pid)
    return _lost_lock(members)


def _children() -> Dict[int, List[int]]:
    found: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            found.setdefault(parent(int(name)), []).append(int(name))
    return found


def _name(pid: int) -> str:
    """The name of the program, printable; "" if it has ended."""
    try:
        with open(os.path.join("/proc", str(pid), "comm"), errors="replace") as file:
            return "".join(char if char.isprintable() else "?" for char in file.read().rstrip("\n"))
    except OSError:
        return ""


def _lost_child(children: Iterable[int]) -> str:
    """DMTCP drops ended children; the parent would learn a wrong exit status."""
    for child in children:
        try:
            with open(os.path.join("/proc", str(child), "stat"), errors="replace") as file:
                if file.read().rpartition(")")[2].split()[:1] == ["Z"]:
                    return "a child that has ended is not waited for"
        except OSError:
            continue
    return ""


def _lost_file(pid: int) -> str:
    directory = os.path.join("/proc", str(pid), "fd")
    try:
        names = os.listdir(directory)
    except OSError:
        return ""
    for name in set(names) - _STANDARD:
        try:
            target = os.readlink(os.path.join(directory, name))
        except OSError:
            continue
        what = _kind(target) or (_temporary(pid, name) if target.endswith(" (deleted)") else "")
        if what:
            return what + " open"
    return ""


def _kind(target: str) -> str:
    if target.startswith("/memfd:"):
        return "memfd"
    if target.startswith("pidfd:"):
        return "pidfd"
    if target in _PTMX:
        return "a terminal of its own"
    return _ANONYMOUS.get(target[len("anon_inode:") :], "") if target.startswith("anon_inode:") else ""


def _temporary(pid: int, name: str) -> str:
    try:
        with open(os.path.join("/proc", str(pid), "fdinfo", name)) as file:
            flags = next(int(line.split()[1], 8) for line in file if line.startswith("flags:"))
        regular = stat.S_ISREG(os.stat(os.path.join("/proc", str(pid), "fd", name)).st_mode)
    except (OSError, ValueError, StopIteration):
        return ""
    return "O_TMPFILE" if regular and flags & _O_TMPFILE else ""


def _lost_jobs(name: str, pid: int, children: Dict[int, List[int]]) -> str:
    """Several subshells in the background that start programs: DMTCP cannot pass on their descriptors (sendFd)."""
    if name not in _SHELLS:
        return ""
    subshells = [child for child in children.get(pid, []) if _name(child) == name and children.get(child)]
    return "background jobs started" if len(subshells) > 1 else ""


def _lost_lock(pids: List[int]) -> str:
    try:
        with open("/proc/locks") as file:
            found = [_LOCK.match(line) for line in file]
    except OSError:
        return ""
    for lock in found:
        if lock is not None and int(lock.group(2)) in pids:
            pid = int(lock.group(2))
            kind = "flock" if lock.group(1) == "FLOCK" else "lockf"
            return "a file locked ({}) by {} (pid {})".format(kind, _name(pid), pid)
    return ""
