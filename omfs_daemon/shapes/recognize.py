"""Which shapes of the table a running program has, as far as /proc shows.

Exit codes, interval timers, and how a program starts its children leave no trace there, so what is missing here proves
nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from omfs_daemon.omfs_run.drivers.processes import parent, process_tree

LARGE = 100 << 20
"""Bytes of memory from which a process counts as large."""

_O_TMPFILE, _O_PATH = 0o20000000, 0o10000000
_ANONYMOUS = {"eventfd": "eventfd", "eventpoll": "epoll", "signalfd": "signalfd", "timerfd": "timerfd"}
_ANONYMOUS |= {"inotify": "inotify", "pidfd": "pidfd"}
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
_LOCK = re.compile(r"^\d+: (FLOCK|POSIX) +\S+ +\S+ +(\d+) ", re.MULTILINE)
_TCP_STATES = {"01": "TCP connection to a child", "0A": "TCP socket that listens"}
_SIGCHLD = 17


class Recognized(NamedTuple):
    """A shape of the table, and where it was seen: ``python3 (pid 812)``."""

    shape: str
    where: str


class _Descriptor(NamedTuple):
    target: str
    mode: int
    flags: int
    links: int


class _Process(NamedTuple):
    pid: int
    name: str
    status: dict[str, str]
    maps: list[str]
    descriptors: list[_Descriptor]
    children: list[int]

    @property
    def where(self) -> str:
        return f"{self.name} (pid {self.pid})"

    def number(self, key: str, base: int = 10) -> int:
        words = self.status.get(key, "").split()
        return int(words[0], base) if words else 0


def recognized_shapes(pid: int) -> list[Recognized]:
    """Of a process and its descendants, each shape once; [] if the process has ended or must not be looked at."""
    tree = process_tree(pid)
    children = {one: [other for other in tree if parent(other) == one] for one in tree}
    processes = [found for one in tree if (found := _look(one, children[one])) is not None]
    seen: dict[str, str] = {}
    for shape, process in _all(processes):
        seen.setdefault(shape, process.where)
    return [Recognized(shape, where) for shape, where in seen.items()]


def _all(processes: Sequence[_Process]) -> Iterator[tuple[str, _Process]]:
    by_pid = {process.pid: process for process in processes}
    locks = _LOCK.findall(_text(Path("/proc/locks")))
    holders: Counter[str] = Counter()
    for process in processes:
        holders.update({one.target for one in process.descriptors if one.target.startswith("pipe:")})
        holders.update(_anonymous_shared(process))
    for process in processes:
        yield from ((shape, process) for shape in _memory(process, holders))
        yield from ((shape, process) for shape in _children(process, by_pid))
        yield from ((shape, process) for one in process.descriptors for shape in _open(one, holders))
        yield from ((shape, process) for shape in _duplicates(process))
        yield from ((shape, process) for shape in _sockets(process))
        for kind, pid in locks:
            if int(pid) == process.pid:
                yield f"file locked with {'flock' if kind == 'FLOCK' else 'lockf'}", process


def _memory(process: _Process, holders: Counter[str]) -> Iterator[str]:
    if not process.maps:
        return  # another user's, or ended
    files = [line.split(None, 5)[5].rstrip("\n") for line in process.maps if line.count(" ") > 5 and "/" in line]
    if any("libgomp" in file for file in files):
        yield "OpenMP"
    if process.number("Threads") > 1:
        yield "threads, in Python" if process.name.startswith("python") else "threads, in C"
    if process.number("VmRSS") * 1024 > LARGE:
        yield "200 MB of memory"
    if process.number("VmLck"):
        yield "locked memory (mlock)"
    if not any("/ld-" in file or "/libc" in file for file in files):
        yield "statically linked program"
    for line in process.maps:
        fields = line.split(None, 5)
        if len(fields) < 6 or not fields[1].endswith("s") or fields[1] == "---s":
            continue
        name = fields[5]
        if name.startswith("/dev/shm/"):  # noqa: S108 - of others
            yield "mapping in /dev/shm"
        elif name.startswith("/SYSV"):
            yield "System V shared memory"
        elif name.startswith("/dev/zero"):
            is_alone = holders[_memory_key(line)] < 2
            yield "shared memory without a file" if is_alone else "shared memory with a child"
        elif name.startswith("/"):
            yield "mapping of a file"
    if process.number("ShdPnd", 16) & process.number("SigBlk", 16):
        yield "blocked signal that is pending"
    if _text(Path(f"/proc/{process.pid}/timers")):
        yield "timer of timer_create(2)"


def _memory_key(line: str) -> str:
    return f"memory {line.split()[4]}"


def _anonymous_shared(process: _Process) -> set[str]:
    found = (line for line in process.maps if "/dev/zero" in line and line.split()[1][0] + line.split()[1][3] == "rs")
    return {_memory_key(line) for line in found}


def _children(process: _Process, by_pid: dict[int, _Process]) -> Iterator[str]:
    children = [by_pid[pid] for pid in process.children if pid in by_pid]
    if any(child.status.get("State", "").startswith("Z") for child in children):
        yield "ended child, waited for later"
    if process.number("SigCgt", 16) >> (_SIGCHLD - 1) & 1 and process.name not in _SHELLS:
        yield "SIGCHLD"
    if not children:
        return
    if process.name == "make":
        yield "make"
    elif process.name in _SHELLS:
        subshells = [child for child in children if child.name == process.name and child.children]
        names = {0: "shell: short programs", 1: "shell: one job in the background"}
        yield names.get(len(subshells), "shell: several jobs in the background")
    else:
        yield "a child that lives as long"
    if any(child.children for child in children):
        yield "grandchildren"


def _open(one: _Descriptor, holders: Counter[str]) -> Iterator[str]:
    target, mode = one.target, one.mode
    is_unlinked = stat.S_ISREG(mode) and one.links == 0
    if target.startswith("anon_inode:"):
        kind = target[len("anon_inode:") :].strip("[]")
        if kind in _ANONYMOUS:
            yield _ANONYMOUS[kind]
    elif target.startswith("pidfd:"):
        yield "pidfd"
    elif target.startswith("/memfd:"):
        yield "memfd"
    elif target in ("/dev/ptmx", "/dev/pts/ptmx"):
        yield "pseudoterminal of its own"
    elif one.flags & _O_PATH:
        yield "path open (O_PATH)"
    elif is_unlinked:
        yield "O_TMPFILE" if one.flags & _O_TMPFILE == _O_TMPFILE else "unlinked file"
    elif stat.S_ISDIR(mode):
        yield "directory open"
    elif target.startswith("pipe:"):
        yield "pipes to a child" if holders[target] > 1 else "pipe with something in it"
    elif stat.S_ISFIFO(mode):
        yield "FIFO"
    elif stat.S_ISREG(mode) and one.flags & os.O_ACCMODE:
        yield "file written and read" if one.flags & os.O_ACCMODE == os.O_RDWR else "file written on at its position"


def _duplicates(process: _Process) -> Iterator[str]:
    for one, count in Counter(process.descriptors).items():
        if count < 2:
            continue
        if one.target.startswith("pipe:"):
            yield "duplicated pipe"
        elif one.target.startswith("socket:"):
            yield "duplicated socket"
        elif stat.S_ISREG(one.mode):
            yield "duplicated file"


def _sockets(process: _Process) -> Iterator[str]:
    own = {one.target[len("socket:[") : -1] for one in process.descriptors if one.target.startswith("socket:[")}
    if not own:
        return
    network = Path(f"/proc/{process.pid}/net")
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for line in _text(network / kind).splitlines()[1:]:
            fields = line.split()
            if fields[9] in own:
                yield _TCP_STATES.get(fields[3], "TCP connection to a child") if "tcp" in kind else "UDP socket"
    for line in _text(network / "unix").splitlines()[1:]:
        fields = line.split()
        if fields[6] in own:
            yield "Unix socket to a child" if len(fields) > 7 else "socket pair to a child"


def _look(pid: int, children: list[int]) -> _Process | None:
    folder = Path(f"/proc/{pid}")
    lines = (line.partition(":") for line in _text(folder / "status").splitlines())
    status = {key: value.strip() for key, _, value in lines}
    if not status:
        return None
    maps = _text(folder / "maps").splitlines(keepends=True)
    name = "".join(char if char.isprintable() else "?" for char in status.get("Name", ""))
    return _Process(pid, name, status, maps, list(_descriptors(folder)), children)


def _descriptors(folder: Path) -> Iterator[_Descriptor]:
    """All but standard input, output, and error."""
    try:
        links = [link for link in sorted((folder / "fd").iterdir()) if link.name not in ("0", "1", "2")]
    except OSError:
        return
    for link in links:
        try:
            info = link.stat()
            target = str(link.readlink())
        except OSError:
            continue  # closed meanwhile
        found = re.search(r"^flags:\s+([0-7]+)", _text(folder / "fdinfo" / link.name), re.MULTILINE)
        flags = int(found.group(1), 8) & ~os.O_CLOEXEC if found else 0
        yield _Descriptor(target, info.st_mode, flags, info.st_nlink)


def _text(path: Path) -> str:
    """What a file of /proc says; nothing if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
