"""Page-out: the memory of stopped processes goes to swap by process_madvise(MADV_PAGEOUT), and that is proved.

The kernel takes the advice and tells nothing: with too little swap, under a cgroup's swap limit, for locked pages and
for pages that processes share it "succeeds" and moves nothing. So free swap is looked at before, and what is left in
memory after. Pages shared since a fork are such: a job that shares much of its memory cannot be paged out.
"""

import contextlib
import os
import threading
import time
from array import array
from queue import Empty, Queue
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from omfs_daemon.omfs_node.movers import system_calls as kernel
from omfs_daemon.omfs_node.movers import smaps
from omfs_daemon.omfs_node.movers.mover import IN
from omfs_daemon.omfs_node.movers.mover import MIXED
from omfs_daemon.omfs_node.movers.mover import NONE
from omfs_daemon.omfs_node.movers.mover import OUT
from omfs_daemon.omfs_node.movers.mover import CannotMove
from omfs_daemon.omfs_node.movers.mover import Moved
from omfs_daemon.omfs_node.movers.mover import Mover
from omfs_daemon.omfs_node.movers.mover import Process

_MIB = 1024 * 1024
# One system call cannot be interrupted: this much takes a tenth of a second on a slow disk, and deadlines hold.
_CHUNK = 64 * _MIB
# The last dirty pages of a stack or of the loader stay in memory whatever is tried.
_SLACK = _MIB
_PASSES = 4
_MAX_THREADS = 8
_LOOK = 10.0  # seconds to tell where the memory is
# Source: pagemap.rst of the kernel.
_PAGEMAP_ENTRY = 8
_PAGEMAP_SWAPPED = 1 << 62


class Options(NamedTuple):
    """The site's settings.

    min_share  part of the memory that must be out, or the job runs on (0.5 to 1)
    margin     bytes of swap to leave free for the rest of the node
    prefault   read the memory back before the job is continued, instead of page by page as it is needed
    threads    how many work at once; 0: as many as there are CPUs, at most 8
    """

    min_share: float = 0.9
    margin: int = 64 * _MIB
    prefault: bool = False
    threads: int = 0


class Pageout(Mover):
    """The mover of that name."""

    name = "pageout"
    held_name = "resident"

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = read_options(options)

    def out(self, processes: Sequence[Process], deadline: float) -> Moved:
        before = _Held.by(processes, deadline)
        need = before.resident + self._options.margin
        free = free_swap()[1]
        if not self._is_out(before) and free < need:
            message = "{} of swap free, needed {} and {} as margin".format(
                _mib(free), _mib(before.resident), _mib(self._options.margin)
            )
            raise CannotMove("no_swap_space", message)
        slowest = 0.0
        now = before
        for _ in range(_PASSES):
            if self._is_out(now):
                break
            last, slowest_now = now, self._page_out(processes, deadline)
            slowest, now = slowest + slowest_now, _Held.by(processes, deadline)
            if now.resident >= last.resident:
                break
        if not self._is_out(now):
            raise CannotMove("not_verified", self._left(before, now))
        return Moved(max(0, now.swapped - before.swapped), max(0, before.resident - now.resident), slowest)

    def bring_in(self, processes: Sequence[Process], deadline: float) -> Moved:
        """With ``prefault`` reads back as much as memory and time allow; the rest comes when it is needed."""
        if not self._options.prefault:
            return Moved(0, 0, 0.0)
        begun = time.monotonic()
        try:
            before = _Held.by(processes, deadline)
            if not before.swapped or available_memory() < before.swapped + self._options.margin:
                return Moved(0, 0, 0.0)
            with contextlib.suppress(CannotMove, OSError):
                self._in_chunks(processes, lambda mapping: mapping.swapped > 0, _prefault, deadline)
            slowest = time.monotonic() - begun
            after = _Held.by(processes, deadline)
        except CannotMove:  # no time to look at so many mappings: it is brought in all the same
            return Moved(0, 0, time.monotonic() - begun)
        return Moved(max(0, before.swapped - after.swapped), max(0, after.resident - before.resident), slowest)

    def state(self, processes: Sequence[Process]) -> str:
        held = _Held.by(processes, time.monotonic() + _LOOK)
        if not held.processes:
            return NONE
        if self._is_out(held):
            return OUT
        return MIXED if held.swapped > held.resident * (1 - self._options.min_share) else IN

    def probe(self) -> Dict[str, Any]:
        total, free = free_swap()
        why = "not_usable" if kernel.can_page_out() else "no_swap" if total == 0 else ""
        return {"usable": not why, "why": why, "free": max(0, free - self._options.margin)}

    def held(self, pids: List[int]) -> int:
        total = 0
        for pid in pids:
            try:
                total += smaps.resident(pid)
            except OSError:
                continue
        return total

    def _is_out(self, held: "_Held") -> bool:
        allowed = (held.resident + held.swapped) * (1 - self._options.min_share)
        return held.resident <= allowed + _SLACK * held.processes

    def _left(self, before: "_Held", now: "_Held") -> str:
        text = "{} of {} stayed in memory".format(_mib(now.resident), _mib(before.resident))
        if now.unmovable:
            text += ", {} of it locked".format(_mib(now.unmovable))
        return text + "; swap free {} (a swap limit, or memory shared since a fork?)".format(_mib(free_swap()[1]))

    def _page_out(self, processes: Sequence[Process], deadline: float) -> float:
        return self._in_chunks(processes, lambda mapping: mapping.movable and mapping.resident > 0, _advise, deadline)

    def _in_chunks(
        self,
        processes: Sequence[Process],
        wanted: Callable[[smaps.Mapping], bool],
        work: "Callable[[Process, List[kernel.Range]], None]",
        deadline: float,
    ) -> float:
        """Do ``work`` for all wanted mappings, several chunks at once; returns the seconds of the slowest process."""
        todo: "Queue[Tuple[Process, List[kernel.Range]]]" = Queue()
        # A round of each process in turn, so that all advance together.
        plans = []
        for process in processes:
            if time.monotonic() > deadline:
                raise CannotMove("timeout", "the time ran out while the mappings of {} were read".format(process.pid))
            found = chunks([mapping for mapping in smaps.read(process.pid) if wanted(mapping)])
            plans.append([(process, chunk) for chunk in found])
        for turn in range(max(map(len, plans), default=0)):
            for plan in plans:
                if turn < len(plan):
                    todo.put(plan[turn])
        return _work_off(todo, work, self._options.threads or min(_MAX_THREADS, os.cpu_count() or 1), deadline)


def chunks(mappings: Sequence[smaps.Mapping]) -> "List[List[kernel.Range]]":
    """The mappings cut so that one system call's share is at most 64 MiB and IOV_MAX ranges."""
    found: List[List[kernel.Range]] = []
    room = 0
    for mapping in mappings:
        start, left = mapping.start, mapping.length
        while left > 0:
            if room <= 0 or len(found[-1]) >= kernel.IOV_MAX:
                found.append([])
                room = _CHUNK
            length = min(left, room)
            found[-1].append((start, length))
            start, left, room = start + length, left - length, room - length
    return found


def free_swap() -> Tuple[int, int]:
    """Bytes of swap on this node: all, and what can be filled.

    A page that was brought back keeps its place in swap until it is written to or swap becomes scarce (SwapCached in
    proc(5)): such places are had again, so they count as free.
    """
    fields = _meminfo()
    return fields.get("SwapTotal", 0), fields.get("SwapFree", 0) + fields.get("SwapCached", 0)


def available_memory() -> int:
    """Bytes that can be had without swapping."""
    return _meminfo().get("MemAvailable", 0)


def read_options(options: Mapping[str, Any]) -> Options:
    """The options of a request; CannotMove("bad_options") names what is wrong."""
    unknown = sorted(set(options) - set(Options._fields))
    if unknown:
        raise _bad("unknown {!r}; known: {}".format(unknown[0], ", ".join(Options._fields)))
    read = Options()._replace(**options)
    if not _is_number(read.min_share) or not 0.5 <= read.min_share <= 1:
        raise _bad("min_share must be a number from 0.5 to 1")
    if type(read.margin) is not int or read.margin < 0:
        raise _bad("margin must be a number of bytes")
    if type(read.threads) is not int or not 0 <= read.threads <= 64:
        raise _bad("threads must be a whole number from 0 to 64")
    if type(read.prefault) is not bool:
        raise _bad("prefault must be true or false")
    return read


class _Held(NamedTuple):
    """What the living processes hold, in bytes."""

    processes: int
    resident: int
    swapped: int
    unmovable: int

    @classmethod
    def by(cls, processes: Sequence[Process], deadline: float) -> "_Held":
        """Reading the mappings takes as long as a user likes to make it: some 10,000 a second, of each process."""
        count = resident = swapped = unmovable = 0
        for process in processes:
            if time.monotonic() > deadline:
                raise CannotMove("timeout", "the time ran out while the mappings of {} were read".format(process.pid))
            mappings = smaps.read(process.pid)
            if kernel.has_ended(process.fd):
                continue
            count += 1
            resident += sum(mapping.resident for mapping in mappings)
            swapped += sum(mapping.swapped for mapping in mappings)
            unmovable += sum(mapping.resident for mapping in mappings if not mapping.movable)
        return cls(count, resident, swapped, unmovable)


def _work_off(
    todo: "Queue[Tuple[Process, List[kernel.Range]]]",
    work: "Callable[[Process, List[kernel.Range]], None]",
    threads: int,
    deadline: float,
) -> float:
    begun = time.monotonic()
    last = [begun]  # the slowest process is the one that is done last, as all begin together
    errors: List[Exception] = []

    def run() -> None:
        while not errors and time.monotonic() < deadline:
            try:
                process, ranges = todo.get_nowait()
            except Empty:
                return
            try:
                work(process, ranges)
            except ProcessLookupError:
                continue
            except Exception as error:
                errors.append(error)
                return
            last.append(time.monotonic())

    workers = [threading.Thread(target=run, daemon=True) for _ in range(min(threads, todo.qsize()))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    if not todo.empty():
        raise CannotMove("timeout", "the time ran out while memory was moved")
    return max(last) - begun


def _advise(process: Process, ranges: "List[kernel.Range]") -> None:
    """Page out one chunk. The kernel stops at a range that it cannot take: that one is left out, the rest goes on."""
    left = list(ranges)
    while left:
        try:
            done = kernel.pageout(process.fd, left)
        except PermissionError as error:
            raise CannotMove("not_permitted", "process_madvise: {}".format(error.strerror)) from None
        except ProcessLookupError:
            raise
        except OSError:
            left.pop(0)
            continue
        if done <= 0:
            left.pop(0)
            continue
        while left and done >= left[0][1]:
            done -= left.pop(0)[1]
        if left and done:
            left[0] = (left[0][0] + done, left[0][1] - done)


def _prefault(process: Process, ranges: "List[kernel.Range]") -> None:
    """Touch the pages of one chunk that are in swap, and only those: others of a sparse mapping would come to be."""
    with open("/proc/{}/pagemap".format(process.pid), "rb") as pagemap:
        for start, length in ranges:
            pagemap.seek(start // kernel.PAGE * _PAGEMAP_ENTRY)
            entries = array("Q", pagemap.read(length // kernel.PAGE * _PAGEMAP_ENTRY))
            pages = [start + index * kernel.PAGE for index, entry in enumerate(entries) if entry & _PAGEMAP_SWAPPED]
            if not kernel.has_ended(process.fd):
                kernel.touch(process.pid, pages)


def _meminfo() -> Dict[str, int]:
    with open("/proc/meminfo", "rb") as stream:
        fields = [line.split() for line in stream]
    return {words[0][:-1].decode("ascii"): int(words[1]) * 1024 for words in fields if len(words) > 1}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _bad(message: str) -> CannotMove:
    return CannotMove("bad_options", "pageout: {}".format(message))


def _mib(size: int) -> str:
    return "{:.0f} MiB".format(size / _MIB)
