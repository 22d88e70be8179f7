"""The processes of a program in /proc: which belong to it, whether they run, and how to kill all of them."""

import contextlib
import os
import re
import signal
import stat
import time
from typing import Dict, List, NamedTuple, Optional

_POLL = 0.01  # seconds between two checks


class CriuProcess(NamedTuple):
    """``state``: the kernel's letter (RSDTtZX). ``started``: clock ticks since boot; tells reused pids apart."""

    pid: int
    parent: int
    session: int
    state: str
    started: int


def process_now(pid: int, proc: str = "/proc") -> Optional[CriuProcess]:
    """A process, or None if there is none."""
    try:
        with open(os.path.join(proc, str(pid), "stat"), "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name is in parentheses and may itself hold blanks and parentheses.
    fields = text[text.rfind(b")") + 2 :].split()
    return CriuProcess(pid, int(fields[1]), int(fields[3]), fields[0].decode(), int(fields[19]))


def all_processes(proc: str = "/proc") -> Dict[int, CriuProcess]:
    """All visible processes."""
    seen = (process_now(int(name), proc) for name in os.listdir(proc) if name.isdigit())
    return {process.pid: process for process in seen if process is not None}


def tree_of(root: int, processes: Dict[int, CriuProcess]) -> List[CriuProcess]:
    """``root`` and its descendants, parents first; empty if it does not exist."""
    children: Dict[int, List[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found = [root] if root in processes else []
    for pid in found:  # grows during the loop
        found.extend(children.get(pid, []))
    return [processes[pid] for pid in found]


def is_alive(process: Optional[CriuProcess]) -> bool:
    """Whether it can still run code."""
    return process is not None and process.state not in "ZX"


def same(process: CriuProcess) -> Optional[CriuProcess]:
    """The process as it is now; None if it has ended, even if its pid was reused."""
    now = process_now(process.pid)
    return now if now is not None and now.started == process.started else None


def threads(pid: int, proc: str = "/proc") -> List[int]:
    """The thread IDs of a process; empty if it has ended."""
    try:
        return [int(name) for name in os.listdir(os.path.join(proc, str(pid), "task"))]
    except OSError:
        return []


def truncated_exit_code(process: CriuProcess, proc: str = "/proc") -> int:
    """The exit code of an ended process that is not waited for, if CRIU restores only its lower seven bits; else 0.

    Source: restore_one_zombie in CRIU's cr-restore.c (tried with 4.2.1).
    """
    if process.state != "Z":
        return 0
    try:
        with open(os.path.join(proc, str(process.pid), "stat"), "rb") as file:
            status = int(file.read().split()[-1])
    except (OSError, ValueError, IndexError):
        return 0
    code = status >> 8
    return code if status & 0x7F == 0 and code > 0x7F else 0


def not_to_be_opened(pid: int, proc: str = "/proc") -> List[str]:
    """Names of a process's open files that we could not open in the same way."""
    folder = os.path.join(proc, str(pid))
    try:
        names = os.listdir(os.path.join(folder, "fd"))
    except OSError:
        return []
    return [path for path in (_not_to_be_opened(folder, name) for name in names) if path]


def has_repeating_timerfd(pid: int, proc: str = "/proc") -> bool:
    """Whether the process has a timerfd with an interval."""
    folder = os.path.join(proc, str(pid), "fdinfo")
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        try:
            with open(os.path.join(folder, name)) as lines:
                found = re.search(r"^it_interval: \((\d+), (\d+)\)", lines.read(), re.MULTILINE)
        except OSError:
            continue  # closed meanwhile
        if found and (int(found.group(1)) or int(found.group(2))):
            return True
    return False


def _not_to_be_opened(folder: str, name: str) -> str:
    link = os.path.join(folder, "fd", name)
    try:
        info = os.stat(link)
        # A file without a name becomes part of the image.
        if not stat.S_ISREG(info.st_mode) or info.st_nlink == 0:
            return ""
        path = os.readlink(link)
        with open(os.path.join(folder, "fdinfo", name)) as lines:
            found = re.search(r"^flags:\s+([0-7]+)", lines.read(), re.MULTILINE)
    except OSError:
        return ""  # closed or removed meanwhile
    access = int(found.group(1), 8) & os.O_ACCMODE if found else os.O_RDONLY
    mode = {os.O_RDONLY: os.R_OK, os.O_WRONLY: os.W_OK}.get(access, os.R_OK | os.W_OK)
    return "" if os.access(path, mode) else path


def send(process: CriuProcess, number: int) -> None:
    """Send a signal if it is still the same process; does nothing if it has ended."""
    if same(process) is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def continue_processes(processes: List[CriuProcess], timeout: float) -> bool:
    """Continue stopped or traced processes; returns whether all of them run within ``timeout`` seconds.

    A tracer that was killed detaches a moment later, so this is repeated.
    """
    end = time.monotonic() + timeout
    while True:
        now = [one for one in map(same, processes) if one is not None and is_alive(one)]
        held = [one for one in now if one.state in "Tt"]
        if not held:
            return True
        if time.monotonic() > end:
            return False
        for one in held:
            send(one, signal.SIGCONT)
        time.sleep(_POLL)


def are_stopped(processes: List[CriuProcess]) -> bool:
    """Whether every process is stopped or has ended."""
    return all(now is None or now.state in "TZX" for now in map(same, processes))


def await_stopped(processes: List[CriuProcess], timeout: float) -> bool:
    """Whether all are stopped within ``timeout`` seconds: SIGSTOP takes effect a moment later."""
    end = time.monotonic() + timeout
    while not are_stopped(processes):
        if time.monotonic() > end:
            return False
        time.sleep(_POLL)
    return True


def switches(processes: List[CriuProcess], proc: str = "/proc") -> Dict[int, str]:
    """Context switches of each thread: unchanged later if and only if none of them has run."""
    found: Dict[int, str] = {}
    for one in processes:
        for thread in threads(one.pid, proc):
            try:
                with open(os.path.join(proc, str(one.pid), "task", str(thread), "status"), errors="replace") as status:
                    found[thread] = " ".join(re.findall(r"^\w*voluntary_ctxt_switches:\s+(\d+)", status.read(), re.M))
            except OSError:
                found[thread] = ""
    return found


def end_tree(roots: List[int], leader: Optional[CriuProcess], timeout: float) -> bool:
    """Kill the ``roots``, their descendants, and the session of ``leader``; whether all ended in time (seconds).

    Parents are stopped before their children are listed, so that no process is created meanwhile.
    """
    end = time.monotonic() + timeout
    known: Dict[int, CriuProcess] = {}
    while True:
        processes = all_processes()
        found = {one.pid: one for root in roots for one in tree_of(root, processes)}
        found.update((one.pid, one) for one in processes.values() if leader and _in_session(one, leader, processes))
        # Another user's process cannot belong to the program, whatever its session.
        mine = [one for one in found.values() if is_alive(one) and one.pid != os.getpid() and _is_mine(one.pid)]
        new = [one for one in mine if one.pid not in known]
        for one in new:
            send(one, signal.SIGSTOP)
            known[one.pid] = one
        if not new:
            for one in known.values():
                send(one, signal.SIGKILL)
            if not any(is_alive(same(one)) for one in known.values()):
                return True
            if time.monotonic() > end:
                return False
            time.sleep(_POLL)


def end_stopped(processes: List[CriuProcess], timeout: float) -> None:
    """Kill a stopped tree (listed parents first), children first, so that each is reaped by its parent."""
    end = time.monotonic() + timeout
    for one in processes[1:]:
        send(one, signal.SIGKILL)
    while any(is_alive(same(one)) for one in processes[1:]) and time.monotonic() < end:
        time.sleep(_POLL)
    for one in processes[:1]:
        send(one, signal.SIGKILL)


def _in_session(process: CriuProcess, leader: CriuProcess, processes: Dict[int, CriuProcess]) -> bool:
    # A session without its leader keeps its ID; with another leader the ID was reused.
    now = processes.get(leader.pid)
    return process.session == leader.pid and (now is None or now.started == leader.started)


def _is_mine(pid: int) -> bool:
    try:
        return os.stat("/proc/%d" % pid).st_uid == os.getuid()
    except OSError:
        return False
