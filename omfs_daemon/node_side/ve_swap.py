"""The mover for NEC vector engines: VEOS's partial process swapping, on all engines of a job at once.

A swap is an order: VEOS queues it and one thread an engine works it off, so the sub-status is polled. That it says
"swapped out" proves nothing (a full swap area ends a swap in the same way): what counts is what is left on the engine.
Everything that was ordered is in VEOS, so a call that is killed half-way is healed by the next one.
"""

import contextlib
import errno
import os
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, TypeVar

from . import kernel
from .mover import IN, MIXED, NONE, OUT, CannotMove, Moved, Mover, Process
from .ve_command import CommandDriver
from .ve_driver import (
    ACTIVE,
    BAD,
    STOPPED,
    SWAPPED_OUT,
    SWAPPING_IN,
    SWAPPING_OUT,
    VeDriver,
    VeProcess,
    batches,
    refusal,
)
from .ve_library import LibraryDriver
from .ve_options import VeOptions, read_options, swap_area

_T = TypeVar("_T")

_FIRST_PAUSE = 0.002  # seconds; a small process is swapped in a hundredth of a second
_GROWTH = 1.5
_RETRY_IN = 0.1  # seconds between two orders to swap in what VEOS refused
_KILOBYTE = 1024  # VEOS gives free memory in these


class VeSwap(Mover):
    """See Mover. Codes beyond the usual ones: partial_swap, refused, no_swap_area, no_ve_memory, killed_by_veos,
    tool_hung."""

    name = "ve_swap"
    held_name = "ve"

    def __init__(self, options: Mapping[str, Any], driver: Optional[VeDriver] = None) -> None:
        self._options = read_options(options)
        self._driver = driver or _driver(self._options)
        self._is_usable = True  # until a probe says otherwise

    def out(self, processes: Sequence[Process], deadline: float) -> Moved:
        """Swap out on all engines at once; ``slowest`` is Equation 3 of the UJFB paper. A job without a process on an
        engine has nothing to move.

        Bytes are what is in the swap area in the end, freed is no more than the engines' free memory was seen to grow.
        """
        with self._session():
            found = self._find(processes)
            for ve, rows in found.items():
                self._refuse_unreachable(ve, rows)
                self._check_area(ve, rows)
            failed = threading.Event()
            work = {
                ve: _SwapOut(self._options, self._driver, ve, rows, processes, failed) for ve, rows in found.items()
            }
            parts = _on_each(list(found), lambda ve: work[ve].run(deadline))
        return Moved(
            sum(part.bytes for part in parts.values()),
            sum(part.freed for part in parts.values()),
            max([part.slowest for part in parts.values()], default=0.0),
        )

    def bring_in(self, processes: Sequence[Process], deadline: float) -> Moved:
        """Swap in on all engines at once. A failure on one does not keep the others from coming in.

        no_ve_memory: too little is free on an engine; what is out stays out, or comes in as soon as VEOS finds room.
        killed_by_veos: all others are in; the next call does not say it again.
        """
        with self._session():
            found = self._find(processes)
            stop = threading.Event()
            work = {ve: _SwapIn(self._options, self._driver, ve, rows, processes, stop) for ve, rows in found.items()}
            parts = _on_each(list(found), lambda ve: work[ve].run(deadline), stop)
        return Moved(
            sum(part.bytes for part in parts.values()),
            sum(part.freed for part in parts.values()),
            max([part.slowest for part in parts.values()], default=0.0),
        )

    def state(self, processes: Sequence[Process]) -> str:
        """See Mover. A partial swap is MIXED; processes of which none has memory on an engine are OUT."""
        if all(_ended(process) for process in processes):
            return NONE
        with self._session():
            rows = [row for rows in self._find(processes).values() for row in rows]
        left = self._options.tolerance
        if all(row.state != BAD and row.sub == SWAPPED_OUT and row.swappable <= left for row in rows):
            return OUT
        return IN if all(row.state == BAD or row.sub == ACTIVE for row in rows) else MIXED

    def probe(self) -> Dict[str, Any]:
        """Usable if every engine answers. ``ves``: memory, memory_free and swap_free of each, null if unknown."""
        try:
            with self._session():
                free = _on_each(self._options.ves, self._probe_one)
        except CannotMove as error:
            self._is_usable = False
            return {"usable": False, "why": error.why, "message": error.message, "free": 0, "ves": []}
        ves = [free[ve] for ve in self._options.ves]
        areas = [ve["swap_free"] for ve in ves]
        known = None if None in areas else sum(areas)
        return {"usable": True, "why": "", "free": known, "ves": ves}

    def held(self, pids: List[int]) -> int:
        """See Mover: swappable bytes on the engine where they hold most, for all engines swap at the same time, each to
        an area of its own."""
        if not self._is_usable:
            return 0  # a VEOS that hangs need not be waited for once a job
        try:
            with self._session():
                rows = _on_each(self._options.ves, lambda ve: self._driver.processes(ve, pids))
        except (CannotMove, OSError):
            return 0
        return max(sum(row.swappable for row in some if row.state != BAD) for some in rows.values())

    @contextlib.contextmanager
    def _session(self) -> Iterator[None]:
        try:
            self._driver.open(self._options.ves)
            yield
        finally:
            self._driver.close()

    def _find(self, processes: Sequence[Process]) -> Dict[int, List[VeProcess]]:
        # The processes that VEOS knows on each engine (engines without any are left out).
        pids = [process.pid for process in processes if not _ended(process)]
        if not pids:
            return {}
        rows = _on_each(self._options.ves, lambda ve: self._driver.processes(ve, pids))
        there = {ve: [row for row in some if not _gone(row)] for ve, some in rows.items()}
        return {ve: some for ve, some in there.items() if some}

    def _refuse_unreachable(self, ve: int, rows: List[VeProcess]) -> None:
        for row in rows:
            if _unreachable(row):
                raise CannotMove("refused", "VE %d: pid %d: %s" % (ve, row.pid, os.strerror(abs(row.sub))))

    def _check_area(self, ve: int, rows: List[VeProcess]) -> None:
        area, used = swap_area(self._options, ve), self._driver.area_used(ve)
        needed = sum(row.swappable for row in rows)
        if area is not None and used is not None and needed > area - used + self._options.tolerance * len(rows):
            raise CannotMove(
                "no_swap_area",
                "VE %d: %d bytes to swap out, %d of %d free in the swap area" % (ve, needed, max(area - used, 0), area),
            )

    def _probe_one(self, ve: int) -> Dict[str, Any]:
        used, area = self._driver.area_used(ve), swap_area(self._options, ve)
        total, free = self._driver.memory(ve) or (None, None)
        return {
            "ve": ve,
            "memory": total,
            "memory_free": free,
            "swap_free": None if used is None or area is None else max(area - used, 0),
        }


class _Part(NamedTuple):
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
        return _gone(row) or _ended(self._processes[row.pid])

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


class _SwapOut(_Swap):
    what = "swapped out"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ordered: Set[int] = set()

    def run(self, deadline: float) -> _Part:
        try:
            return self._run(deadline)
        except BaseException:
            self._stop.set()  # for the other engines too: what they swapped out will be brought in again
            raise

    def _run(self, deadline: float) -> _Part:
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
            return _Part(swapped, swapped, self._slowest)
        if most_free <= free and not self._stop.is_set():
            text = "VE %d: %d bytes said to be swapped out, but no memory became free" % (self._ve, moved)
            raise CannotMove("not_verified", text)
        grown = most_free - free + _KILOBYTE - 1  # the kilobytes are rounded
        return _Part(swapped, swapped - moved + min(moved, grown), self._slowest)

    def _is_due(self, row: VeProcess) -> bool:
        # Whether the order is to be given now.
        if self._has_gone(row):
            self._rows[row.pid] = row._replace(state=BAD)  # what it had in the swap area is free too
            self._done(row.pid)
            return False
        if _unreachable(row):
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


class _SwapIn(_Swap):
    what = "swapped in"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._out = {row.pid: row.swapped for row in self._rows.values() if row.state != BAD and row.sub != ACTIVE}
        self._killed: List[int] = []
        self._refusals: List[CannotMove] = []
        self._next_order = 0.0

    def run(self, deadline: float) -> _Part:
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
        return _Part(moved, moved, self._slowest)

    def _is_due(self, row: VeProcess) -> bool:
        if self._has_gone(row):
            # A stopped process ends only by SIGKILL, and VEOS sends that when it cannot swap in.
            if row.pid in self._out:
                self._killed.append(row.pid)
            self._done(row.pid)
            return False
        if _unreachable(row):
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


def _driver(options: VeOptions) -> VeDriver:
    if options.driver == "library":
        return LibraryDriver(options.library, options.call)
    return CommandDriver(options.commands, options.patterns, options.call)


def _gone(row: VeProcess) -> bool:
    return row.state == BAD and row.sub == -errno.ESRCH


def _unreachable(row: VeProcess) -> bool:
    # A negative sub-state is an errno, or that of a traced process: -1, which is EPERM as well.
    return row.state == BAD or row.sub < 0


def _ended(process: Process) -> bool:
    return kernel.has_ended(process.fd)


def _on_each(ves: Sequence[int], work: Callable[[int], _T], stop: Optional[threading.Event] = None) -> Dict[int, _T]:
    # The same on several engines at the same time; the first failure (by engine) is raised when all have ended. A
    # signal's exception comes in this thread: it too waits for the others, who are told to stop.
    results: Dict[int, _T] = {}
    failures: Dict[int, BaseException] = {}

    def one(ve: int) -> None:
        try:
            results[ve] = work(ve)
        except BaseException as error:
            failures[ve] = error

    threads = [threading.Thread(target=one, args=(ve,), daemon=True) for ve in ves[1:]]
    interruption: Optional[BaseException] = None
    try:
        for thread in threads:
            thread.start()
        if ves:
            one(ves[0])
        if ves and not isinstance(failures.get(ves[0]), (CannotMove, type(None))):
            raise failures[ves[0]]
        for thread in threads:
            thread.join()
    except BaseException as error:
        interruption = error
        if stop is not None:
            stop.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if interruption is not None:
        raise interruption
    for ve in ves:
        if ve in failures:
            raise failures[ve]
    return results
