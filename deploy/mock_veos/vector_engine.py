"""A vector engine as VEOS manages it: device memory, a finite swap area, processes, one serial swap thread.

Memory is only accounted for; the processes are real ones of this host, and /proc tells whether they are stopped. The
behavior follows NEC's documentation of partial process swapping (PPS) and VEOS's sources.
"""

import collections
import contextlib
import errno
import os
import signal
import threading
import time
from typing import Deque, Dict, List, NamedTuple, Optional

# Process states and sub-states as libveosinfo gives them.
WAIT, RUNNING, ZOMBIE, STOP, EXIT_DEAD = 0, 1, 2, 3, 4
ACTIVE, SWAPPING_OUT, SWAPPED_OUT, SWAPPING_IN = 1, 2, 3, 4

_STOPPED = "Tt"
_PENDING_SIGKILL = 1 << (signal.SIGKILL - 1)
_ENDING = 0x404  # PF_EXITING, PF_SIGNALED: include/linux/sched.h

_SLICE = 0.005  # seconds of copying between two checks for other requests
_RETRY = 0.01  # seconds between two attempts of a swap-in that lacks device memory
_WATCH = 0.02  # seconds between two checks for processes that run although they are swapped out


class Caller(NamedTuple):
    """The client, from SO_PEERCRED."""

    pid: int
    uid: int
    gid: int


class ProcessState(NamedTuple):
    """A process in /proc: whether every thread is stopped, and whether it is traced or a zombie."""

    stopped: bool
    traced: bool
    zombie: bool


class VeProcess:
    """A process with memory on the engine (bytes)."""

    def __init__(self, caller: Caller, size: int, fixed: int) -> None:
        self.pid = caller.pid
        self.uid = caller.uid
        self.gid = caller.gid
        self.fixed = fixed  # never swapped: shared, registered or file-backed pages
        self.resident = size  # swappable, on the engine now
        self.swapped = 0  # in the swap area
        self.reserved = 0  # on the engine, for what is being swapped in
        self.sub = ACTIVE
        self.faults: Dict[str, int] = {}

    def held(self) -> int:
        """Bytes of the engine's memory."""
        return self.fixed + self.resident + self.reserved


class Engine:
    """One engine; every method may be called from any thread."""

    def __init__(self, number: int, memory: int, area: int, bandwidth: float) -> None:
        self.number = number
        self.memory = memory
        self.area = area
        self.bandwidth = bandwidth  # bytes a second
        self.processes: Dict[int, VeProcess] = {}
        self.violations: List[str] = []
        self.faults: Dict[str, int] = {}  # of the whole engine
        self.changed = threading.Condition()
        self._queue: Deque[VeProcess] = collections.deque()
        for work in (self._swap, self._watch):
            threading.Thread(target=work, daemon=True).start()

    # ---- processes

    def register(self, caller: Caller, size: int, fixed: int) -> int:
        """A new process with ``size`` swappable and ``fixed`` other bytes; 0 or -ENOMEM, -EEXIST, -EINVAL."""
        with self.changed:
            if size < 0 or fixed < 0:
                return -errno.EINVAL
            if caller.pid in self.processes:
                return -errno.EEXIST
            if size + fixed > self.free():
                return -errno.ENOMEM
            self.processes[caller.pid] = VeProcess(caller, size, fixed)
            return 0

    def remove(self, pid: int) -> None:
        """The process has ended: its memory and its part of the swap area are free."""
        with self.changed:
            self.processes.pop(pid, None)
            self.changed.notify_all()

    def compute(self, pid: int) -> bool:
        """A process wants to use its memory: true once all of it is on the engine, false if the process was removed.

        A process that asked just before it was stopped waits here until it is swapped in. One that was continued while
        it is swapped out waits as well, and ``_watch`` detects it.
        """
        with self.changed:
            while True:
                process = self.processes.get(pid)
                if process is None or process.sub == ACTIVE:
                    return process is not None
                self.changed.wait(1)

    # ---- requests of libveosinfo

    def free(self) -> int:
        """Free bytes on the engine."""
        return self.memory - sum(process.held() for process in self.processes.values())

    def used_area(self) -> int:
        """Bytes in the swap area."""
        return sum(process.swapped for process in self.processes.values())

    def swap_out(self, caller: Caller, pids: List[int]) -> int:
        """Queue what may be queued; -EPERM if any pid may not, although the others are queued then."""
        with self.changed:
            if "enotsup" in self.faults:
                return -errno.ENOTSUP
            if "efault" in self.faults:
                return -errno.EFAULT
            accepted = [pid for pid in pids if self._may_go_out(caller, pid)]
            for pid in accepted:
                self.processes[pid].sub = SWAPPING_OUT
                self._queue.append(self.processes[pid])
            self.changed.notify_all()
            if len(accepted) < len(pids):
                return -errno.EPERM
            return -errno.EIO if "eio" in self.faults else 0

    def swap_in(self, caller: Caller, pids: List[int]) -> int:
        """Queue what is out or being swapped out (which ends that); -EPERM if any pid is neither."""
        with self.changed:
            if "enotsup" in self.faults:
                return -errno.ENOTSUP
            accepted = []
            for pid in pids:
                process = self.processes.get(pid)
                if process and allowed(caller, process) and process.sub in (SWAPPING_OUT, SWAPPED_OUT):
                    accepted.append(pid)
                    process.sub = SWAPPING_IN
                    self._queue.append(process)
            self.changed.notify_all()
            return 0 if len(accepted) == len(pids) else -errno.EPERM

    def info(self, caller: Caller, pid: int) -> List[int]:
        """pid, state, sub-state, swapped and swappable bytes; a bad pid has state -1 and sub-state -errno."""
        with self.changed:
            process = self.processes.get(pid)
            seen = process_state(pid) if process else None
            if process is None or seen is None:
                return [pid, -1, -errno.ESRCH, 0, 0]
            if seen.traced or not allowed(caller, process):
                return [pid, -1, -errno.EPERM, 0, 0]
            state = ZOMBIE if seen.zombie else STOP if seen.stopped else RUNNING
            return [pid, state, process.sub, process.swapped, process.resident]

    def not_swappable(self, caller: Caller, pid: int) -> int:
        """Bytes of a process that are never swapped, or -errno."""
        with self.changed:
            process = self.processes.get(pid)
            if process is None:
                return -errno.ESRCH
            return process.fixed if allowed(caller, process) else -errno.EPERM

    # ---- the swap thread

    def _may_go_out(self, caller: Caller, pid: int) -> bool:
        process = self.processes.get(pid)
        if process is None or "eperm" in process.faults or not allowed(caller, process):
            return False
        seen = process_state(pid)
        return bool(seen and seen.stopped and not seen.traced and process.sub in (ACTIVE, SWAPPED_OUT))

    def _swap(self) -> None:
        while True:
            with self.changed:
                while not self._queue or "hang" in self.faults:
                    self.changed.wait(0.1)
                process = self._queue.popleft()
                request = process.sub
            if request == SWAPPING_OUT:
                self._out(process)
            elif request == SWAPPING_IN:
                self._in(process)

    def _out(self, process: VeProcess) -> None:
        begun, done = time.monotonic(), 0
        while True:
            with self.changed:
                if not self._still(process, SWAPPING_OUT):
                    return
                space = min(
                    self.area - self.used_area(),
                    process.faults.get("partial", process.swapped + self.memory) - process.swapped,
                )
                part = min(process.resident, max(space, 0), self._step())
                if part == 0:  # all of it is out, or the area is full: the sub-state is the same
                    process.sub = SWAPPED_OUT
                    self.changed.notify_all()
                    return
            done += part
            _sleep_until(begun + done / self.bandwidth)
            with self.changed:
                process.resident -= part
                process.swapped += part
                if "lie" in process.faults:
                    process.reserved += part

    def _in(self, process: VeProcess) -> None:
        with self.changed:
            if not self._still(process, SWAPPING_IN):
                return
            if "kill" in process.faults:
                _kill(process.pid)
                return
            if "lie" in process.faults:
                process.reserved = 0
            if self.free() < process.swapped:
                self._queue.append(process)  # others may free what it needs
                self.changed.wait(_RETRY)
                return
            process.reserved = process.swapped
        begun, done = time.monotonic(), 0
        while True:
            with self.changed:
                if not self._still(process, SWAPPING_IN):
                    return
                part = min(process.swapped, self._step())
                if part == 0:
                    self._check(process)
                    process.sub = ACTIVE
                    self.changed.notify_all()
                    return
            done += part
            _sleep_until(begun + done / self.bandwidth)
            with self.changed:
                process.swapped -= part
                process.reserved -= part
                process.resident += part

    def _still(self, process: VeProcess, sub: int) -> bool:
        return process.sub == sub and self.processes.get(process.pid) is process

    def _step(self) -> int:
        return max(1, int(self.bandwidth * _SLICE))

    # ---- the watch

    def _watch(self) -> None:
        while True:
            time.sleep(_WATCH)
            with self.changed:
                for process in list(self.processes.values()):
                    if process.sub != ACTIVE:
                        self._check(process)

    def _check(self, process: VeProcess) -> None:
        seen = process_state(process.pid)
        if seen and not seen.stopped and not seen.zombie and "caught" not in process.faults:
            process.faults["caught"] = 1
            self.violations.append("pid %d ran on VE %d in sub-state %d" % (process.pid, self.number, process.sub))
            _kill(process.pid)


def allowed(caller: Caller, process: VeProcess) -> bool:
    """Root, or the same user and group."""
    return caller.uid == 0 or (caller.uid, caller.gid) == (process.uid, process.gid)


def process_state(pid: int) -> Optional[ProcessState]:
    """The state of a process in /proc, None if it does not exist."""
    states = []
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            path = "/proc/%d/task/%s" % (pid, thread)
            state = _stat(path)[0]
            if state not in _STOPPED and _is_dying(path):
                state = "X"
            states.append(state)
        traced = _status("/proc/%d" % pid)["TracerPid"].strip() != "0"
    except (OSError, LookupError):
        return None
    living = [state for state in states if state not in "ZX"]
    return ProcessState(bool(living) and all(state in _STOPPED for state in living), traced, not living)


def _is_dying(path: str) -> bool:
    """Whether a thread has SIGKILL and so runs no more of its program, however long its end takes.

    The signal is pending until the kernel takes it, which then marks the thread.
    """
    pending = int(_status(path)["SigPnd"], 16)
    return bool(pending & _PENDING_SIGKILL or int(_stat(path)[6]) & _ENDING)


def _stat(path: str) -> List[str]:
    """The fields from the state on (proc_pid_stat(5), field 3)."""
    with open(path + "/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _status(path: str) -> Dict[str, str]:
    with open(path + "/status", encoding="ascii", errors="replace") as file:
        return dict(line.rstrip("\n").split(":", 1) for line in file if ":" in line)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _sleep_until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)
