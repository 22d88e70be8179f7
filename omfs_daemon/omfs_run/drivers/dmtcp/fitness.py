"""What DMTCP would lose, found in /proc before a checkpoint is requested.

Each of these was tried with 4.2.0 and 5.0: the checkpoint or the restart fails, or the program goes on with something
missing or wrong. A child that ends is lost too, and so are descriptors that were duplicated by ``fcntl``, and interval
timers (``setitimer``) fire once, unless our plug-in is loaded.
"""

import os
import re
import stat
from typing import Dict, Iterable, List, Optional, Set, Tuple

from omfs_daemon.omfs_run.drivers.dmtcp import libraries
from omfs_daemon.omfs_run.drivers.processes import (
    alive,
    children_of_all,
    command_name,
    has_waited_for_children,
    memory_map,
)

_O_TMPFILE, _O_PATH = 0o20000000, 0o10000000
_ANONYMOUS = {
    "[timerfd]": "timerfd",
    "inotify": "inotify",
    "[inotify]": "inotify",
    "[pidfd]": "pidfd",
}
_STANDARD = {"0", "1", "2"}  # those that the restarted program gets are the new run's
_PTMX = ("/dev/ptmx", "/dev/pts/ptmx")
_LOCK = re.compile(r"^\d+: (FLOCK|POSIX) +\S+ +\S+ +(\d+) ")
_DMTCPS_OWN = 800  # from here on the descriptors are its own
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")


def unfit(pids: Iterable[int], known: Optional[Set[int]] = None, may_lose_statuses: bool = False) -> str:
    """What a checkpoint would lose, for instance ``O_TMPFILE open by python (pid 812)``; "" if nothing.

    known: the processes that the coordinator lists; a process that is missing there would be lost itself.
    may_lose_statuses: of children that end while the checkpoint is taken; otherwise a parent needs our plug-in.
    """
    members = list(pids)
    children = children_of_all()
    sharers: Dict[str, int] = {}
    for pid in members:
        name, maps = command_name(pid), memory_map(pid)
        below = children.get(pid, [])
        has_plug_in = libraries.has_loaded(maps, libraries.CHILDREN)
        if below and not has_plug_in:
            if not may_lose_statuses:
                return "several processes without {}, children of {} (pid {})".format(libraries.CHILDREN, name, pid)
            ended = _lost_child(below)
        else:
            ended = ""
        what = ended or _lost_file(pid, has_plug_in) or _lost_jobs(name, pid, children)
        if libraries.inherits_children(maps):
            what = what or "children inherited (subreaper)"
        for memory in _anonymous_shared(maps):
            if sharers.setdefault(memory, pid) != pid:
                what = what or "memory shared with another process (MAP_ANONYMOUS)"
        if what:
            return "{} by {} (pid {})".format(what, name, pid)
        if known is not None and pid not in known and alive(pid):
            return "{} (pid {}) is not known to DMTCP".format(name, pid)
    return _lost_lock(members)


def _lost_child(children: Iterable[int]) -> str:
    """DMTCP drops ended children; the parent would learn a wrong exit status."""
    return "" if all(alive(child) for child in children) else "a child that has ended is not waited for"


def _anonymous_shared(maps: Iterable[str]) -> Set[str]:
    """Which shared memory without a file a process has: each process would come back with its own.

    DMTCP itself keeps some, without access.
    """
    fields = (line.split() for line in maps if line.endswith("/dev/zero (deleted)\n"))
    return {each[4] for each in fields if each[1].endswith("s") and each[1] != "---s"}


def _lost_file(pid: int, has_plug_in: bool) -> str:
    directory = os.path.join("/proc", str(pid), "fd")
    try:
        names = os.listdir(directory)
    except OSError:
        return ""
    seen: Set[Tuple[str, str]] = set()
    for name in set(names) - _STANDARD:
        try:
            target = os.readlink(os.path.join(directory, name))
            with open(os.path.join("/proc", str(pid), "fdinfo", name)) as file:
                info = file.read()
            flags = int(info.split("flags:")[1].split()[0], 8)
            is_regular = stat.S_ISREG(os.stat(os.path.join(directory, name)).st_mode)
        except (OSError, ValueError, IndexError):
            continue
        what = _kind(target)
        if is_regular and flags & _O_TMPFILE and target.endswith(" (deleted)"):
            what = "O_TMPFILE"
        elif flags & _O_PATH:
            what = "O_PATH"
        elif not has_plug_in and int(name) < _DMTCPS_OWN and (target, _without_lifetime(info)) in seen:
            what = "a duplicated descriptor, without {},".format(libraries.CHILDREN)
        if what:
            return what + " open"
        seen.add((target, _without_lifetime(info)))
    return ""


def _without_lifetime(info: str) -> str:
    """What duplicates have in common: all but whether exec closes them."""
    return re.sub(r"(?m)^flags:\s+([0-7]+)", lambda flags: str(int(flags.group(1), 8) & ~os.O_CLOEXEC), info)


def _kind(target: str) -> str:
    if target.startswith("/memfd:"):
        return "memfd"
    if target.startswith("pidfd:"):
        return "pidfd"
    if target in _PTMX:
        return "a terminal of its own"
    return _ANONYMOUS.get(target[len("anon_inode:") :], "") if target.startswith("anon_inode:") else ""


def _lost_jobs(name: str, pid: int, children: Dict[int, List[int]]) -> str:
    """Several subshells in the background that start programs: DMTCP cannot pass on their descriptors (sendFd)."""
    if name not in _SHELLS:
        return ""
    subshells = [
        child
        for child in children.get(pid, [])
        if command_name(child) == name and (children.get(child) or has_waited_for_children(child))
    ]
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
            return "a file locked ({}) by {} (pid {})".format(kind, command_name(pid), pid)
    return ""
