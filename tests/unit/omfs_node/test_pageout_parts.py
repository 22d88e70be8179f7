"""Parts of page-out: smaps, chunks, options; and real memory without swap."""

from __future__ import annotations

import mmap
import os
import time

import pytest

from omfs_daemon.omfs_node.movers import pageout, smaps, system_calls
from omfs_daemon.omfs_node.movers.mover import IN, NONE, CannotMove, HeldProcess
from omfs_daemon.omfs_node.movers.smaps import Mapping
from tests.support.waiting import LIMIT

KB = 1024
MIB = 1024 * KB


def entry(header: str, flags: str = "rd wr mr mw me ac", **kib: int) -> str:
    return f"{header}\n" + "".join(f"{name}: {size:8} kB\n" for name, size in kib.items()) + f"VmFlags: {flags}\n"


def parse(*entries: str) -> list[Mapping]:
    return smaps.parse_smaps([line.encode() + b"\n" for line in "".join(entries).splitlines()])


def test_private_memory_and_what_of_it_is_in_swap() -> None:
    found = parse(
        entry("00400000-00500000 rw-p 00000000 00:00 0 ", Rss=800, Pss=800, Anonymous=800, Swap=224, SwapPss=224)
    )
    assert found == [Mapping(0x400000, 0x100000, 800 * KB, 224 * KB, True)]


def test_each_process_has_its_part_of_what_they_share() -> None:
    (found,) = parse(entry("400000-500000 rw-p 0 00:00 0", Rss=800, Pss=400, Anonymous=800, Swap=100, SwapPss=50))
    assert (found.resident, found.swapped) == (400 * KB, 50 * KB)


def test_a_file_needs_no_swap_but_shared_memory_does() -> None:
    file = entry("400000-500000 rw-s 0 fe:00 99 /home/a/data", Rss=800, Pss=800)
    shared = entry("600000-700000 rw-s 0 00:01 99 /dev/shm/x (deleted)", Rss=800, Pss=800, Swap=8)
    assert [(m.start, m.resident, m.swapped) for m in parse(file, shared)] == [(0x600000, 800 * KB, 8 * KB)]


@pytest.mark.parametrize("flags", ["rd wr lo", "rd wr ht", "io pf"])
def test_locked_memory_cannot_be_moved(flags: str) -> None:
    (found,) = parse(entry("400000-500000 rw-p 0 00:00 0", flags, Rss=8, Pss=8, Anonymous=8))
    assert not found.movable


def test_huge_pages_count_as_memory_that_stays() -> None:
    (found,) = parse(entry("400000-600000 rw-p 0 00:0f 9 /anon_hugepage", "rd wr ht", Rss=0, Private_Hugetlb=2048))
    assert (found.resident, found.movable) == (2 * MIB, False)


def test_a_files_name_forges_nothing() -> None:
    name = "/data/x 500000-600000 rw-p 0 00:00 0 Anonymous: 99 kB VmFlags: lo"
    (found,) = parse(entry(f"400000-500000 rw-p 0 fe:00 9 {name}", Rss=8, Pss=8, Anonymous=8))
    assert found == Mapping(0x400000, 0x100000, 8 * KB, 0, True)


def test_chunks_cover_all_once_and_stay_small() -> None:
    mappings = [Mapping(i << 40, (i % 5 + 1) * 50 * MIB, 1, 0, True) for i in range(1, 9)]
    mappings += [Mapping((100 << 40) + i * 8 * KB, 4 * KB, 1, 0, True) for i in range(3000)]
    found = pageout.chunks(mappings)
    assert all(sum(length for _, length in chunk) <= 64 * MIB and len(chunk) <= system_calls.IOV_MAX for chunk in found)
    merged: list[list[int]] = []
    for start, length in (part for chunk in found for part in chunk):
        if merged and merged[-1][0] + merged[-1][1] == start:
            merged[-1][1] += length
        else:
            merged.append([start, length])
    assert merged == [[m.start, m.length] for m in mappings]


@pytest.mark.parametrize(
    "options",
    [
        {"speed": 1},
        {"min_share": 0.2},
        {"min_share": "1"},
        {"min_share": True},
        {"margin": -1},
        {"margin": 1.5},
        {"threads": 1000},
        {"prefault": 1},
    ],
)
def test_odd_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(CannotMove) as caught:
        pageout.Pageout(options)
    assert caught.value.why == "bad_options"


@pytest.fixture
def ourselves() -> HeldProcess:
    descriptor = system_calls.pidfd_open(os.getpid())
    return HeldProcess(os.getpid(), descriptor)


def test_without_enough_swap_nothing_is_touched(ourselves: HeldProcess) -> None:
    mover = pageout.Pageout({"margin": 1 << 60})
    with mmap.mmap(-1, 50 * MIB) as area:
        area.write(os.urandom(50 * MIB))
        with pytest.raises(CannotMove) as caught:
            mover.out([ourselves], time.monotonic() + LIMIT)
        assert caught.value.why == "no_swap_space"
        assert mover.state([ourselves]) == IN
        assert mover.held([os.getpid(), 2**22]) > 50 * MIB


def test_the_places_of_pages_that_came_back_count_as_free(monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo = {"SwapTotal": 1500 * MIB, "SwapFree": 500 * MIB, "SwapCached": 900 * MIB}
    monkeypatch.setattr(pageout, "_meminfo", lambda: meminfo)
    assert pageout.free_swap() == (1500 * MIB, 1400 * MIB)
    assert pageout.Pageout({"margin": 100 * MIB}).probe()["free"] == 1300 * MIB


def test_a_full_swap_is_reported_from_what_stayed_in_memory(
    ourselves: HeldProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel accepts the advice, reports success, and moves nothing."""
    monkeypatch.setattr(pageout, "free_swap", lambda: (1 << 50, 1 << 50))
    monkeypatch.setattr(system_calls, "pageout", lambda _fd, ranges: sum(length for _, length in ranges))
    with mmap.mmap(-1, 50 * MIB) as area:
        area.write(os.urandom(50 * MIB))
        with pytest.raises(CannotMove, match="stayed in memory") as caught:
            pageout.Pageout({}).out([ourselves], time.monotonic() + LIMIT)
    assert caught.value.why == "not_verified"


def test_a_range_that_the_kernel_refuses_does_not_keep_the_rest_in(
    ourselves: HeldProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, int]] = []

    def advise(_descriptor: int, ranges: list[tuple[int, int]]) -> int:
        if ranges[0][0] == 200:
            raise OSError(22, "Invalid argument")
        taken.append(ranges[0])
        return ranges[0][1] // 2 if ranges[0][1] > 10 else ranges[0][1]

    monkeypatch.setattr(system_calls, "pageout", advise)
    pageout._advise(ourselves, [(100, 10), (200, 10), (300, 20)])
    assert taken == [(100, 10), (300, 20), (310, 10)]


def test_of_ended_processes_nothing_is_left() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    process = HeldProcess(pid, system_calls.pidfd_open(pid))
    os.waitpid(pid, 0)
    mover = pageout.Pageout({"prefault": True})
    assert mover.state([process]) == NONE
    assert mover.out([process], time.monotonic() + LIMIT).bytes == 0
    assert mover.bring_in([process], time.monotonic() + LIMIT).bytes == 0
    assert mover.held([pid]) == 0
