"""Page-out: moves the memory of stopped processes to swap by process_madvise(MADV_PAGEOUT), and verifies it.

The kernel accepts the advice and reports nothing: with too little swap, at a cgroup's swap limit, for locked pages and
for shared pages it "succeeds" and moves nothing. So free swap is checked before, and what is left in memory after.
Pages shared since a fork are shared pages: a job that shares much of its memory cannot be paged out.
"""

import contextlib
import os
import threading
import time
from array import array
from queue import Empty, Queue
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from omfs_daemon.omfs_node.movers import smaps, system_calls
from omfs_daemon.omfs_node.movers.mover import IN, MIXED, NONE, OUT, CannotMove, HeldProcess, Moved, Mover

_MIB = 1024 * 1024
# A system call cannot be interrupted; this much takes a tenth of a second on a slow disk, so deadlines hold.
_CHUNK = 64 * _MIB
# The last dirty pages of a stack or of the loader always stay in memory.
_SLACK = _MIB
_PASSES = 4
_MAX_THREADS = 8
_STATE_SECONDS = 10.0  # to determine where the memory is
# Source: pagemap.rst of the kernel.
_PAGEMAP_ENTRY = 8
_PAGEMAP_SWAPPED = 1 << 62


class PageoutOptions(NamedTuple):
    """The site's options.

    min_share  part of the memory that must be out, or else the job continues (0.5 to 1)
    margin     bytes of swap to leave free for the rest of the node
    prefault   read the memory back before the job continues, instead of page by page on demand
    threads    number of threads; 0: the number of CPUs, at most 8
    """

    min_share: float = 0.9
    margin: int = 64 * _MIB
    prefault: bool = False
    threads: int = 0


class Pageout(Mover):
    """Moves memory to the node's swap."""

    name = "pageout"
    held_name = "resident"

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = read_pageout_options(options)

    def out(self, processes: Sequence[HeldProcess], deadline: float) -> Moved:
        before = _Usage.by(processes, deadline)
        need = before.resident + self._options.margin
        free = free_swap()[1]
        if not self._is_out(before) and free < need:
            message = "{} of swap free, {} needed plus a margin of {}".format(
                _mib(free), _mib(before.resident), _mib(self._options.margin)
            )
            raise CannotMove("no_swap_space", message)
        slowest = 0.0
        now = before
        for _ in range(_PASSES):
            if self._is_out(now):
                break
            last, slowest_now = now, self._page_out(processes, deadline)
            slowest, now = slowest + slowest_now, _Usage.by(processes, deadline)
            if now.resident >= last.resident:
                break
        if not self._is_out(now):
            raise CannotMove("not_verified", self._not_out(before, now))
        return Moved(max(0, now.swapped - before.swapped), max(0, before.resident - now.resident), slowest)

    def bring_in(self, processes: Sequence[HeldProcess], deadline: float) -> Moved:
        """With ``prefault``, read back as much as memory and time allow; the rest comes on demand."""
        if not self._options.prefault:
            return Moved(0, 0, 0.0)
        begun = time.monotonic()
        try:
            before = _Usage.by(processes, deadline)
            if not before.swapped or available_memory() < before.swapped + self._options.margin:
                return Moved(0, 0, 0.0)
            with contextlib.suppress(CannotMove, OSError):
                self._by_chunks(processes, lambda mapping: mapping.swapped > 0, _prefault, deadline)
            slowest = time.monotonic() - begun
            after = _Usage.by(processes, deadline)
        except CannotMove:  # no time to read so many mappings; the memory comes in nevertheless
            return Moved(0, 0, time.monotonic() - begun)
        return Moved(max(0, before.swapped - after.swapped), max(0, after.resident - before.resident), slowest)

    def state(self, processes: Sequence[HeldProcess]) -> str:
        held = _Usage.by(processes, time.monotonic() + _STATE_SECONDS)
        if not held.processes:
            return NONE
        if self._is_out(held):
            return OUT
        return MIXED if held.swapped > held.resident * (1 - self._options.min_share) else IN

    def probe(self) -> Dict[str, Any]:
        total, free = free_swap()
        why = "not_usable" if system_calls.can_page_out() else "no_swap" if total == 0 else ""
        return {"usable": not why, "why": why, "free": max(0, free - self._options.margin)}

    def held(self, pids: List[int]) -> int:
        total = 0
        for pid in pids:
            try:
                total += smaps.resident_now(pid)
            except OSError:
                continue
        return total

    def _is_out(self, held: "_Usage") -> bool:
        allowed = (held.resident + held.swapped) * (1 - self._options.min_share)
        return held.resident <= allowed + _SLACK * held.processes

    def _not_out(self, before: "_Usage", now: "_Usage") -> str:
        text = "{} of {} stayed in memory".format(_mib(now.resident), _mib(before.resident))
        if now.unmovable:
            text += ", {} of it locked".format(_mib(now.unmovable))
        return text + "; {} of swap free (a swap limit, or memory shared since a fork?)".format(_mib(free_swap()[1]))

    def _page_out(self, processes: Sequence[HeldProcess], deadline: float) -> float:
        return self._by_chunks(processes, lambda mapping: mapping.movable and mapping.resident > 0, _advise, deadline)

    def _by_chunks(
        self,
        processes: Sequence[HeldProcess],
        wanted: Callable[[smaps.Mapping], bool],
        work: "Callable[[HeldProcess, List[system_calls.Range]], None]",
        deadline: float,
    ) -> float:
        """Do ``work`` for all wanted mappings in parallel; returns the seconds of the slowest process."""
        queue: "Queue[Tuple[HeldProcess, List[system_calls.Range]]]" = Queue()
        # Chunks of the processes alternate, so that all advance together.
        plans = []
        for process in processes:
            if time.monotonic() > deadline:
                raise CannotMove("timeout", "timed out while reading the mappings of {}".format(process.pid))
            found = chunks([mapping for mapping in smaps.read_mappings(process.pid) if wanted(mapping)])
            plans.append([(process, chunk) for chunk in found])
        for turn in range(max(map(len, plans), default=0)):
            for plan in plans:
                if turn < len(plan):
                    queue.put(plan[turn])
        return _process_queue(queue, work, self._options.threads or min(_MAX_THREADS, os.cpu_count() or 1), deadline)


def chunks(mappings: Sequence[smaps.Mapping]) -> "List[List[system_calls.Range]]":
    """The mappings in chunks of at most 64 MiB and IOV_MAX ranges, one for each system call."""
    found: List[List[system_calls.Range]] = []
    room = 0
    for mapping in mappings:
        start, left = mapping.start, mapping.length
        while left > 0:
            if room <= 0 or len(found[-1]) >= system_calls.IOV_MAX:
                found.append([])
                room = _CHUNK
            length = min(left, room)
            found[-1].append((start, length))
            start, left, room = start + length, left - length, room - length
    return found


def free_swap() -> Tuple[int, int]:
    """Bytes of swap on this node: total and free.

    A page that was read back keeps its slot in swap until it is written to or swap becomes scarce (SwapCached in
    proc(5)): such slots can be reclaimed, so they count as free.
    """
    fields = _meminfo()
    return fields.get("SwapTotal", 0), fields.get("SwapFree", 0) + fields.get("SwapCached", 0)


def available_memory() -> int:
    """Bytes that can be allocated without swapping."""
    return _meminfo().get("MemAvailable", 0)


def read_pageout_options(options: Mapping[str, Any]) -> PageoutOptions:
    """Read the options of a request; CannotMove("bad_options") names what is wrong."""
    unknown = sorted(set(options) - set(PageoutOptions._fields))
    if unknown:
        raise _bad("unknown {!r}; known: {}".format(unknown[0], ", ".join(PageoutOptions._fields)))
    read = PageoutOptions()._replace(**options)
    if not _is_number(read.min_share) or not 0.5 <= read.min_share <= 1:
        raise _bad("min_share must be a number from 0.5 to 1")
    if type(read.margin) is not int or read.margin < 0:
        raise _bad("margin must be a number of bytes")
    if type(read.threads) is not int or not 0 <= read.threads <= 64:
        raise _bad("threads must be a whole number from 0 to 64")
    if type(read.prefault) is not bool:
        raise _bad("prefault must be true or false")
    return read


class _Usage(NamedTuple):
    """What the running and stopped processes hold, in bytes."""

    processes: int
    resident: int
    swapped: int
    unmovable: int

    @classmethod
    def by(cls, processes: Sequence[HeldProcess], deadline: float) -> "_Usage":
        """Read all mappings, some 10,000 a second: a user decides how many there are."""
        count = resident = swapped = unmovable = 0
        for process in processes:
            if time.monotonic() > deadline:
                raise CannotMove("timeout", "timed out while reading the mappings of {}".format(process.pid))
            mappings = smaps.read_mappings(process.pid)
            if system_calls.has_ended(process.fd):
                continue
            count += 1
            resident += sum(mapping.resident for mapping in mappings)
            swapped += sum(mapping.swapped for mapping in mappings)
            unmovable += sum(mapping.resident for mapping in mappings if not mapping.movable)
        return cls(count, resident, swapped, unmovable)


def _process_queue(
    queue: "Queue[Tuple[HeldProcess, List[system_calls.Range]]]",
    work: "Callable[[HeldProcess, List[system_calls.Range]], None]",
    threads: int,
    deadline: float,
) -> float:
    begun = time.monotonic()
    last = [begun]  # all processes begin together, so the slowest one is the last one
    errors: List[Exception] = []

    def run() -> None:
        while not errors and time.monotonic() < deadline:
            try:
                process, ranges = queue.get_nowait()
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

    workers = [threading.Thread(target=run, daemon=True) for _ in range(min(threads, queue.qsize()))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    if not queue.empty():
        raise CannotMove("timeout", "timed out while moving memory")
    return max(last) - begun


def _advise(process: HeldProcess, ranges: "List[system_calls.Range]") -> None:
    """Page out one chunk, without the ranges that the kernel refuses."""
    left = list(ranges)
    while left:
        try:
            done = system_calls.pageout(process.fd, left)
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


def _prefault(process: HeldProcess, ranges: "List[system_calls.Range]") -> None:
    """Touch only the pages of one chunk that are in swap: in a sparse mapping, others would be allocated."""
    with open("/proc/{}/pagemap".format(process.pid), "rb") as pagemap:
        for start, length in ranges:
            pagemap.seek(start // system_calls.PAGE * _PAGEMAP_ENTRY)
            entries = array("Q", pagemap.read(length // system_calls.PAGE * _PAGEMAP_ENTRY))
            swapped = [index for index, entry in enumerate(entries) if entry & _PAGEMAP_SWAPPED]
            if not system_calls.has_ended(process.fd):
                system_calls.touch(process.pid, [start + index * system_calls.PAGE for index in swapped])


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
