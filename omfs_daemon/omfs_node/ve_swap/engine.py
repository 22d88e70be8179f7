"""Swaps of the processes on one vector engine: requested, polled, and verified by the memory that moved."""

import errno
import os
import threading
import time
from typing import Any, List, NamedTuple, Sequence, Set

from omfs_daemon.omfs_node.movers import system_calls as kernel
from omfs_daemon.omfs_node.movers.mover import CannotMove, HeldProcess
from omfs_daemon.omfs_node.ve_swap.ve_driver import (
    ACTIVE,
    BAD,
    STOPPED,
    SWAPPED_OUT,
    SWAPPING_IN,
    SWAPPING_OUT,
    VeDriver,
    VeProcess,
    batches,
    veos_refusal,
)
from omfs_daemon.omfs_node.ve_swap.ve_options import VeOptions

_FIRST_PAUSE = 0.002  # seconds; a small process is swapped in a hundredth of a second
_GROWTH = 1.5
_RETRY_IN = 0.1  # seconds until a refused swap-in is requested again
_KILOBYTE = 1024  # VEOS's unit of free memory


class EngineMoved(NamedTuple):
    """As Moved, for one engine."""

    bytes: int
    freed: int
    slowest: float


class _Swap:
    """A swap on one engine: polls the processes with growing pauses until each is done."""

    what = ""

    def __init__(
        self,
        options: VeOptions,
        driver: VeDriver,
        ve: int,
        rows: List[VeProcess],
        processes: Sequence[HeldProcess],
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
        self._stop = stop  # set when waiting has become pointless

    def _done(self, pid: int) -> None:
        self._open.remove(pid)
        self._slowest = max(self._slowest, time.monotonic() - self._begun)

    def _poll(self) -> List[VeProcess]:
        rows = self._driver.processes(self._ve, self._open)
        self._rows.update((row.pid, row) for row in rows)
        return rows

    def _has_ended(self, row: VeProcess) -> bool:
        return gone(row) or ended(self._processes[row.pid])

    def _wait(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._timeout()
        time.sleep(min(self._pause, left))
        self._pause = min(self._pause * _GROWTH, self._options.poll)

    def _timeout(self) -> CannotMove:
        seconds = time.monotonic() - self._begun
        text = "VE %d: %d processes not %s after %.1f s" % (self._ve, len(self._open), self.what, seconds)
        return CannotMove("timeout", text)

    def _refused(self, row: VeProcess, why: str) -> CannotMove:
        return CannotMove("refused", "VE %d: pid %d not %s: %s" % (self._ve, row.pid, self.what, why))


class SwapOut(_Swap):
    """Swap out until all is out or has failed; a failure stops the other engines as well."""

    what = "swapped out"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._requested: Set[int] = set()

    def run(self, deadline: float) -> EngineMoved:
        try:
            return self._run(deadline)
        except BaseException:
            self._stop.set()  # for the other engines, too: what they swapped out will be swapped in again
            raise

    def _run(self, deadline: float) -> EngineMoved:
        free = most_free = self._free()
        # Read after the free memory, as an earlier call's swap may still be running.
        before = sum(row.swapped for row in self._poll() if row.state != BAD)
        while self._open and not self._stop.is_set():
            due = [row.pid for row in self._poll() if self._is_due(row)]
            for pids in batches(due):
                self._request(pids)
            # The maximum: freed memory may be allocated by another process at once.
            most_free = max(most_free, self._free())
            if self._open and not due:
                self._wait(deadline)
        swapped = sum(row.swapped for row in self._rows.values() if row.state != BAD)
        moved = max(swapped - before, 0)
        if free < 0 or not moved:  # unknown, or nothing left to do
            return EngineMoved(swapped, swapped, self._slowest)
        if most_free <= free and not self._stop.is_set():
            text = "VE %d: VEOS reports %d bytes swapped out, but no memory was freed" % (self._ve, moved)
            raise CannotMove("not_verified", text)
        grown = most_free - free + _KILOBYTE - 1  # kilobytes are rounded
        return EngineMoved(swapped, swapped - moved + min(moved, grown), self._slowest)

    def _is_due(self, row: VeProcess) -> bool:
        # Whether to request the swap now.
        if self._has_ended(row):
            self._rows[row.pid] = row._replace(state=BAD)  # its part of the swap area is free, too
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
            if row.pid in self._requested:
                text = "VE %d: pid %d swapped out in part: %d bytes in the swap area, %d left on the engine"
                raise CannotMove("partial_swap", text % (self._ve, row.pid, row.swapped, row.swappable))
            return True  # left over from an earlier call
        if row.sub != ACTIVE:
            return False
        if row.pid in self._requested:
            raise self._refused(row, "VEOS did not accept the request")
        if row.state == STOPPED:
            return True
        if time.monotonic() - self._begun > self._options.settle:
            raise self._refused(row, "VEOS still sees it running (state %d)" % row.state)
        return False

    def _request(self, pids: List[int]) -> None:
        self._requested.update(pids)
        code = self._driver.swap_out(self._ve, pids)
        # EPERM: the next poll shows which were refused. EIO: the swap file of a mixed area cannot be opened, and the
        # rest of the area is used: the next poll shows whether it was enough.
        if code == -errno.EFAULT:
            raise CannotMove("no_swap_area", "VE %d: VEOS cannot open its swap file" % self._ve)
        if code not in (0, -errno.EPERM, -errno.EIO):
            raise veos_refusal(self._ve, "swap out", code)

    def _free(self) -> int:
        memory = self._driver.memory(self._ve)
        return memory[1] if memory else -1


class SwapIn(_Swap):
    """Swap in until all that can come in is in."""

    what = "swapped in"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._out = {row.pid: row.swapped for row in self._rows.values() if row.state != BAD and row.sub != ACTIVE}
        self._killed: List[int] = []
        self._refusals: List[CannotMove] = []
        self._next_request = 0.0

    def run(self, deadline: float) -> EngineMoved:
        while self._open and not self._stop.is_set():
            due = [row for row in self._poll() if self._is_due(row)]
            if due and time.monotonic() >= self._next_request and self._has_memory(due):
                self._next_request = time.monotonic() + _RETRY_IN
                for pids in batches([row.pid for row in due]):
                    self._request(pids)
            elif self._open:
                self._wait(deadline)
        if self._killed:
            who = ", ".join(map(str, self._killed))
            raise CannotMove("killed_by_veos", "VE %d: ended while being swapped in: pid %s" % (self._ve, who))
        if self._refusals:
            raise self._refusals[0]
        moved = sum(self._out.values())
        return EngineMoved(moved, moved, self._slowest)

    def _is_due(self, row: VeProcess) -> bool:
        if self._has_ended(row):
            # A stopped process ends only by SIGKILL, which VEOS sends when it cannot swap in.
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

    def _has_memory(self, due: List[VeProcess]) -> bool:
        # VEOS would wait by itself; but while we wait, the job is still out and cannot take memory unexpectedly.
        memory = self._driver.memory(self._ve)
        return memory is None or memory[1] + _KILOBYTE > sum(row.swapped for row in due)

    def _request(self, pids: List[int]) -> None:
        code = self._driver.swap_in(self._ve, pids)
        if code not in (0, -errno.EPERM):  # EPERM: what was not queued is due again at the next poll
            raise veos_refusal(self._ve, "swap in", code)

    def _timeout(self) -> CannotMove:
        needed = sum(self._rows[pid].swapped for pid in self._open)
        memory = self._driver.memory(self._ve)
        if memory is not None and memory[1] + _KILOBYTE <= needed:
            text = "VE %d: %d bytes to swap in, %d free on the engine" % (self._ve, needed, memory[1])
            return CannotMove("no_ve_memory", text)
        if any(self._rows[pid].sub in (SWAPPED_OUT, SWAPPING_OUT) for pid in self._open) and self._next_request:
            return CannotMove("refused", "VE %d: VEOS does not accept the request to swap in" % self._ve)
        return super()._timeout()


def gone(row: VeProcess) -> bool:
    """Whether VEOS does not know it."""
    return row.state == BAD and row.sub == -errno.ESRCH


def unreachable(row: VeProcess) -> bool:
    """Whether VEOS refuses it: a negative sub-state is an errno, or -1 (also EPERM) for a traced process."""
    return row.state == BAD or row.sub < 0


def ended(process: HeldProcess) -> bool:
    """Whether the process has ended, even if its pid was reused."""
    return kernel.has_ended(process.fd)
