"""VE swapping against a driver that plays VEOS by script: what VEOS does rarely, or not when one wants it."""

from __future__ import annotations

import errno
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from omfs_daemon.omfs_node.movers import system_calls
from omfs_daemon.omfs_node.movers.mover import IN, MIXED, OUT, CannotMove, HeldProcess
from omfs_daemon.omfs_node.ve_swap import library_driver as ve_library
from omfs_daemon.omfs_node.ve_swap.command_driver import CommandDriver
from omfs_daemon.omfs_node.ve_swap.ve_driver import (
    ACTIVE,
    BAD,
    STOPPED,
    SWAPPED_OUT,
    SWAPPING_IN,
    SWAPPING_OUT,
    VeDriver,
    VeProcess,
)
from omfs_daemon.omfs_node.ve_swap.ve_mover import VeSwap
from omfs_daemon.omfs_node.ve_swap.ve_options import read_ve_options
from tests.support.waiting import LIMIT

RUNNING = 1


class Played(VeDriver):
    """Processes with ``size`` bytes; an order is done after ``looks`` looks. Tests change the attributes."""

    def __init__(self, pids: Sequence[int], size: int = 100, looks: int = 1) -> None:
        self.rows = {pid: VeProcess(pid, STOPPED, ACTIVE, 0, size) for pid in pids}
        self.looks = looks
        self.left: dict[int, int] = {}
        self.codes: list[int] = []
        self.refuse: set[int] = set()
        self.orders: list[tuple[str, list[int]]] = []
        self.total: int | None = 10_000_000
        self.at_poll: Callable[[], None] = lambda: None
        self.is_open = False

    def open(self, ves: Sequence[int]) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False

    def processes(self, ve: int, pids: Sequence[int]) -> list[VeProcess]:
        assert self.is_open
        self.at_poll()
        for pid in pids:
            row = self.rows.get(pid)
            if row and row.sub in (SWAPPING_OUT, SWAPPING_IN):
                self.left[pid] = self.left.get(pid, self.looks) - 1
                if self.left[pid] <= 0:
                    del self.left[pid]
                    whole = row.swapped + row.swappable
                    done = (SWAPPED_OUT, whole, 0) if row.sub == SWAPPING_OUT else (ACTIVE, 0, whole)
                    self.rows[pid] = row._replace(sub=done[0], swapped=done[1], swappable=done[2])
        return [self.rows.get(pid) or VeProcess(pid, BAD, -errno.ESRCH, 0, 0) for pid in pids]

    def swap_out(self, ve: int, pids: Sequence[int]) -> int:
        return self._request("out", SWAPPING_OUT, pids)

    def swap_in(self, ve: int, pids: Sequence[int]) -> int:
        return self._request("in", SWAPPING_IN, pids)

    def _request(self, what: str, sub: int, pids: Sequence[int]) -> int:
        self.orders.append((what, list(pids)))
        code = self.codes.pop(0) if self.codes else 0
        if code not in (0, -errno.EPERM, -errno.EIO):
            return code
        for pid in pids:
            if pid in self.rows and pid not in self.refuse:
                self.rows[pid] = self.rows[pid]._replace(sub=sub)
        return -errno.EPERM if self.refuse & set(pids) else code

    def memory(self, ve: int) -> tuple[int, int] | None:
        if self.total is None:
            return None
        return self.total, self.total - sum(row.swappable for row in self.rows.values())

    def area_used(self, ve: int) -> int | None:
        return sum(row.swapped for row in self.rows.values())


@pytest.fixture
def sleepers() -> Iterator[Callable[[int], list[HeldProcess]]]:
    """Real processes that do nothing, with their pidfds."""
    started: list[subprocess.Popen[bytes]] = []

    def start(number: int) -> list[HeldProcess]:
        new = [subprocess.Popen(["sleep", "3600"]) for _ in range(number)]
        started.extend(new)
        return [HeldProcess(process.pid, system_calls.pidfd_open(process.pid)) for process in new]

    yield start
    for process in started:
        process.kill()
        process.wait(LIMIT)


def mover(driver: VeDriver, **options: Any) -> VeSwap:
    return VeSwap({"poll_seconds": 0.01, "settle_seconds": 0.1} | options, driver)


def soon(seconds: float = LIMIT) -> float:
    return time.monotonic() + seconds


def why(attempt: Callable[[], Any]) -> str:
    with pytest.raises(CannotMove) as failure:
        attempt()
    return failure.value.why


def test_batches_are_what_veos_takes(sleepers: Callable[[int], list[HeldProcess]]) -> None:
    job = sleepers(70)
    driver = Played([process.pid for process in job])
    assert mover(driver).out(job, soon()).bytes == 7000
    assert [len(pids) for _, pids in driver.orders] == [64, 6]
    mover(driver).bring_in(job, soon())
    assert [(what, len(pids)) for what, pids in driver.orders[2:]] == [("in", 64), ("in", 6)]
    assert not driver.is_open


def test_a_process_that_veos_sees_stopped_a_little_later(sleepers: Callable[[int], list[HeldProcess]]) -> None:
    job = sleepers(1)
    driver = Played([job[0].pid])
    driver.rows[job[0].pid] = driver.rows[job[0].pid]._replace(state=RUNNING)
    polls: list[int] = []

    def stops() -> None:
        polls.append(1)
        if len(polls) > 3:
            driver.rows[job[0].pid] = driver.rows[job[0].pid]._replace(state=STOPPED)

    driver.at_poll = stops
    assert mover(driver, settle_seconds=60).out(job, soon()).bytes == 100


def test_a_process_that_never_stops_is_refused_without_an_request(sleepers: Callable[[int], list[HeldProcess]]) -> None:
    job = sleepers(1)
    driver = Played([job[0].pid])
    driver.rows[job[0].pid] = driver.rows[job[0].pid]._replace(state=RUNNING)
    assert why(lambda: mover(driver).out(job, soon())) == "refused"
    assert driver.orders == []


def test_eperm_because_a_process_has_just_ended_is_no_refusal(sleepers: Callable[[int], list[HeldProcess]]) -> None:
    job = sleepers(2)
    driver = Played([process.pid for process in job])
    driver.codes = [-errno.EPERM]
    driver.refuse = {job[1].pid}

    def ends() -> None:
        if driver.orders:
            driver.rows.pop(job[1].pid, None)

    driver.at_poll = ends
    assert mover(driver).out(job, soon()).bytes == 100


@pytest.mark.parametrize("sub", [-1, -errno.EPERM])
def test_a_traced_process_is_refused_before_any_request(sleepers: Callable[[int], list[HeldProcess]], sub: int) -> None:
    job = sleepers(2)
    driver = Played([process.pid for process in job])
    driver.rows[job[1].pid] = VeProcess(job[1].pid, STOPPED if sub == -1 else BAD, sub, 0, 100)
    assert why(lambda: mover(driver).out(job, soon())) == "refused"
    assert driver.orders == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [(-errno.ENOTSUP, "not_usable"), (-errno.EFAULT, "no_swap_area"), (-errno.ECANCELED, "tool_failed")],
)
def test_what_a_refused_request_means(sleepers: Callable[[int], list[HeldProcess]], code: int, expected: str) -> None:
    job = sleepers(1)
    driver = Played([job[0].pid])
    driver.codes = [code]
    assert why(lambda: mover(driver).out(job, soon())) == expected


def test_without_a_word_on_memory_the_swapped_size_is_the_proof(sleepers: Callable[[int], list[HeldProcess]]) -> None:
    job = sleepers(1)
    driver = Played([job[0].pid])
    driver.total = None
    assert mover(driver).out(job, soon()).freed == 100
    assert mover(driver).bring_in(job, soon()).bytes == 100


def test_freed_is_no_more_than_the_engine_s_memory_grew(sleepers: Callable[[int], list[HeldProcess]]) -> None:
    job = sleepers(1)
    driver = Played([job[0].pid], size=1_000_000)

    def another_takes_some() -> None:
        if driver.orders:
            driver.rows[1] = VeProcess(1, RUNNING, ACTIVE, 0, 400_000)

    driver.at_poll = another_takes_some
    moved = mover(driver).out(job, soon())
    assert moved.bytes == 1_000_000
    assert 600_000 <= moved.freed < 602_000


def test_what_was_left_of_an_earlier_swap_is_swapped_too(sleepers: Callable[[int], list[HeldProcess]]) -> None:
    job = sleepers(1)
    driver = Played([job[0].pid])
    driver.rows[job[0].pid] = VeProcess(job[0].pid, STOPPED, SWAPPED_OUT, 70, 30)
    assert mover(driver).state(job) == MIXED
    assert mover(driver, tolerance=30).state(job) == OUT
    assert mover(driver).out(job, soon()).bytes == 100
    assert mover(driver).state(job) == OUT


def test_a_swap_in_that_is_refused_is_tried_again(sleepers: Callable[[int], list[HeldProcess]]) -> None:
    job = sleepers(2)
    driver = Played([process.pid for process in job])
    mover(driver).out(job, soon())
    driver.refuse = {job[0].pid}
    threading.Timer(0.25, driver.refuse.clear).start()
    assert mover(driver).bring_in(job, soon()).bytes == 200
    assert mover(driver).state(job) == IN


def test_one_that_cannot_come_in_does_not_keep_the_others_out(sleepers: Callable[[int], list[HeldProcess]]) -> None:
    job = sleepers(2)
    driver = Played([process.pid for process in job])
    mover(driver).out(job, soon())
    driver.rows[job[0].pid] = VeProcess(job[0].pid, BAD, -errno.EPERM, 0, 0)
    assert why(lambda: mover(driver).bring_in(job, soon())) == "refused"
    assert driver.rows[job[1].pid].sub == ACTIVE


def test_a_signal_during_the_swap_waits_for_the_other_engines(sleepers: Callable[[int], list[HeldProcess]]) -> None:
    class Ended(Exception):
        pass

    def on_alarm(_number: int, _frame: object) -> None:
        raise Ended

    job = sleepers(1)
    driver = Played([job[0].pid], looks=1_000_000)
    before = signal.signal(signal.SIGALRM, on_alarm)
    threads = threading.active_count()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Ended):
            mover(driver, ves=4).out(job, soon(30))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert threading.active_count() == threads
    assert not driver.is_open


def test_structures_as_in_the_public_header() -> None:
    # pid_t pid[257] and int; int, then per process 3 int and 2 unsigned long long; int and unsigned long long.
    sizes = [ve_library.ctypes.sizeof(kind) for kind in (ve_library._Pids, ve_library._SwapInfo, ve_library._NodeInfo)]
    assert sizes == [258 * 4, 8 + 256 * 32, 16]


STATUS = {"out": ["/bin/false", "{ve}", "{pids}"], "in": ["/bin/false", "{ve}", "{pids}"]}


def command(*words: str, **patterns: str) -> CommandDriver:
    options = read_ve_options({"driver": "command", "commands": STATUS | {"status": list(words)}, "patterns": patterns})
    return CommandDriver(options.commands, options.patterns, 5)


def test_the_command_s_output_as_configured() -> None:
    driver = command(
        *("/usr/bin/printf", "VE{ve} %s: S=%s out=5 left=6\\n", "{pids}", "s"),
        status=r"VE1 (?P<pid>\d+): S=(?P<sub>\w) out=(?P<swapped>\d+) left=(?P<swappable>\d+)",
    )
    assert driver.processes(1, [41]) == [VeProcess(41, STOPPED, SWAPPED_OUT, 5, 6)]
    assert driver.swap_out(1, [41]) == -errno.EPERM


def test_a_command_that_talks_nonsense() -> None:
    assert why(lambda: command("/bin/echo", "hello {ve} {pids}").processes(0, [1])) == "tool_failed"
    unknown = command("/bin/echo", "{pids} T x{ve} 0 0").processes(0, [7])
    assert unknown == [VeProcess(7, BAD, -errno.EPERM, 0, 0)]  # there, but not to be touched
    assert command("/bin/true", "{ve}{pids}").processes(0, [7]) == [VeProcess(7, BAD, -errno.ESRCH, 0, 0)]
    assert why(lambda: command("/bin/false", "{ve}{pids}").processes(0, [7])) == "not_usable"


def test_pids_are_words_and_never_a_shell_s_business() -> None:
    driver = command(
        *("/usr/bin/printf", "%s T a {ve} 0\\n", "{pids}"),
    )
    assert [row.pid for row in driver.processes(0, [5, 6])] == [5, 6]
