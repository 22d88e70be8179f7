"""Stopping and restarting under DMTCP: the stand-in of two releases, and the real one when it is on the PATH."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from omfs_daemon.omfs_run.drivers.dmtcp import checkpoint
from omfs_daemon.omfs_run.drivers.dmtcp.dmtcp_driver import Dmtcp
from omfs_daemon.omfs_run.drivers.dmtcp.program import DmtcpProgram
from omfs_daemon.omfs_run.drivers.dmtcp.recorded_path import RecordedPath
from omfs_daemon.omfs_run.drivers.driver import CannotStart, CannotStop, Ended
from tests.support.dmtcp_bench import (
    PYTHON,
    Bench,
    counted_further,
    finish,
    is_gapless,
    lines,
    numbers,
    send_to_coordinator,
    until,
)
from tests.support.dmtcp_stand_in import PROGRAMS
from tests.support.waiting import LIMIT

# --- what works


def test_counting_continues_without_gap_or_repeat_over_two_checkpoints_and_keeps_its_code(
    bench: Bench, place: Path
) -> None:
    out = place / "out"
    program = bench.running("count", out, 0, 0.02, 5)
    for _ in range(2):
        counted_further(out, 3)
        generation, image = bench.stop(program)
        assert program.wait(0) == 0
        program = bench.restart(generation, image)
        counted_further(out, 1)
    finish(out)
    assert program.wait(LIMIT) == 5
    assert is_gapless(out)
    # It was restarted in its own directory, not in that of the images.
    assert {line.split(" ", 1)[1] for line in lines(out)} == {str(place)}


def test_an_image_is_the_content_of_its_directory_and_nothing_else(bench: Bench, place: Path) -> None:
    program = bench.running("count", place / "out", 0, 0.02)
    generation, image = bench.stop(program)
    assert image.tool == bench.driver.version()
    assert sum(name.endswith(".dmtcp") for name in image.files) == 1
    on_disk = [path for path in generation.rglob("*") if not path.is_dir()]
    assert sorted(str(path.relative_to(generation)) for path in on_disk) == image.files
    assert all(stat.S_ISREG(path.lstat().st_mode) for path in on_disk)
    assert image.size == sum(path.stat().st_size for path in on_disk)
    assert bench.left() == []


def test_a_second_checkpoint_writes_into_its_own_directory(bench: Bench, place: Path) -> None:
    program = bench.running("count", place / "out", 0, 0.02)
    first, image = bench.stop(program)
    before = {name: (first / name).stat().st_mtime_ns for name in image.files}
    second, _ = bench.stop(bench.restart(first, image))
    assert {name: (first / name).stat().st_mtime_ns for name in image.files} == before
    assert list(second.glob("dmtcp_restart_script_*.sh"))
    assert not list(place.glob("dmtcp_restart_script*"))


def test_forked_children_are_restarted_with_their_parent(bench: Bench, place: Path) -> None:
    program = bench.running("children", place / "out", 0, 0.05)
    until(lambda: len(numbers(place / "out.0")) > 2 and len(numbers(place / "out.1")) > 2)
    generation, image = bench.stop(program)
    assert sum(name.endswith(".dmtcp") for name in image.files) == 3
    seen = len(numbers(place / "out.0"))
    program = bench.restart(generation, image)
    until(lambda: len(numbers(place / "out.0")) > seen)
    finish(place / "out")
    assert program.wait(LIMIT) == 5
    assert is_gapless(place / "out.0") and is_gapless(place / "out.1")


def test_a_file_held_open_for_appending_has_no_gap_and_no_repeat(bench: Bench, place: Path) -> None:
    program = bench.running("append", place / "out", 0, 0.05)
    until(lambda: len(numbers(place / "out")) > 2)
    generation, image = bench.stop(program)
    seen = len(numbers(place / "out"))
    program = bench.restart(generation, image)
    until(lambda: len(numbers(place / "out")) > seen)
    finish(place / "out")
    assert program.wait(LIMIT) == 0
    assert is_gapless(place / "out")


def test_ranks_of_mpirun_are_restarted_and_ran_without_slurms_variables(
    benches: Callable[..., Bench], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("OMFS_MPI_TMPDIR", str(place))
    bench = benches("4.2.0")
    mpirun = bench.bin.parent / "programs" / "mpirun"
    program = bench.command(mpirun, "-np", 2, PYTHON, PROGRAMS / "rank.py", place / "out", 0, 0.05)
    until(lambda: len(numbers(place / "out.0")) > 2 and len(numbers(place / "out.1")) > 2)
    environment = lines(place / "out.0.environment")
    assert "HWLOC_COMPONENTS=-linuxio" in environment
    assert "OMPI_MCA_btl=self,tcp" in environment
    assert not [line for line in environment if line.startswith("SLURM_")]
    generation, image = bench.stop(program)
    assert program.wait(0) is not None
    shutil.rmtree(place / f"omfs-mpi-{os.geteuid()}-none")  # the job is restarted on another node
    seen = len(numbers(place / "out.0"))
    program = bench.restart(generation, image)
    until(lambda: len(numbers(place / "out.0")) > seen)
    finish(place / "out")
    assert program.wait(LIMIT) == 0
    assert is_gapless(place / "out.0") and is_gapless(place / "out.1")
    assert not list(place.glob("omfs-mpi-*"))


def test_signals_go_to_the_program_and_dmtcps_own_does_not(
    bench: Bench, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = bench.running("count", place / "out", 0, 0.02)
    until(lambda: len(numbers(place / "out")) > 2)
    program.signal(signal.SIGUSR2)
    assert "SIGUSR2" in capsys.readouterr().err
    assert program.wait(0.3) is None
    program.signal(signal.SIGTERM)
    assert program.wait(LIMIT) == 7


def test_signals_reach_a_restarted_program(bench: Bench, place: Path) -> None:
    program = bench.running("count", place / "out", 0, 0.02)
    counted_further(place / "out", 1)  # its handler is installed
    program = bench.restart(*bench.stop(program))
    program.signal(signal.SIGTERM)
    assert program.wait(LIMIT) == 7


def test_kill_leaves_nothing(bench: Bench, place: Path) -> None:
    program = bench.running("children", place / "out", 0, 0.02)
    program.kill()
    assert program.wait(0) is not None
    assert bench.left() == []
    program.kill()


def test_a_program_that_has_ended_by_itself_keeps_its_code(bench: Bench, place: Path) -> None:
    program = bench.program("count", place / "out", 1, 0.01, 5)
    assert program.wait(LIMIT) == 5
    with pytest.raises(Ended) as ended:
        bench.stop(program)
    assert (ended.value.code, ended.value.alive) == (5, False)


def test_each_start_has_private_files_of_its_own(bench: Bench, place: Path) -> None:
    scratch = bench.new("scratch")
    command = [PYTHON, str(PROGRAMS / "count.py"), str(place / "out"), "10000", "0.02"]
    programs = [bench.watched(bench.driver.start(command, str(scratch))) for _ in range(2)]
    for program in programs:
        until(program.ready)
        assert stat.S_IMODE(Path(program.scratch.port_file).stat().st_mode) == 0o600
    ports = {Path(program.scratch.port_file).read_text() for program in programs}
    assert len(ports) == 2
    programs[0].kill()
    assert programs[1].wait(0) is None and programs[1].ready()


# --- ends that are not the program's own


def lost(program: DmtcpProgram) -> str:
    """The reason code of an end that is not the program's own."""
    with pytest.raises(CannotStop) as fault:
        program.wait(LIMIT)
    assert not isinstance(fault.value, Ended)
    assert not fault.value.alive
    return fault.value.why


@pytest.mark.parametrize("option", ["-k", "-q", "-kc"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_program_killed_by_another_user_has_not_ended_by_itself(
    bench: Bench, place: Path, option: str, restarted: bool
) -> None:
    program = bench.running("children", place / "out", 0, 0.02)
    if restarted:
        program = bench.restart(*bench.stop(program))
    send_to_coordinator(bench, program, option)
    assert lost(program) == ("tool_failed" if option == "-kc" else "killed")
    program.kill()
    assert bench.left() == []


@pytest.mark.parametrize("restarted", [False, True])
def test_an_end_with_0_is_the_program_s_own_and_leaves_no_coordinator(
    bench: Bench, place: Path, restarted: bool
) -> None:
    program = bench.running("append", place / "out", 0, 0.05)
    if restarted:
        program = bench.restart(*bench.stop(program))
    finish(place / "out")
    assert program.wait(LIMIT) == 0
    assert program.wait(0) == 0
    assert bench.left() == []


def test_a_program_is_launched_and_restarted_without_address_randomization(bench: Bench, place: Path) -> None:
    program = bench.running("count", place / "out", 0, 0.02)
    for _ in range(2):
        assert int(Path(f"/proc/{program.pid}/personality").read_text(), 16) & 0x0040000
        program = bench.restart(*bench.stop(program))


def test_the_path_of_copied_files_exists_while_they_are_restored_and_not_later(bench: Bench, place: Path) -> None:
    program = bench.running("count", place / "out", 0, 0.02)
    recorded = Path(program.scratch.link)
    generation, image = bench.stop(program)
    program = bench.restart(generation, image)
    assert program.ready()
    assert not recorded.parent.parent.exists()


def test_a_path_of_copied_files_that_another_could_replace_is_not_made(
    bench: Bench, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generation, _ = bench.stop(bench.running("count", place / "out", 0, 0.02))
    for scratch in place.glob("scratch *"):
        shutil.rmtree(scratch)
        scratch.mkdir()
        scratch.chmod(0o777)
    RecordedPath(str(generation)).remove()
    assert "cannot be made again" in capsys.readouterr().err
    assert not list(place.glob("scratch */*"))


def test_the_program_s_own_99_is_kept(bench: Bench, place: Path) -> None:
    assert bench.program("count", place / "out", 3, 0.01, 99).wait(LIMIT) == 99


def test_a_checkpoint_of_another_user_long_ago_does_not_matter(
    bench: Bench, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_SURELY_OVER_AFTER", 0.5)
    program = bench.running("append", place / "out", 0, 0.05)
    send_to_coordinator(bench, program, "-c")
    until(lambda: program.wait(0) is None and program.own.begun == program._checkpoint._over == 1)
    finish(place / "out")
    assert program.wait(LIMIT) == 0
    assert is_gapless(place / "out")


def test_a_coordinator_that_reports_nothing_is_not_trusted(faulty: Callable[[str], Bench], place: Path) -> None:
    bench = faulty("silent")
    assert lost(bench.program("count", place / "out", 3, 0.01)) == "tool_failed"
    assert bench.program("count", place / "out2", 3, 0.01, 5).wait(LIMIT) == 5


def test_signals_to_all_of_a_job_do_not_end_the_coordinator(bench: Bench, place: Path) -> None:
    program = bench.running("count", place / "out", 0, 0.02)
    counted_further(place / "out", 1)  # its handler is installed
    coordinator = next(pid for pid in bench.left() if "dmtcp_coor" in Path(f"/proc/{pid}/comm").read_text())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(coordinator, number)
    program.signal(signal.SIGTERM)
    assert program.wait(LIMIT) == 7


def test_a_coordinator_that_does_not_start_is_reported(faulty: Callable[[str], Bench], place: Path) -> None:
    with pytest.raises(CannotStart, match=r"coordinator did not start: .*listen socket") as fault:
        faulty("no_coordinator").program("count", place / "out", 3, 0.01)
    assert fault.value.why == "tool_failed"


def test_a_checkpoint_that_comes_after_it_was_given_up_is_salvaged(faulty: Callable[[str], Bench], place: Path) -> None:
    bench = faulty("late")
    program = bench.running("append", place / "out", 0, 0.05)
    generation = bench.new("generation")
    with pytest.raises(CannotStop) as fault:
        program.checkpoint(str(generation), 1.0)
    assert (fault.value.why, fault.value.alive) == ("tool_hung", True)
    assert lost(program) == "tool_failed"
    image = program.salvage(str(generation))
    program = bench.restart(generation, image)
    finish(place / "out")
    assert program.wait(LIMIT) == 0
    assert is_gapless(place / "out")


def test_nothing_is_salvaged_where_nothing_came(bench: Bench, place: Path) -> None:
    program = bench.running("count", place / "out", 0, 0.02)
    send_to_coordinator(bench, program, "-k")
    assert lost(program) == "killed"
    with pytest.raises(CannotStop) as fault:
        program.salvage(str(bench.new("generation")))
    assert fault.value.why == "not_verified"


# --- restarts that must fail


def test_a_truncated_image_that_hangs_is_ended(bench: Bench, place: Path) -> None:
    generation, image = bench.stop(bench.running("count", place / "out", 0, 0.02))
    path = generation / next(name for name in image.files if name.endswith(".dmtcp"))
    os.truncate(path, path.stat().st_size - (1 << 20))
    seen = len(numbers(place / "out"))
    with pytest.raises(CannotStart) as fault:
        bench.restart(generation, image, timeout=3.0)
    assert fault.value.why in ("tool_hung", "tool_failed")
    assert bench.left() == []
    assert len(numbers(place / "out")) == seen


def test_garbage_and_missing_images_are_reported(bench: Bench, place: Path) -> None:
    generation, image = bench.stop(bench.running("count", place / "out", 0, 0.02))
    path = generation / next(name for name in image.files if name.endswith(".dmtcp"))
    path.write_bytes(b"garbage\n" * 1000)
    with pytest.raises(CannotStart, match="83") as fault:
        bench.restart(generation, image)
    assert fault.value.why == "tool_failed"
    path.unlink()
    with pytest.raises(CannotStart) as fault:
        bench.restart(generation, image)
    assert fault.value.why == "bad_image"
    assert bench.left() == []


# --- checkpoints that must fail


def test_where_nothing_can_be_written_nothing_is_requested(bench: Bench, place: Path) -> None:
    program = bench.running("count", place / "out", 0, 0.02)
    used = bench.new("generation")
    (used / "file").touch()
    (place / "link").symlink_to(bench.new("generation"))
    for bad in (used, place / "none", place / "link"):
        with pytest.raises(CannotStop) as fault:
            program.checkpoint(str(bad), 5.0)
        assert (fault.value.why, fault.value.alive) == ("bad_directory", True)
    bench.stop(program)


def test_a_killed_coordinator_takes_the_program_with_it(bench: Bench, place: Path) -> None:
    program = bench.running("count", place / "out", 0, 0.02)
    listed = {pid for pid in bench.left() if "dmtcp_coor" in Path(f"/proc/{pid}/comm").read_text()}
    assert len(listed) == 1
    os.kill(listed.pop(), signal.SIGKILL)
    assert lost(program) == "coordinator_gone"
    with pytest.raises(CannotStop) as fault:
        bench.stop(program)
    assert (fault.value.why, fault.value.alive) == ("coordinator_gone", False)


@pytest.mark.parametrize("code", [0, 5, 99, 255])
def test_a_program_that_finishes_as_the_checkpoint_begins_keeps_its_code(
    faulty: Callable[[str], Bench], place: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setenv("STAND_IN_FINISHES_WITH", str(code))
    # With patience for images that never come, this would not end.
    monkeypatch.setattr(checkpoint, "_IMAGES_SECONDS", 10 * LIMIT)
    bench = faulty("finishes")
    program = bench.running("append", place / "out", 0, 0.02)
    with pytest.raises(Ended) as ended:
        bench.stop(program)
    assert ended.value.code == code
    assert program.wait(0) == code


def test_a_program_that_finishes_right_before_the_request_keeps_its_code(
    bench: Bench, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_IMAGES_SECONDS", 10 * LIMIT)
    program = bench.running("append", place / "out", 0, 0.02)
    remember_peers = DmtcpProgram.remember_peers

    def finished(self: DmtcpProgram) -> object:
        finish(place / "out")
        until(lambda: self.exit_code() is not None)
        return remember_peers(self)

    monkeypatch.setattr(DmtcpProgram, "remember_peers", finished)
    with pytest.raises(Ended) as ended:
        bench.stop(program)
    assert ended.value.code == 0
    assert program.own.begun == 0


@pytest.mark.parametrize("fault", ["finishes", "first_finishes"])
@pytest.mark.parametrize("code", [0, 5])
def test_a_program_of_several_processes_that_finishes_keeps_its_code_too(
    faulty: Callable[[str], Bench], place: Path, monkeypatch: pytest.MonkeyPatch, fault: str, code: int
) -> None:
    monkeypatch.setenv("STAND_IN_FINISHES_WITH", str(code))
    monkeypatch.setattr(checkpoint, "_IMAGES_SECONDS", 10 * LIMIT)
    bench = faulty(fault)
    program = bench.running("children", place / "out", 0, 0.02)
    with pytest.raises(Ended) as ended:
        bench.stop(program)
    assert ended.value.code == code
    assert program.wait(0) == code
    assert bench.left() == []


@pytest.mark.parametrize("faults", ["late_script", "refuse_once", "slow"])
def test_what_takes_long_or_is_refused_once_still_works(
    faulty: Callable[[str], Bench], place: Path, faults: str
) -> None:
    bench = faulty(faults)
    generation, image = bench.stop(bench.running("count", place / "out", 0, 0.02))
    assert list(generation.glob("dmtcp_restart_script_*.sh"))
    bench.restart(generation, image)


@pytest.mark.parametrize("faults", ["no_script", "temp_left", "image_missing"])
def test_an_exit_code_of_0_without_a_complete_set_is_no_checkpoint(
    faulty: Callable[[str], Bench], place: Path, faults: str
) -> None:
    bench = faulty(faults)
    program = bench.running("children", place / "out", 0, 0.02)
    with pytest.raises(CannotStop) as fault:
        bench.stop(program)
    assert (fault.value.why, fault.value.alive) == ("not_verified", False)
    assert not isinstance(fault.value, Ended)


@pytest.mark.parametrize(
    ("faults", "why"), [("disk_full", "tool_failed"), ("coordinator_dies", "coordinator_gone"), ("killed", "killed")]
)
def test_a_failure_that_kills_the_program_is_reported_as_dmtcps(
    faulty: Callable[[str], Bench], place: Path, faults: str, why: str
) -> None:
    bench = faulty(faults)
    program = bench.running("count", place / "out", 0, 0.02)
    with pytest.raises(CannotStop) as fault:
        bench.stop(program)
    assert (fault.value.why, fault.value.alive) == (why, False)
    assert bench.left() == []


def test_a_refusal_with_the_text_of_a_success_leaves_the_program_running(
    faulty: Callable[[str], Bench], place: Path
) -> None:
    program = faulty("refuse").running("count", place / "out", 0, 0.02)
    generation = place / "generation"
    generation.mkdir()
    with pytest.raises(CannotStop) as fault:
        program.checkpoint(str(generation), 3.0)
    assert (fault.value.why, fault.value.alive) == ("tool_failed", True)
    seen = len(numbers(place / "out"))
    until(lambda: len(numbers(place / "out")) > seen)
    assert program.ready()
    program._coordinator.quit(5.0)
    assert lost(program) == "killed"


def test_a_checkpoint_that_hangs_forever_ends_the_frozen_program(faulty: Callable[[str], Bench], place: Path) -> None:
    bench = faulty("hang_checkpoint")
    program = bench.running("count", place / "out", 0, 0.02)
    program.stall_limit = 0.5
    with pytest.raises(CannotStop) as fault:
        program.checkpoint(str(bench.new("generation")), 0.5)
    assert (fault.value.why, fault.value.alive) == ("tool_hung", False)
    assert bench.left() == []


def test_an_overdue_checkpoint_is_waited_for_as_long_as_it_writes(bench: Bench, place: Path) -> None:
    program = bench.running("count", place / "out", 0, 0.02)
    generation = bench.new("generation")
    image = program.checkpoint(str(generation), 0.01)
    seen = len(numbers(place / "out"))
    bench.restart(generation, image)
    until(lambda: len(numbers(place / "out")) > seen)


def test_a_command_that_hangs_leaves_the_program_running(faulty: Callable[[str], Bench], place: Path) -> None:
    bench = faulty("hang_command")
    program = bench.program("count", place / "out", 0, 0.02)
    until(lambda: len(numbers(place / "out")) > 2)
    with pytest.raises(CannotStop) as fault:
        program.checkpoint(str(bench.new("generation")), 1.5)
    assert (fault.value.why, fault.value.alive) == ("tool_hung", True)
    assert program.wait(0) is None
    os.kill(program.pid, signal.SIGUSR1)
    assert program.wait(LIMIT) == 128 + signal.SIGUSR1


def test_a_restart_that_fails_is_reported(faulty: Callable[[str], Bench], place: Path) -> None:
    bench = faulty("restart_99")
    generation, image = bench.stop(bench.running("count", place / "out", 0, 0.02))
    with pytest.raises(CannotStart, match="83"):
        bench.restart(generation, image)


@pytest.mark.parametrize("version", ["2.6.0", "3.0.0", "6.1"])
def test_older_and_unknown_releases_take_the_same_protocol(
    benches: Callable[..., Bench], place: Path, version: str
) -> None:
    bench = benches(version)
    generation, image = bench.stop(bench.running("count", place / "out", 0, 0.02))
    bench.restart(generation, image)


def test_a_tool_that_is_missing_or_too_old_is_reported(benches: Callable[..., Bench], place: Path) -> None:
    with pytest.raises(CannotStart, match="dmtcp_launch is not in"):
        Dmtcp(str(place / "none")).version()
    with pytest.raises(CannotStart, match=r"2\.6\.0 or later"):
        benches("2.5.1").driver.version()
    with pytest.raises(CannotStart, match="no such program"):
        benches("4.2.0").command(place / "no-such-program")
