"""The mover for NEC vector engines: VEOS's partial process swapping, on all engines of a job at once.

VEOS queues a swap, and one thread for each engine carries it out, so the sub-status is polled. The sub-status "swapped
out" proves nothing (a full swap area ends a swap in the same way): what counts is what is left on the engine. Requests
stay in VEOS, so the next call completes one that was killed halfway.
"""

import contextlib
import os
import threading
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, TypeVar

from omfs_daemon.omfs_node.movers.mover import IN, MIXED, NONE, OUT, CannotMove, HeldProcess, Moved, Mover
from omfs_daemon.omfs_node.ve_swap.command_driver import CommandDriver
from omfs_daemon.omfs_node.ve_swap.engine import SwapIn, SwapOut, ended, gone, unreachable
from omfs_daemon.omfs_node.ve_swap.library_driver import LibraryDriver
from omfs_daemon.omfs_node.ve_swap.ve_driver import ACTIVE, BAD, SWAPPED_OUT, VeDriver, VeProcess
from omfs_daemon.omfs_node.ve_swap.ve_options import VeOptions, read_ve_options, swap_area

_T = TypeVar("_T")


class VeSwap(Mover):
    """See Mover. Further codes: partial_swap, refused, no_swap_area, no_ve_memory, killed_by_veos, tool_hung."""

    name = "ve_swap"
    held_name = "ve"

    def __init__(self, options: Mapping[str, Any], driver: Optional[VeDriver] = None) -> None:
        self._options = read_ve_options(options)
        self._driver = driver or _driver(self._options)
        self._is_usable = True  # until a probe fails

    def out(self, processes: Sequence[HeldProcess], deadline: float) -> Moved:
        """Swap out on all engines at once; ``slowest`` is Equation 3 of the UJFB paper.

        A job without a process on an engine has nothing to move. Bytes are those in the swap area at the end; freed is
        at most the observed growth of the engines' free memory.
        """
        with self._session():
            found = self._find(processes)
            for ve, rows in found.items():
                self._refuse_unreachable(ve, rows)
                self._check_area(ve, rows)
            failed = threading.Event()
            work = {ve: SwapOut(self._options, self._driver, ve, rows, processes, failed) for ve, rows in found.items()}
            parts = _on_each(list(found), lambda ve: work[ve].run(deadline), failed)
        return Moved(
            sum(part.bytes for part in parts.values()),
            sum(part.freed for part in parts.values()),
            max([part.slowest for part in parts.values()], default=0.0),
        )

    def bring_in(self, processes: Sequence[HeldProcess], deadline: float) -> Moved:
        """Swap in on all engines at once. A failure on one does not affect the others.

        no_ve_memory: an engine has too little free memory; what is out stays out, or comes in when VEOS has space.
        killed_by_veos: all others are in; the next call does not report it again.
        """
        with self._session():
            found = self._find(processes)
            stop = threading.Event()
            work = {ve: SwapIn(self._options, self._driver, ve, rows, processes, stop) for ve, rows in found.items()}
            parts = _on_each(list(found), lambda ve: work[ve].run(deadline), stop)
        return Moved(
            sum(part.bytes for part in parts.values()),
            sum(part.freed for part in parts.values()),
            max([part.slowest for part in parts.values()], default=0.0),
        )

    def state(self, processes: Sequence[HeldProcess]) -> str:
        """See Mover. A partial swap is MIXED; if no process has memory on an engine, the state is OUT."""
        if all(ended(process) for process in processes):
            return NONE
        with self._session():
            rows = [row for rows in self._find(processes).values() for row in rows]
        left = self._options.tolerance
        if all(row.state != BAD and row.sub == SWAPPED_OUT and row.swappable <= left for row in rows):
            return OUT
        return IN if all(row.state == BAD or row.sub == ACTIVE for row in rows) else MIXED

    def probe(self) -> Dict[str, Any]:
        """Usable if every engine responds. ``ves``: memory, memory_free and swap_free of each, null if unknown."""
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
        """See Mover: swappable bytes on the engine that has most, as engines swap in parallel, each to its own area."""
        if not self._is_usable:
            return 0  # do not wait for a hanging VEOS once for each job
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

    def _find(self, processes: Sequence[HeldProcess]) -> Dict[int, List[VeProcess]]:
        # The processes that VEOS has on each engine that has any.
        pids = [process.pid for process in processes if not ended(process)]
        if not pids:
            return {}
        rows = _on_each(self._options.ves, lambda ve: self._driver.processes(ve, pids))
        there = {ve: [row for row in some if not gone(row)] for ve, some in rows.items()}
        return {ve: some for ve, some in there.items() if some}

    def _refuse_unreachable(self, ve: int, rows: List[VeProcess]) -> None:
        for row in rows:
            if unreachable(row):
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


def _driver(options: VeOptions) -> VeDriver:
    if options.driver == "library":
        return LibraryDriver(options.library, options.call)
    return CommandDriver(options.commands, options.patterns, options.call)


def _on_each(ves: Sequence[int], work: Callable[[int], _T], stop: Optional[threading.Event] = None) -> Dict[int, _T]:
    # The same on several engines in parallel; the first failure (by engine) is raised when all have ended. A signal's
    # exception is raised in this thread, which then tells the others to stop and waits for them.
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
