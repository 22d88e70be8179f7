"""Processes of this node as /proc shows them."""

import contextlib
import os
import signal
import time
from typing import Dict, List


def catches(pid: int, number: int, proc: str = "/proc") -> bool:
    """Whether the process has a handler for the signal; False if it has ended or must not be read."""
    return bool(status_number(proc, pid, "SigCgt", 16) >> (number - 1) & 1)


def survives(pid: int, number: int, proc: str = "/proc") -> bool:
    """Whether the process survives the signal: it has a handler or, as `srun`, blocks it and waits for it."""
    return catches(pid, number, proc) or bool(status_number(proc, pid, "SigBlk", 16) >> (number - 1) & 1)


def status_number(proc: str, pid: int, name: str, base: int) -> int:
    """A number in /proc/PID/status; 0 if the process has ended."""
    try:
        with open(os.path.join(proc, str(pid), "status")) as status:
            for line in status:
                if line.startswith(name + ":"):
                    return int(line.split()[1], base)
    except OSError:
        pass
    return 0


_PAGE = os.sysconf("SC_PAGE_SIZE")


def children_of_all() -> Dict[int, List[int]]:
    """The children of each process of this node that has some."""
    found: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        above = parent(int(name)) if name.isdigit() else -1
        if above >= 0:
            found.setdefault(above, []).append(int(name))
    return found


def process_tree(pid: int) -> List[int]:
    """The process and all its descendants that still exist, parents first."""
    children = children_of_all()
    members = [pid] if parent(pid) >= 0 else []
    for member in members:
        members += children.get(member, [])
    return members


def command_name(pid: int, proc: str = "/proc") -> str:
    """The name of its program, printable; "" if the process has ended."""
    try:
        with open(os.path.join(proc, str(pid), "comm"), errors="replace") as file:
            return "".join(char if char.isprintable() else "?" for char in file.read().rstrip("\n"))
    except OSError:
        return ""


def memory_map(pid: int, proc: str = "/proc") -> List[str]:
    """The lines of its /proc/PID/maps; none if it has ended or must not be read."""
    try:
        with open(os.path.join(proc, str(pid), "maps"), errors="replace") as file:
            return file.readlines()
    except OSError:
        return []


def resident_bytes(pid: int) -> int:
    """Resident memory of the process in bytes; 0 if it has ended."""
    try:
        with open("/proc/{}/statm".format(pid)) as statm:
            return int(statm.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    return _state(pid) not in ("", "Z", "X")


def kill_processes(pids: List[int], limit: float = 10.0) -> bool:
    """Send SIGKILL to our own processes; False if one still runs after ``limit`` seconds."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + limit
    while any(alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _fields(pid: int) -> List[str]:
    try:
        with open("/proc/{}/stat".format(pid), errors="replace") as stat:
            # The name is in parentheses and may itself hold parentheses.
            return stat.read().rpartition(")")[2].split()
    except OSError:
        return []


def _state(pid: int) -> str:
    fields = _fields(pid)
    return fields[0] if fields else ""


def has_waited_for_children(pid: int) -> bool:
    """Whether it has waited for children that have ended: their page faults are added to its own (cminflt)."""
    fields = _fields(pid)
    return len(fields) > 8 and int(fields[8]) > 0


def parent(pid: int) -> int:
    """The parent's pid; -1 if the process has ended."""
    fields = _fields(pid)
    return int(fields[1]) if len(fields) > 1 else -1
