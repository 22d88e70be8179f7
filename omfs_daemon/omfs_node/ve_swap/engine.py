"""The swaps of one vector engine's processes: ordered, polled, and believed only when memory was seen to move."""

import errno
import os
import threading
import time
from typing import Any, List, NamedTuple, Sequence, Set

from omfs_daemon.omfs_node.movers import system_calls as kernel
from omfs_daemon.omfs_node.movers.mover import CannotMove
from omfs_daemon.omfs_node.movers.mover import Process
from omfs_daemon.omfs_node.ve_swap.ve_driver import ACTIVE
from omfs_daemon.omfs_node.ve_swap.ve_driver import BAD
from omfs_daemon.omfs_node.ve_swap.ve_driver import STOPPED
from omfs_daemon.omfs_node.ve_swap.ve_driver import SWAPPED_OUT
from omfs_daemon.omfs_node.ve_swap.ve_driver import SWAPPING_IN
from omfs_daemon.omfs_node.ve_swap.ve_driver import SWAPPING_OUT
from omfs_daemon.omfs_node.ve_swap.ve_driver import VeDriver
from omfs_daemon.omfs_node.ve_swap.ve_driver import VeProcess
from omfs_daemon.omfs_node.ve_swap.ve_driver import batches
from omfs_daemon.omfs_node.ve_swap.ve_driver import refusal
from omfs_daemon.omfs_node.ve_swap.ve_options import VeOptions

_FIRST_PAUSE = 0.002  # seconds; a small process is swapped in a hundredth of a second
_GROWTH = 1.5
_RETRY_IN = 0.1  # seconds between two orders to swap in what VEOS refused
_KILOBYTE = 1024  # VEOS gives free memory in these


class Part(NamedTuple):
    """What was done on one engine, as Moved."""

    bytes: int
    freed: int
    slowest: float


class _Swap:
    """One engine's part: polls the processes with growing pauses until each is done."""

    what = ""

    def __init__(
        self,
        options: VeOptions,
        driver: VeDriver,
        ve: int,
        rows: List[VeProcess],
        processes: Sequence[Process],
        stop: threading.Event,
    ) -> None:
        self._options = options
        self._driver = driver
        self._ve = ve
        self._rows = {row.pid: row for row in rows}  # as last seen
        self._processes = {process.pid: process for process in processes}
        self._open = [row.pid for row in rows]  # not done yet
        self._begun = time.monotonic()
        self._slowest = 0.0
        self._pause = _FIRST_PAUSE
        self._stop = stop  # there is nothing to wait for any more

    def _done(self, pid: int) -> None:
        self._open.remove(pid)
        self._slowest = max(self._slowest, time.monotonic() - self._begun)

    def _look(self) -> List[VeProcess]:
        rows = self._driver.processes(self._ve, self._open)
        self._rows.update((row.pid, row) for row in rows)
        return rows

    def _has_gone(self, row: VeProcess) -> bool:
        return gone(row) or ended(self._processes[row.pid])

    def _wait(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._too_late()
        time.sleep(min(self._pause, left))
        self._pause = min(self._pause * _GROWTH, self._options.poll)

    def _too_late(self) -> CannotMove:
        seconds = time.monotonic() - self._begun
        text = "VE %d: %d processes not %s after %.1f s" % (self._ve, len(self._open), self.what, seconds)
        return CannotMove("timeout", text)

    def _refused(self, row: VeProcess, why: str) -> CannotMove:
        return CannotMove("refused", "VE %d: pid %d not %s: %s" % (self._ve, row.pid, self.what, why))


class SwapOut(_Swap):
    """Until all is out, or it is known that it will not be; the others' engines are then told to stop as well."""

    what = "swapped out"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ordered: Set[int] = set()

    def run(self, deadline: float) -> Part:
        try:
            return self._run(deadline)
        except BaseException:
            self._stop.set()  # for the other engines too: what they swapped out will be brought in again
            raise

    def _run(self, deadline: float) -> Part:
        free = most_free = self._free()
        # Looked at after the free memory, for an earlier call's swap may be going on.
        before = sum(row.swapped for row in self._look() if row.state != BAD)
        while self._open and not self._stop.is_set():
            due = [row.pid for row in self._look() if self._is_due(row)]
            for pids in batches(due):
                self._order(pids)
            # The most that was ever free: what was freed may be taken again by another's process at once.
            most_free = max(most_free, self._free())
            if self._open and not due:
                self._wait(deadline)
        swapped = sum(row.swapped for row in self._rows.values() if row.state != BAD)
        moved = max(swapped - before, 0)
        if free < 0 or not moved:  # unknown, or nothing to do any more
            return Part(swapped, swapped, self._slowest)
        if most_free <= free and not self._stop.is_set():
            text = "VE %d: %d bytes said to be swapped out, but no memory became free" % (self._ve, moved)
            raise CannotMove("not_verified", text)
        grown = most_free - free + _KILOBYTE - 1  # the kilobytes are rounded
        return Part(swapped, swapped - moved + min(moved, grown), self._slowest)

    def _is_due(self, row: VeProcess) -> bool:
        # Whether the order is to be given now.
        if self._has_gone(row):
            self._rows[row.pid] = row._replace(state=BAD)  # what it had in the swap area is free too
            self._done(row.pid)
            return False
        if unreachable(row):
            raise self._refused(row, os.strerror(abs(row.sub)))
        if row.sub in (SWAPPING_OUT, SWAPPING_IN):
            return False
        if row.sub == SWAPPED_OUT:
            if row.swappable <= self._options.tolerance:
                self._done(row.pid)
                return False
            if row.pid in self._ordered:
                text = "VE %d: pid %d swapped out in part: %d bytes in the swap area, %d left on the engine"
                raise CannotMove("partial_swap", text % (self._ve, row.pid, row.swapped, row.swappable))
            return True  # an earlier call's remainder
        if row.sub != ACTIVE:
            return False
        if row.pid in self._ordered:
            raise self._refused(row, "VEOS did not take the order")
        if row.state == STOPPED:
            return True
        if time.monotonic() - self._begun > self._options.settle:
            raise self._refused(row, "VEOS sees it run (state %d)" % row.state)
        return False

    def _order(self, pids: List[int]) -> None:
        self._ordered.update(pids)
        code = self._driver.swap_out(self._ve, pids)
        # EPERM: which of them were refused is seen at the next look. EIO: the swap file of a mixed area cannot be
        # opened, the others' part of the area is used: whether it was enough is seen then.
        if code == -errno.EFAULT:
            raise CannotMove("no_swap_area", "VE %d: VEOS cannot open its swap file" % self._ve)
        if code not in (0, -errno.EPERM, -errno.EIO):
            raise refusal(self._ve, "swap out", code)

    def _free(self) -> int:
        memory = self._driver.memory(self._ve)
        return memory[1] if memory else -1


class SwapIn(_Swap):
    """Until all that can come in is in."""

    what = "swapped in"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._out = {row.pid: row.swapped for row in self._rows.values() if row.state != BAD and row.sub != ACTIVE}
        self._killed: List[int] = []
        self._refusals: List[CannotMove] = []
        self._next_order = 0.0

    def run(self, deadline: float) -> Part:
        while self._open and not self._stop.is_set():
            due = [row for row in self._look() if self._is_due(row)]
            if due and time.monotonic() >= self._next_order and self._has_room(due):
                self._next_order = time.monotonic() + _RETRY_IN
                for pids in batches([row.pid for row in due]):
                    self._order(pids)
            elif self._open:
                self._wait(deadline)
        if self._killed:
            who = ", ".join(map(str, self._killed))
            raise CannotMove("killed_by_veos", "VE %d: ended while being swapped in: pid %s" % (self._ve, who))
        if self._refusals:
            raise self._refusals[0]
        moved = sum(self._out.values())
        return Part(moved, moved, self._slowest)

    def _is_due(self, row: VeProcess) -> bool:
        if self._has_gone(row):
            # A stopped process ends only by SIGKILL, and VEOS sends that when it cannot swap in.
            if row.pid in self._out:
                self._killed.append(row.pid)
            self._done(row.pid)
            return False
        if unreachable(row):
            self._refusals.append(self._refused(row, os.strerror(abs(row.sub))))
            self._done(row.pid)
            return False
        if row.sub == ACTIVE:
            self._done(row.pid)
            return False
        self._out[row.pid] = max(row.swapped, self._out.get(row.pid, 0))
        return row.sub in (SWAPPED_OUT, SWAPPING_OUT)

    def _has_room(self, due: List[VeProcess]) -> bool:
        # VEOS would wait by itself; but a job that waits here is still out, and takes nobody's memory by surprise.
        memory = self._driver.memory(self._ve)
        return memory is None or memory[1] + _KILOBYTE > sum(row.swapped for row in due)

    def _order(self, pids: List[int]) -> None:
        code = self._driver.swap_in(self._ve, pids)
        if code not in (0, -errno.EPERM):  # EPERM: what was not queued is due again at the next look
            raise refusal(self._ve, "swap in", code)

    def _too_late(self) -> CannotMove:
        needed = sum(self._rows[pid].swapped for pid in self._open)
        memory = self._driver.memory(self._ve)
        if memory is not None and memory[1] + _KILOBYTE <= needed:
            text = "VE %d: %d bytes to swap in, %d free on the engine" % (self._ve, needed, memory[1])
            return CannotMove("no_ve_memory", text)
        if any(self._rows[pid].sub in (SWAPPED_OUT, SWAPPING_OUT) for pid in self._open) and self._next_order:
            return CannotMove("refused", "VE %d: VEOS does not take the order to swap in" % self._ve)
        return super()._too_late()


def gone(row: VeProcess) -> bool:
    """VEOS does not know it."""
    return row.state == BAD and row.sub == -errno.ESRCH


def unreachable(row: VeProcess) -> bool:
    """A negative sub-state is an errno, or that of a traced process: -1, which is EPERM as well."""
    return row.state == BAD or row.sub < 0


def ended(process: Process) -> bool:
    """Whoever has its pid now is another."""
    return kernel.has_ended(process.fd)
