"""One run with a fake driver: every branch of starting, watching, checkpointing and restarting."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.omfs_run import disk_space
from omfs_daemon.omfs_run.drivers.driver import CannotStart, CannotStop, Driver, Ended, Image, Program
from omfs_daemon.omfs_run.run import Run, RunSetup
from omfs_daemon.omfs_run.signals import Inbox
from omfs_daemon.omfs_run.store.computed_time import ComputedTime
from omfs_daemon.omfs_run.store.generations import Generations

HELD, STOPPED = 102, 101


class FakeJobExit:
    """Keeps the reports; ``fault`` as in JobExit."""

    def __init__(self) -> None:
        self.fault: str | None = ""
        self.reports: list[tuple[str, dict[str, Any]]] = []
        self.questions = 0

    def ask_slurm(self) -> None:
        self.questions += 1

    def report(self, state: str, **fields: Any) -> None:
        self.reports.append((state, fields))

    def leave(self, code: int) -> int:
        return code

    @property
    def states(self) -> list[str]:
        return [state for state, _ in self.reports]


class FakeProgram(Program):
    """``script``: what each wait finds: None, an exit code, or a function to call."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pid = os.getpid()
        self.code: int | None = None

    def wait(self, timeout: float) -> int | None:
        if self.code is None:
            step = self.world.script.pop(0) if self.world.script else 0
            self.code = step() if callable(step) else step
        return self.code

    def ready(self) -> bool:
        return self.world.ready

    def signal(self, number: int) -> None:
        self.world.signals.append(number)

    def checkpoint(self, directory: str, timeout: float) -> Image:
        self.world.requests += 1
        outcome = self.world.checkpoints.pop(0) if self.world.checkpoints else None
        (Path(directory) / "image").write_bytes(b"state")
        if isinstance(outcome, Exception):
            if isinstance(outcome, CannotStop) and not outcome.alive:
                self.code = 99
            raise outcome
        if callable(outcome):
            outcome()
        self.code = 0
        return Image(["image"], "fake 1", 5)

    def salvage(self, directory: str) -> Image:
        if self.world.late is None:
            raise cannot("not_verified", alive=False)
        return self.world.late

    def kill(self) -> None:
        self.world.kills += 1


class World(Driver):
    """The driver, and everything around a run."""

    name = "fake"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.script: list[Any] = []
        self.checkpoints: list[Any] = []
        self.restarts: list[Any] = []
        self.late: Image | None = None
        self.ready = True
        self.requests = self.kills = 0
        self.signals: list[int] = []
        self.started_from: list[str] = []
        self.start_error: CannotStart | None = None

    def version(self) -> str:
        return "fake 1"

    def start(self, command: Sequence[str], scratch: str) -> Program:
        if self.start_error:
            raise self.start_error
        self.started_from.append("fresh")
        return FakeProgram(self)

    def restart(self, directory: str, image: Image, scratch: str, timeout: float) -> Program:
        assert (Path(directory) / "image").read_bytes() == b"state"
        outcome = self.restarts.pop(0) if self.restarts else None
        if outcome is not None:
            raise outcome
        self.started_from.append(Path(directory).name)
        return FakeProgram(self)

    def run(self, *script: Any, fresh: bool = False, was_stopped: bool = False, fault: str | None = "") -> int:
        """One run of the job; the program follows ``script``."""
        self.script = list(script)
        self.job_exit, self.inbox = FakeJobExit(), Inbox()
        self.job_exit.fault = fault
        self.inbox.wait = lambda seconds: None  # type: ignore[method-assign]
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        setup = RunSetup(["./a.out"], self, "/nowhere", 10.0, fresh, was_stopped, {})
        store = Generations(descriptor, str(self.path))
        self.code = Run(setup, self.job_exit, self.inbox, store, ComputedTime(descriptor)).go()  # type: ignore[arg-type]
        return self.code

    def request(self) -> None:
        self.inbox.record(signal.SIGUSR1)

    @property
    def generations(self) -> list[str]:
        return sorted(each.name for each in self.path.iterdir() if each.is_dir())

    @property
    def last(self) -> dict[str, Any]:
        return self.job_exit.reports[-1][1]


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "checkpoints").mkdir(mode=0o700)
    return World(tmp_path / "checkpoints")


def cannot(why: str, alive: bool) -> CannotStop:
    return CannotStop(why, "it could not", alive)


# -- running ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("code", [0, 1, 7, 137, 255])
def test_the_program_s_exit_code_is_kept(world: World, code: int) -> None:
    assert world.run(None, None, code) == code
    assert world.job_exit.reports == [("ready", {"method": "fake"})]


def test_signals_are_passed_on_but_never_the_request(world: World) -> None:
    def come() -> None:
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGUSR1, signal.SIGHUP):
            world.inbox.record(number)

    world.checkpoints = [cannot("tool_failed", alive=True)]
    world.run(come, None, 5)
    assert world.signals == [signal.SIGTERM, signal.SIGUSR2, signal.SIGHUP]


def test_a_program_that_cannot_be_found_ends_as_in_a_shell(world: World) -> None:
    world.start_error = CannotStart("no_program", "x: not found")
    assert world.run() == 127
    world.start_error = CannotStart("not_executable", "x: no")
    assert world.run() == 126
    assert world.job_exit.reports == []


def test_a_tool_that_cannot_start_the_program_holds_the_job(world: World) -> None:
    world.start_error = CannotStart("tool_failed", "no port")
    assert world.run() == HELD
    assert world.job_exit.reports == [("held", {"method": "fake", "why": "tool_failed"})]


def test_ready_is_not_reported_before_the_program_can_be_checkpointed(world: World) -> None:
    world.ready = False
    world.run(None, None, lambda: setattr(world, "ready", True), None, 3)
    assert world.job_exit.states == ["ready"]
    world.ready = False
    world.run(None, 3)
    assert world.job_exit.reports == []


def test_a_request_before_it_is_ready_waits(world: World) -> None:
    world.ready = False
    assert world.run(lambda: world.request(), None, lambda: setattr(world, "ready", True), None, None) == STOPPED
    assert world.job_exit.states == ["ready", "stopping", "stopped"]


def test_where_the_job_could_not_be_held_nothing_is_preempted(world: World) -> None:
    assert world.run(lambda: world.request(), None, 3, fault="no way") == 3
    assert (world.requests, world.job_exit.reports) == (0, [])


def test_a_slurm_that_did_not_respond_is_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omfs_daemon.omfs_run.run._ASK_AGAIN", 0.0)
    world.run(None, None, 3, fault=None)
    assert (world.job_exit.questions, world.job_exit.reports) == (2, [])


# -- checkpoints ---------------------------------------------------------------------------------------
def test_one_request_or_many_make_one_checkpoint(world: World) -> None:
    def request_again() -> None:
        world.request()
        world.request()

    world.checkpoints = [request_again]
    assert world.run(request_again) == STOPPED
    assert (world.requests, world.generations) == (1, ["gen-0001"])
    assert world.job_exit.states == ["ready", "stopping", "stopped"]
    assert world.last["bytes"] == 5 and world.last["seconds"] >= 0


def test_a_failed_checkpoint_leaves_the_program_running_and_a_later_request_tries_again(world: World) -> None:
    def fail_and_request() -> None:
        world.request()  # for the one in progress
        raise cannot("busy", alive=True)

    world.checkpoints = [fail_and_request]
    assert world.run(lambda: world.request(), None, None, 3) == 3
    assert world.job_exit.states == ["ready", "stopping", "failed"]
    assert world.last == {"method": "fake", "why": "busy", "times": 1}
    assert world.generations == []
    world.checkpoints = [cannot("busy", alive=True)]
    assert world.run(lambda: world.request(), None, lambda: world.request()) == STOPPED
    assert world.job_exit.states == ["ready", "stopping", "failed", "stopping", "stopped"]


def gone(why: str) -> Callable[[], None]:
    """A step: the program ended, but not by itself."""

    def step() -> None:
        raise cannot(why, alive=False)

    return step


def test_what_keeps_a_program_from_being_checkpointed_is_said_once(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.checkpoints = [cannot("unfit", alive=True), cannot("unfit", alive=True), cannot("no_space", alive=True)]
    world.run(world.request, None, world.request, None, world.request, None, 3)
    assert world.job_exit.states.count("failed") == 3
    told = capsys.readouterr().err
    assert (told.count("(unfit)"), told.count("(no_space)")) == (1, 1)


def test_a_checkpoint_given_up_that_ends_the_program_later_never_completes_the_job(world: World) -> None:
    world.checkpoints = [cannot("tool_hung", alive=True)]
    assert world.run(lambda: world.request(), None, gone("tool_failed")) == HELD
    assert world.job_exit.states == ["ready", "stopping", "failed", "held"]
    assert world.generations == ["gen-0001"]  # the tool may still have been writing there
    assert world.started_from == ["fresh"]


@pytest.mark.parametrize("sealed", [True, False])
def test_a_checkpoint_given_up_that_completes_after_all_is_used_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    def fail(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    if not sealed:
        monkeypatch.setattr(Generations, "seal", fail)
    world.checkpoints = [cannot("tool_hung", alive=True)]
    world.late = Image(["image"], "fake 1", 5)
    assert world.run(lambda: world.request(), None, gone("tool_failed"), None, 3) == 3
    assert world.started_from == ["fresh", "gen-0001"]
    assert world.job_exit.states == ["ready", "stopping", "failed", "ready"]
    assert world.last["from"] == 1 and world.last["lost"] < 1
    assert world.generations == ["gen-0001"]


def test_a_program_killed_from_outside_without_a_checkpoint_holds_the_job(world: World) -> None:
    assert world.run(None, gone("killed")) == HELD
    assert world.job_exit.reports[-1] == ("held", {"method": "fake", "why": "killed"})
    assert world.path.exists() and world.kills == 1


def test_a_program_killed_from_outside_restarts_from_its_checkpoint_at_once(world: World) -> None:
    stop(world, 1)
    assert world.run(None, gone("killed"), None, 3) == 3
    assert world.started_from == ["gen-0001", "gen-0001"]
    assert world.job_exit.states == ["ready", "ready"]


def test_a_program_killed_again_and_again_is_held_in_the_end_with_its_checkpoint(world: World) -> None:
    stop(world, 1)
    assert world.run(*[None, gone("killed")] * 10) == HELD
    assert world.started_from == ["gen-0001"] * 3
    assert world.last["why"] == "killed"
    assert world.generations == ["gen-0001"]


def test_a_program_s_own_end_after_a_checkpoint_given_up_is_its_own(world: World) -> None:
    world.checkpoints = [cannot("tool_hung", alive=True)]
    assert world.run(lambda: world.request(), None, 5) == 5
    assert world.generations == []
    world.checkpoints = [cannot("tool_hung", alive=True), cannot("busy", alive=True)]
    assert world.run(lambda: world.request(), None, lambda: world.request(), None, 0) == 0


def test_a_driver_s_unexpected_error_is_a_failed_checkpoint(world: World) -> None:
    world.checkpoints = [OSError(5, "Input/output error")]
    assert world.run(lambda: world.request(), None, None, 3) == 3
    assert world.last["why"] == "tool_failed"


@pytest.mark.parametrize("fault", ["full", "read_only", "vanished"])
def test_nothing_is_preempted_where_there_is_no_space(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def spoil() -> None:
        world.request()
        if fault == "full":
            monkeypatch.setattr(disk_space, "needed_bytes", lambda pid: 1 << 60)
        elif fault == "vanished":
            world.path.rename(world.path.with_name("elsewhere"))
        else:
            monkeypatch.setattr(os, "open", refusing(os.open))

    assert world.run(spoil, lambda: monkeypatch.undo(), None, 3) == 3
    assert world.requests == 0
    why = "no_space" if fault == "full" else "not_writable"
    assert ("failed", {"method": "fake", "why": why, "times": 1}) in world.job_exit.reports


def refusing(real: Callable[..., int]) -> Callable[..., int]:
    def call(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *arguments, **options)

    return call


def test_a_program_that_ends_during_its_checkpoint_keeps_its_exit_code(world: World) -> None:
    world.checkpoints = [Ended(4)]
    assert world.run(lambda: world.request()) == 4
    assert world.generations == []


def test_a_program_killed_by_its_first_checkpoint_holds_the_job(world: World) -> None:
    world.checkpoints = [cannot("no_space", alive=False)]
    assert world.run(lambda: world.request()) == HELD
    assert world.job_exit.reports[-1] == ("held", {"method": "fake", "why": "no_space"})
    assert world.kills == 1


def test_a_program_killed_by_a_later_checkpoint_restarts_from_the_one_before_at_once(world: World) -> None:
    world.run(lambda: world.request())
    world.checkpoints = [cannot("tool_failed", alive=False)]
    assert world.run(lambda: world.request(), None, 6) == 6
    assert world.started_from == ["fresh", "gen-0001", "gen-0001"]
    assert world.job_exit.states == ["ready", "stopping", "ready"]
    assert world.last["from"] == 1 and world.last["lost"] >= 0


def test_a_checkpoint_that_cannot_be_written_to_disk_is_used_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Generations, "seal", fail)
    assert world.run(lambda: world.request(), None, 6) == 6
    assert world.started_from == ["fresh", "gen-0001"]
    assert world.job_exit.states == ["ready", "stopping", "ready"]
    assert world.last["lost"] < 1


def test_a_directory_that_cannot_be_read_holds_the_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> list[str]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Generations, "candidates", fail)
    assert world.run() == HELD
    assert world.last["why"] == "bad_directory"


# -- restarts ----------------------------------------------------------------------------------
def stop(world: World, times: int) -> None:
    for _ in range(times):
        assert world.run(lambda: world.request()) == STOPPED
    world.started_from.clear()


def test_it_restarts_from_the_newest_and_only_then_removes_older_ones(world: World) -> None:
    stop(world, 2)
    assert world.generations == ["gen-0001", "gen-0002"]
    assert world.run(None, None, 3) == 3
    assert world.started_from == ["gen-0002"]
    assert world.generations == ["gen-0002"]
    assert world.last["from"] == 2 and world.last["lost"] == 0.0


def test_a_failed_program_keeps_its_checkpoint_and_one_that_succeeded_leaves_nothing(world: World) -> None:
    stop(world, 1)
    world.run(1)
    assert world.generations == ["gen-0001"]
    world.run(0)
    assert not world.path.exists()


@pytest.mark.parametrize("fault", ["damaged", "hangs", "error"])
def test_the_one_before_is_used_when_the_newest_fails(world: World, fault: str) -> None:
    stop(world, 2)
    if fault == "damaged":
        (world.path / "gen-0002" / "image").write_bytes(b"stat")
    else:
        world.restarts = [CannotStart("tool_hung", "hangs") if fault == "hangs" else OSError(5, "no")]
    assert world.run(None, 3) == 3
    assert (world.started_from, world.generations) == (["gen-0001"], ["failed-0002", "gen-0001"])
    assert world.last["from"] == 1 and world.last["lost"] > 0.0
    world.started_from.clear()
    world.run(None, 3)
    assert (world.started_from, world.generations) == (["gen-0001"], ["gen-0001"])


def test_none_left_holds_the_job_and_nothing_is_removed(world: World) -> None:
    stop(world, 2)
    world.restarts = [CannotStart("tool_hung", "hangs")] * 2
    assert world.run() == HELD
    assert world.job_exit.reports == [("held", {"method": "fake", "why": "tool_hung"})]
    assert world.generations == ["gen-0001", "gen-0002"]
    assert world.run(None, 3) == 3  # released, it can
    assert world.started_from == ["gen-0002"]


def test_with_if_lost_fresh_it_starts_anew_and_reports_it(world: World) -> None:
    stop(world, 1)
    world.restarts = [CannotStart("tool_hung", "hangs")]
    assert world.run(None, 3, fresh=True) == 3
    assert world.job_exit.reports[0][0] == "ready" and world.last["fresh"] == 1 and world.last["lost"] >= 0
    assert world.generations == ["failed-0001"]
    world.run(None, 3)
    assert world.started_from == ["fresh", "fresh"]


def test_a_preempted_job_without_any_checkpoint_does_not_start_over(world: World) -> None:
    assert world.run(was_stopped=True) == HELD
    assert world.started_from == []
    assert world.run(3, was_stopped=True, fresh=True) == 3


def test_a_checkpoint_of_another_method_is_refused(world: World) -> None:
    stop(world, 1)
    world.name = "other"
    assert world.run() == HELD


def test_what_was_computed_counts_over_all_runs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ComputedTime, "seconds", lambda self: self._base + 50.0)
    stop(world, 2)
    world.restarts = [CannotStart("tool_hung", "hangs")]
    world.run(None, 3)
    assert world.last["lost"] == pytest.approx(50.0, abs=1)
