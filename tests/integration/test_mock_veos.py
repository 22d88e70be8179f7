"""VE swapping against mock VEOS: real stopped processes, every documented state and error, both drivers."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from omfs_daemon.omfs_node.movers import system_calls
from omfs_daemon.omfs_node.movers.mover import IN, MIXED, NONE, OUT, CannotMove, HeldProcess, Moved
from omfs_daemon.omfs_node.ve_swap import library_driver as ve_library
from omfs_daemon.omfs_node.ve_swap.ve_mover import VeSwap
from tests.support.mock_veos import MB, Program, Veos, processes, soon
from tests.support.waiting import LIMIT, wait_until

NOBODY = 65534


@pytest.fixture
def start() -> Iterator[Callable[..., Veos]]:
    """Start mock VEOS with given sizes."""
    started: list[Veos] = []

    def make(**sizes: Any) -> Veos:
        started.append(Veos(**sizes))
        return started[-1]

    yield make
    for veos in started:
        veos.stop()


@pytest.fixture
def veos(start: Callable[..., Veos]) -> Veos:
    return start()


def why(attempt: Callable[[], Any]) -> str:
    """The code with which an attempt fails."""
    with pytest.raises(CannotMove) as failure:
        attempt()
    assert "\n" not in failure.value.message
    return failure.value.why


@pytest.mark.parametrize("driver", ["library", "command"])
def test_out_and_in_twice_without_gap_or_repeat(veos: Veos, driver: str) -> None:
    programs = [veos.program(0, "300M"), veos.program(0, "80M", fixed="20M"), veos.program(1, "200M", uid=NOBODY)]
    mover = VeSwap(veos.options() if driver == "library" else veos.command_options())
    job = processes(*programs)
    for _ in range(2):
        for program in programs:
            program.stop()
        assert mover.state(job) == IN
        assert mover.held([program.pid for program in programs]) == 380 * MB, "on the engine where they hold most"
        moved = mover.out(job, soon())
        assert (moved.bytes, moved.freed, mover.state(job)) == (580 * MB, 580 * MB, OUT)
        assert [engine["free"] for engine in veos.show()["engines"]] == [1004 * MB, 1024 * MB]
        again = mover.out(job, soon())
        assert (again.bytes, again.freed) == (580 * MB, 580 * MB)
        assert mover.held([program.pid for program in programs]) == 0
        assert mover.bring_in(job, soon()).bytes == 580 * MB
        assert mover.bring_in(job, soon()).bytes == 0
        assert mover.state(job) == IN
        for program in programs:
            assert program.is_stopped()
            program.continues()
    assert veos.violations() == []


@contextlib.contextmanager
def swapping(veos: Veos, move: Callable[..., Moved], programs: Sequence[Program], sub: str) -> Iterator[Future[Moved]]:
    """A swap in a thread of its own, which lasts at least as long as this context. It is entered when VEOS is at all of
    the programs ("o" out, "i" in)."""
    veos.ask("bandwidth 1M")
    with ThreadPoolExecutor(1) as pool:
        try:
            moving = pool.submit(move, processes(*programs), soon())
            wait_until(lambda: all(veos.process(one.pid)["sub"] == sub for one in programs), f"sub-status {sub}")
            yield moving
        finally:
            veos.ask("bandwidth 200M")


def test_engines_swap_at_the_same_time_and_the_slowest_process_counts(start: Callable[..., Veos]) -> None:
    # Equation 3: the delay is the longest of the processes' swaps, not their sum.
    veos = start(ves=3)
    programs = [veos.program(ve, size).stop() for ve, size in enumerate(("400M", "400M", "200M"))]
    mover = VeSwap(veos.options())
    for move, sub in ((mover.out, "o"), (mover.bring_in, "i")):
        begun = time.monotonic()
        with swapping(veos, move, programs, sub) as moving:
            pass
        moved = moving.result()
        assert moved.bytes == 1000 * MB
        assert 1.9 <= moved.slowest <= time.monotonic() - begun


def test_one_engine_works_its_processes_off_one_by_one(start: Callable[..., Veos]) -> None:
    veos = start(bandwidth="400M")
    job = processes(*(veos.program(0, "200M").stop() for _ in range(3)))
    assert VeSwap(veos.options()).out(job, soon()).slowest >= 1.45


def test_an_urgent_program_gets_the_memory_and_the_job_waits_outside_for_it(veos: Veos) -> None:
    victim = veos.program(0, "700M").stop()
    job = processes(victim)
    assert _exit_code_of_urgent(veos) == 3
    mover = VeSwap(veos.options())
    mover.out(job, soon())
    urgent = veos.program(0, "700M")
    assert why(lambda: mover.bring_in(job, soon(0.5))) == "no_ve_memory"
    assert mover.state(job) == OUT  # nothing is queued that would take memory by surprise
    urgent.kill()
    mover.bring_in(job, soon())
    victim.continues()


def _exit_code_of_urgent(veos: Veos) -> int:
    words = ["/usr/bin/python3", veos.directory / "ve_program.py", "--socket", veos.socket, "--size", "700M"]
    words += ["--out", os.devnull, "--count", "1"]
    return subprocess.run(words, timeout=LIMIT, capture_output=True).returncode


def test_a_swap_in_waits_for_memory_until_it_is_there(veos: Veos, monkeypatch: pytest.MonkeyPatch) -> None:
    job = processes(veos.program(0, "700M").stop())
    mover = VeSwap(veos.options())
    mover.out(job, soon())
    urgent = veos.program(0, "700M")
    seen: list[Any] = []
    memory = mover._driver.memory

    def observed(ve: int) -> Any:
        seen.append(memory(ve))
        return seen[-1]

    monkeypatch.setattr(mover._driver, "memory", observed)
    with ThreadPoolExecutor(1) as pool:
        try:
            moving = pool.submit(mover.bring_in, job, soon())
            wait_until(lambda: len(seen) > 2, "it to find too little memory, and to try again")
            assert not moving.done()
        finally:
            urgent.kill()
        assert moving.result().bytes == 700 * MB
    assert mover.state(job) == IN


def test_a_swap_in_that_waits_in_veos_comes_in_later(veos: Veos) -> None:
    # Another one took the memory between our look and the order: VEOS waits and tries again.
    victim = veos.program(0, "700M").stop()
    job = processes(victim)
    mover = VeSwap(veos.options())
    mover.out(job, soon())
    urgent = veos.program(0, "700M")
    veos.ask(f"in 0 1 {victim.pid} -1")
    assert why(lambda: mover.bring_in(job, soon(0.3))) == "no_ve_memory"
    assert mover.state(job) == MIXED
    urgent.kill()
    mover.bring_in(job, soon())
    victim.continues()


def test_a_swap_area_too_small_is_noticed_before_any_request(start: Callable[..., Veos]) -> None:
    veos = start(area="300M")
    job = processes(veos.program(0, "200M").stop(), veos.program(0, "200M").stop())
    assert why(lambda: VeSwap(veos.options()).out(job, soon())) == "no_swap_area"
    assert veos.show()["orders"] == []


def test_the_area_is_read_from_veos_own_options(start: Callable[..., Veos]) -> None:
    veos = start(area="300M")
    job = processes(veos.program(0, "400M").stop())
    (veos.directory / "veswap.options").write_text("--ve-swap-mem-max=300\n")
    mover = VeSwap(veos.options(area=None, veos_options=str(veos.directory)))
    assert why(lambda: mover.out(job, soon())) == "no_swap_area"
    assert mover.probe()["ves"][0]["swap_free"] == 300 * MB


@pytest.mark.parametrize("cause", ["full", "fault"])
def test_a_partial_swap_is_no_success(start: Callable[..., Veos], cause: str) -> None:
    veos = start(area="300M" if cause == "full" else "1G")
    program = veos.program(0, "400M").stop()
    other = veos.program(1, "100M").stop()
    job = processes(program, other)
    if cause == "fault":
        veos.ask(f"fault partial {program.pid} 300M")
    mover = VeSwap(veos.options(area=None, veos_options=str(veos.directory)))  # an unknown size
    assert why(lambda: mover.out(job, soon())) == "partial_swap"
    shown = veos.process(program.pid)
    assert (shown["sub"], shown["resident"]) == ("s", 100 * MB)  # VEOS reports "swapped out"
    assert mover.state(job) == MIXED
    mover.bring_in(job, soon())
    program.continues()
    other.continues()
    assert veos.violations() == []


def test_one_pid_of_a_batch_is_refused_and_the_others_come_in_again(veos: Veos) -> None:
    programs = [veos.program(0, "50M").stop() for _ in range(3)]
    veos.ask(f"fault eperm {programs[1].pid}")
    job = processes(*programs)
    mover = VeSwap(veos.options())
    assert why(lambda: mover.out(job, soon())) == "refused"
    wait_until(lambda: veos.process(programs[0].pid)["sub"] == "s", "the others, which VEOS queued all the same")
    mover.bring_in(job, soon())
    for program in programs:
        program.continues()


def test_a_process_that_runs_is_refused(veos: Veos) -> None:
    stopped, running = veos.program(0, "50M").stop(), veos.program(0, "50M")
    job = processes(stopped, running)
    mover = VeSwap(veos.options())
    assert why(lambda: mover.out(job, soon())) == "refused"
    mover.bring_in(job, soon())
    stopped.continues()


def test_root_loads_only_what_root_alone_can_write(veos: Veos) -> None:
    veos.library.chmod(0o775)
    (veos.directory / "veswap").chmod(0o757)
    for options in (veos.options(), veos.command_options()):
        assert VeSwap(options).probe()["why"] == "not_usable"


@pytest.mark.parametrize("driver", ["library", "command"])
def test_another_user_may_not(veos: Veos, driver: str) -> None:
    program = veos.program(0, "50M").stop()
    job = processes(program)
    options = veos.options() if driver == "library" else veos.command_options()
    assert _as_nobody(lambda: why(lambda: VeSwap(options).out(job, soon()))) == "refused"
    assert veos.process(program.pid)["sub"] == "a"
    own = veos.program(0, "50M", uid=NOBODY).stop()
    assert _as_nobody(lambda: VeSwap(options).out(processes(own), soon()).bytes) == 50 * MB
    assert _as_nobody(lambda: why(lambda: _control(veos))) == "refused"


def _control(veos: Veos) -> None:
    try:
        veos.ask("fault enotsup 0")
    except AssertionError as error:
        raise CannotMove("refused", str(error).splitlines()[0]) from None


def _as_nobody(work: Callable[[], Any]) -> Any:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def test_swapping_that_is_switched_off(veos: Veos) -> None:
    program = veos.program(0, "50M").stop()
    mover = VeSwap(veos.options())
    veos.ask("fault enotsup 0")
    assert why(lambda: mover.out(processes(program), soon())) == "not_usable"
    probe = mover.probe()
    assert (probe["usable"], probe["why"]) == (False, "not_usable")
    veos.ask("unfault enotsup 0")
    assert mover.probe()["usable"]


def test_a_swap_file_that_cannot_be_opened(veos: Veos) -> None:
    program = veos.program(0, "50M").stop()
    job = processes(program)
    mover = VeSwap(veos.options())
    veos.ask("fault efault 0")
    assert why(lambda: mover.out(job, soon())) == "no_swap_area"
    veos.ask("unfault efault 0")
    veos.ask("fault eio 0")  # the rest of a mixed area is used: what counts is the result
    assert mover.out(job, soon()).freed == 50 * MB


def test_a_process_killed_by_veos_is_reported_once_and_the_others_are_in(veos: Veos) -> None:
    programs = [veos.program(0, "50M").stop(), veos.program(0, "60M").stop(), veos.program(1, "70M").stop()]
    job = processes(*programs)
    mover = VeSwap(veos.options())
    mover.out(job, soon())
    veos.ask(f"fault kill {programs[0].pid}")
    assert why(lambda: mover.bring_in(job, soon())) == "killed_by_veos"
    assert programs[0].wait(LIMIT) == -signal.SIGKILL
    assert [veos.process(program.pid)["sub"] for program in programs[1:]] == ["a", "a"]
    mover.bring_in(job, soon())
    assert mover.state(job) == IN
    programs[1].continues()


def test_an_engine_that_hangs_is_given_up_at_the_deadline(veos: Veos) -> None:
    program = veos.program(0, "50M").stop()
    job = processes(program)
    mover = VeSwap(veos.options())
    veos.ask("fault hang 0")
    assert why(lambda: mover.out(job, soon(0.5))) == "timeout"
    assert why(lambda: mover.bring_in(job, soon(0.5))) == "timeout"
    veos.ask("unfault hang 0")
    mover.bring_in(job, soon())
    program.continues()


@pytest.mark.parametrize(("fault", "code"), [("deaf", "tool_hung"), ("abort", "tool_failed")])
def test_a_library_that_hangs_or_aborts_takes_nobody_with_it(
    veos: Veos, fault: str, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    program = veos.program(0, "50M").stop()
    job = processes(program)
    mover = VeSwap(veos.options(call_seconds=0.5 if fault == "deaf" else LIMIT))
    veos.ask(f"fault {fault}")
    assert why(lambda: mover.out(job, soon())) == code
    assert mover.probe()["why"] == code
    assert mover.held([program.pid]) == 0
    assert _helpers() == []
    veos.ask(f"unfault {fault}")
    assert VeSwap(veos.options()).out(job, soon()).freed == 50 * MB
    assert capfd.readouterr().out == ""


def test_a_command_that_hangs_or_is_missing(veos: Veos) -> None:
    veos.ask("fault deaf")
    assert VeSwap(veos.command_options(call_seconds=0.5)).probe()["why"] == "tool_hung"
    options = veos.command_options()
    options["commands"]["status"][0] = str(veos.directory / "missing")
    assert why(lambda: VeSwap(options).out(processes(veos.program().stop()), soon())) == "not_usable"


def _helpers() -> list[int]:
    # Children of this process that are copies of it: those that call the library.
    with open("/proc/self/cmdline") as file:  # noqa: PTH123
        own = file.read()
    copies = []
    for pid in _pids_of_children(os.getpid()):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as file:  # noqa: PTH123
            if file.read() in (own, ""):  # "": a zombie
                copies.append(pid)
    return copies


def test_memory_that_does_not_become_free_is_not_trusted(veos: Veos) -> None:
    program = veos.program(0, "50M").stop()
    veos.ask(f"fault lie {program.pid}")
    job = processes(program)
    mover = VeSwap(veos.options())
    assert why(lambda: mover.out(job, soon())) == "not_verified"
    mover.bring_in(job, soon())
    program.continues()


@pytest.mark.parametrize("then", ["out", "in"])
def test_the_next_call_completes_one_killed_between_request_and_response(start: Callable[..., Veos], then: str) -> None:
    veos = start(bandwidth="1M")
    programs = [veos.program(0, "200M"), veos.program(1, "100M")]
    child = _start_node(_request(veos, programs, "out"))
    try:
        wait_until(lambda: veos.process(programs[0].pid)["sub"] == "o", "the order to be queued")
        helpers = _pids_of_children(child.pid)
        assert helpers
    finally:
        child.kill()
        child.wait(LIMIT)
        veos.ask("bandwidth 200M")
    wait_until(lambda: not any(_alive(pid) for pid in helpers), "the library's processes to end with it")
    if then == "out":
        answer = _node(_request(veos, programs, "out"))
        assert (answer["ok"], answer["state"], answer["freed"]) == (True, "out", 300 * MB)
    answer = _node(_request(veos, programs, "in") | {"continue": True})
    assert (answer["ok"], answer["state"], answer["stopped"]) == (True, "running", 0)
    for program in programs:
        program.continues()
    assert veos.violations() == []


def test_through_omfs_node(veos: Veos) -> None:
    programs = [veos.program(0, "200M"), veos.program(1, "100M")]
    answer = _node(_request(veos, programs, "out"))
    assert answer["ok"], answer
    assert (answer["state"], answer["stopped"], answer["bytes"], answer["freed"]) == ("out", 2, 300 * MB, 300 * MB)
    assert 0 < answer["slowest"] <= answer["seconds"]
    probe = {"version": 1, "do": "probe", "node": "n1", "timeout": LIMIT, "slurm": _slurm(veos, programs)}
    seen = _node(probe | {"options": {"ve_swap": veos.options()}})
    assert seen["methods"]["ve_swap"]["ves"][0]["swap_free"] == 824 * MB
    assert seen["jobs"]["7"]["ve"] == 0
    veos.ask(f"fault partial {programs[0].pid} 50M")
    assert _node(_request(veos, programs, "in") | {"continue": True})["state"] == "running"
    answer = _node(_request(veos, programs, "out"))
    assert (answer["ok"], answer["why"], answer["state"]) == (False, "partial_swap", "running")
    for program in programs:
        program.continues()
    assert _node(_request(veos, programs, "out") | {"options": {"drivr": 1}})["why"] == "bad_options"


def _request(veos: Veos, programs: list[Program], do: str) -> dict[str, Any]:
    slurm = _slurm(veos, programs)
    named = {"version": 1, "do": do, "method": "ve_swap", "node": "n1", "job": 7, "uid": 0, "timeout": LIMIT}
    return named | {"options": veos.options(), "slurm": slurm}


def _slurm(veos: Veos, programs: list[Program]) -> dict[str, str]:
    # A stand-in that knows one job, 7.
    scontrol = veos.directory / "scontrol"
    rows = ["PID JOBID STEPID LOCALID GLOBALID", *(f"{program.pid} 7 batch 0 0" for program in programs)]
    scontrol.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(rows) + "\nEND\n")
    scontrol.chmod(0o755)
    return {"scontrol": str(scontrol)}


def _start_node(request: dict[str, Any]) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "omfs_daemon.omfs_node"]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.write(json.dumps(request).encode())
    child.stdin.close()
    child.stdin = None
    return child


def _node(request: dict[str, Any]) -> Any:
    output, _ = _start_node(request).communicate(timeout=LIMIT)
    return json.loads(output)


def _pids_of_children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, timeout=LIMIT)
    return [int(word) for word in listed.stdout.split()]


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_swap_out_completes_one_killed_during_the_swap_in_too(start: Callable[..., Veos]) -> None:
    veos = start()
    program = veos.program(0, "100M").stop()
    job = processes(program)
    mover = VeSwap(veos.options())
    mover.out(job, soon())
    veos.ask("bandwidth 1M")
    assert why(lambda: mover.bring_in(job, soon(0.5))) == "timeout"
    veos.ask("bandwidth 2G")
    assert mover.out(job, soon()).freed == 100 * MB
    mover.bring_in(job, soon())
    program.continues()


def test_a_process_that_ends_meanwhile_is_no_failure(start: Callable[..., Veos]) -> None:
    veos = start()
    programs = [veos.program(0, "100M").stop(), veos.program(0, "50M").stop()]
    job = processes(*programs)
    with swapping(veos, VeSwap(veos.options()).out, programs, "o") as moving:
        programs[0].kill()
    assert moving.result().bytes == 50 * MB
    programs[1].kill()
    assert VeSwap(veos.options()).state(job) == NONE
    assert VeSwap(veos.options()).bring_in(job, soon()).bytes == 0
    assert VeSwap(veos.options()).out(job, soon()).bytes == 0


def test_a_process_without_memory_on_an_engine_has_nothing_to_move(veos: Veos) -> None:
    job = [HeldProcess(os.getpid(), system_calls.pidfd_open(os.getpid()))]
    mover = VeSwap(veos.options())
    assert mover.out(job, soon()).bytes == 0
    assert mover.state(job) == OUT
    assert mover.bring_in(job, soon()).bytes == 0


@pytest.mark.parametrize("driver", ["library", "command"])
def test_probe(veos: Veos, driver: str) -> None:
    program = veos.program(1, "100M", fixed="24M").stop()
    mover = VeSwap(veos.options() if driver == "library" else veos.command_options())
    mover.out(processes(program), soon())
    assert mover.probe() == {
        "usable": True,
        "why": "",
        "free": 1948 * MB,
        "ves": [
            {"ve": 0, "memory": 1024 * MB, "memory_free": 1024 * MB, "swap_free": 1024 * MB},
            {"ve": 1, "memory": 1024 * MB, "memory_free": 1000 * MB, "swap_free": 924 * MB},
        ],
    }


def test_probe_without_veos(veos: Veos) -> None:
    options = veos.options()
    veos.socket.unlink()
    assert VeSwap(options).probe()["why"] == "not_usable"
    assert VeSwap(options | {"library": str(veos.directory / "missing.so")}).probe()["why"] == "not_usable"
    assert VeSwap(options).held([os.getpid()]) == 0
    veos.socket.touch()


def test_continued_too_early_is_caught(veos: Veos) -> None:
    program: Program = veos.program(0, "50M").stop()
    VeSwap(veos.options()).out(processes(program), soon())
    os.kill(program.pid, signal.SIGCONT)
    assert program.wait(LIMIT) == -signal.SIGKILL
    assert len(veos.violations()) == 1


def test_the_service_is_asked_from_the_command_line(veos: Veos) -> None:
    def ask(request: str) -> subprocess.CompletedProcess[str]:
        words = [veos.directory / "veos.py", "--socket", veos.socket, "--ask", request]
        return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)

    assert ask("fault hang 1").returncode == 0
    assert [engine["ve"] for engine in json.loads(ask("show").stdout)["engines"]] == [0, 1]
    wrong = ask("fault kill 1")
    assert (wrong.returncode, wrong.stderr) == (1, "veos: fault kill 1: No such process\n")


def test_the_library_as_documented(veos: Veos) -> None:
    library = ctypes.CDLL(str(veos.library))
    os.environ["MOCK_VEOS_SOCKET"] = str(veos.socket)  # goes before the place beside the library
    try:
        program = veos.program(0, "50M", fixed="10M").stop()
        pids = ve_library._Pids()
        info = ve_library._SwapInfo()
        pids.pid[0], pids.pid[1], pids.pid[2], pids.process_num = program.pid, os.getpid(), -1, 2
        assert library.ve_swap_info(0, ctypes.byref(pids), ctypes.byref(info)) == 0
        first, second = info.ve_swap[0], info.ve_swap[1]
        assert (info.len, first.proc_state, first.proc_substate, first.swappable_sz) == (2, 3, 1, 50 * MB)
        assert (second.pid, second.proc_state, second.proc_substate) == (os.getpid(), -1, -errno.ESRCH)
        assert library.ve_swap_out(0, ctypes.byref(pids)) == -errno.EPERM  # and yet the first one is queued
        wait_until(lambda: veos.process(program.pid)["sub"] == "s", "the good pid of the batch")
        pids.pid[2] = 0
        assert library.ve_swap_in(0, ctypes.byref(pids)) == -errno.ECANCELED
        for place in range(65):
            pids.pid[place] = program.pid
        pids.pid[65], pids.process_num = -1, 65
        assert library.ve_swap_in(0, ctypes.byref(pids)) == -errno.ECANCELED
        shown = subprocess.run(
            [veos.directory / "veswap", "-N", "0", "-n", str(program.pid)],
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert shown.stdout == f"{program.pid} {10 * MB}\n"
    finally:
        del os.environ["MOCK_VEOS_SOCKET"]
