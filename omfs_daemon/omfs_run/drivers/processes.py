"""Processes of this node as /proc shows them."""

import os
import contextlib
import signal
import time
from typing import Dict, List


def catches(pid: int, number: int, proc: str = "/proc") -> bool:
    """Whether the process has a handler for the signal; a process that is gone or not ours to look at has none."""
    return bool(_number(proc, pid, "SigCgt", 16) >> (number - 1) & 1)


def survives(pid: int, number: int, proc: str = "/proc") -> bool:
    """Whether the process takes the signal without dying: by a handler, or as `srun` does, blocked and waited for."""
    return catches(pid, number, proc) or bool(_number(proc, pid, "SigBlk", 16) >> (number - 1) & 1)


def _number(proc: str, pid: int, name: str, base: int) -> int:
    try:
        with open(os.path.join(proc, str(pid), "status")) as status:
            for line in status:
                if line.startswith(name + ":"):
                    return int(line.split()[1], base)
    except OSError:
        pass
    return 0

_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(pid: int) -> List[int]:
    """The process and all its descendants, parents first; without those that are gone."""
    children: Dict[int, List[int]] = {}
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            above = parent(int(name))
            if above >= 0:
                children.setdefault(above, []).append(int(name))
                found.add(int(name))
    members = [pid] if pid in found else []
    for member in members:
        members += children.get(member, [])
    return members


def resident(pid: int) -> int:
    """Bytes of memory that the process holds now; 0 if it is gone."""
    try:
        with open("/proc/{}/statm".format(pid)) as statm:
            return int(statm.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    return _state(pid) not in ("", "Z", "X")


def end(pids: List[int], limit: float = 10.0) -> bool:
    """SIGKILL to processes of ours; True when none of them runs any more."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    stop = time.monotonic() + limit
    while any(alive(pid) for pid in pids):
        if time.monotonic() > stop:
            return False
        time.sleep(0.02)
    return True


def _fields(pid: int) -> List[str]:
    try:
        with open("/proc/{}/stat".format(pid), errors="replace") as stat:
            # The name stands in parentheses and may hold anything, parentheses too.
            return stat.read().rpartition(")")[2].split()
    except OSError:
        return []


def _state(pid: int) -> str:
    fields = _fields(pid)
    return fields[0] if fields else ""


def parent(pid: int) -> int:
    """-1 if the process is gone."""
    fields = _fields(pid)
    return int(fields[1]) if len(fields) > 1 else -1
