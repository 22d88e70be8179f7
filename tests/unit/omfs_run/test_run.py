"""One run under a fake way of checkpointing: every branch of bringing up, watching and stopping."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.omfs_run import disk_space as space
from omfs_daemon.omfs_run.drivers.driver import CannotStart
from omfs_daemon.omfs_run.drivers.driver import CannotStop
from omfs_daemon.omfs_run.drivers.driver import Driver
from omfs_daemon.omfs_run.drivers.driver import Ended
from omfs_daemon.omfs_run.drivers.driver import Image
from omfs_daemon.omfs_run.drivers.driver import Program
from omfs_daemon.omfs_run.store.generations import Generations
from omfs_daemon.omfs_run.store.computed_time import Progress
from omfs_daemon.omfs_run.run import Run
from omfs_daemon.omfs_run.run import Setting
from omfs_daemon.omfs_run.signals import Inbox

HELD, STOPPED = 102, 101


class FakeDesk:
    """Keeps what was told; ``fault`` as the real one's."""

    def __init__(self) -> None:
        self.fault: str | None = ""
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.looks = 0

    def look(self) -> None:
        self.looks += 1

    def tell(self, state: str, **fields: Any) -> None:
        self.told.append((state, fields))

    def leave(self, code: int) -> int:
        return code

    @property
    def states(self) -> list[str]:
        return [state for state, _ in self.told]


class FakeProgram(Program):
    """Its ``script`` says what happens at each look: None, an exit code, or something to call."""

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
        self.world.asked += 1
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
        self.asked = self.kills = 0
        self.signals: list[int] = []
        self.brought_up: list[str] = []
        self.start_error: CannotStart | None = None

    def version(self) -> str:
        return "fake 1"

    def start(self, command: Sequence[str], scratch: str) -> Program:
        if self.start_error:
            raise self.start_error
        self.brought_up.append("fresh")
        return FakeProgram(self)

    def restart(self, directory: str, image: Image, scratch: str, timeout: float) -> Program:
        assert (Path(directory) / "image").read_bytes() == b"state"
        outcome = self.restarts.pop(0) if self.restarts else None
        if outcome is not None:
            raise outcome
        self.brought_up.append(Path(directory).name)
        return FakeProgram(self)

    def run(self, *script: Any, fresh: bool = False, was_stopped: bool = False, fault: str | None = "") -> int:
        """One run of the job; the program goes by ``script``."""
        self.script = list(script)
        self.desk, self.inbox = FakeDesk(), Inbox()
        self.desk.fault = fault
        self.inbox.wait = lambda seconds: None  # type: ignore[method-assign]
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        setting = Setting(["./a.out"], self, "/nowhere", 10.0, fresh, was_stopped, {})
        store = Generations(descriptor, str(self.path))
        self.code = Run(setting, self.desk, self.inbox, store, Progress(descriptor)).go()  # type: ignore[arg-type]
        return self.code

    def ask(self) -> None:
        self.inbox.note(signal.SIGUSR1)

    @property
    def generations(self) -> list[str]:
        return sorted(each.name for each in self.path.iterdir() if each.is_dir())

    @property
    def last(self) -> dict[str, Any]:
        return self.desk.told[-1][1]


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
    assert world.desk.told == [("ready", {"method": "fake"})]


def test_signals_are_passed_on_but_never_the_request(world: World) -> None:
    def come() -> None:
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGUSR1, signal.SIGHUP):
            world.inbox.note(number)

    world.checkpoints = [cannot("tool_failed", alive=True)]
    world.run(come, None, 5)
    assert world.signals == [signal.SIGTERM, signal.SIGUSR2, signal.SIGHUP]


def test_a_program_that_cannot_be_found_ends_as_in_a_shell(world: World) -> None:
    world.start_error = CannotStart("no_program", "x: not found")
    assert world.run() == 127
    world.start_error = CannotStart("not_executable", "x: no")
    assert world.run() == 126
    assert world.desk.told == []


def test_a_tool_that_cannot_start_the_program_holds_the_job(world: World) -> None:
    world.start_error = CannotStart("tool_failed", "no port")
    assert world.run() == HELD
    assert world.desk.told == [("held", {"method": "fake", "why": "tool_failed"})]


def test_ready_is_not_said_before_the_program_can_be_stopped(world: World) -> None:
    world.ready = False
    world.run(None, None, lambda: setattr(world, "ready", True), None, 3)
    assert world.desk.states == ["ready"]
    world.ready = False
    world.run(None, 3)
    assert world.desk.told == []


def test_a_request_before_it_is_ready_waits(world: World) -> None:
    world.ready = False
    assert world.run(lambda: world.ask(), None, lambda: setattr(world, "ready", True), None, None) == STOPPED
    assert world.desk.states == ["ready", "stopping", "stopped"]


def test_where_the_job_could_not_be_held_nothing_is_stopped(world: World) -> None:
    assert world.run(lambda: world.ask(), None, 3, fault="no way") == 3
    assert (world.asked, world.desk.told) == (0, [])


def test_a_slurm_that_did_not_answer_is_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omfs_daemon.omfs_run.run._LOOK_AGAIN", 0.0)
    world.run(None, None, 3, fault=None)
    assert (world.desk.looks, world.desk.told) == (2, [])


# -- stopping ---------------------------------------------------------------------------------------
def test_one_request_or_many_make_one_checkpoint(world: World) -> None:
    def ask_again() -> None:
        world.ask()
        world.ask()

    world.checkpoints = [ask_again]
    assert world.run(ask_again) == STOPPED
    assert (world.asked, world.generations) == (1, ["gen-0001"])
    assert world.desk.states == ["ready", "stopping", "stopped"]
    assert world.last["bytes"] == 5 and world.last["seconds"] >= 0


def test_a_failed_checkpoint_leaves_the_program_running_and_a_later_request_tries_again(world: World) -> None:
    def fail_and_ask() -> None:
        world.ask()  # for the one under way
        raise cannot("busy", alive=True)

    world.checkpoints = [fail_and_ask]
    assert world.run(lambda: world.ask(), None, None, 3) == 3
    assert world.desk.states == ["ready", "stopping", "failed"]
    assert world.last == {"method": "fake", "why": "busy", "times": 1}
    assert world.generations == []
    world.checkpoints = [cannot("busy", alive=True)]
    assert world.run(lambda: world.ask(), None, lambda: world.ask()) == STOPPED
    assert world.desk.states == ["ready", "stopping", "failed", "stopping", "stopped"]


def gone(why: str) -> Callable[[], None]:
    """A step: the driver sees that the program is gone, and that it was not its own end."""

    def step() -> None:
        raise cannot(why, alive=False)

    return step


def test_a_checkpoint_given_up_that_ends_the_program_later_never_completes_the_job(world: World) -> None:
    world.checkpoints = [cannot("tool_hung", alive=True)]
    assert world.run(lambda: world.ask(), None, gone("tool_failed")) == HELD
    assert world.desk.states == ["ready", "stopping", "failed", "held"]
    assert world.generations == ["gen-0001"]  # the tool may still have been writing there
    assert world.brought_up == ["fresh"]


@pytest.mark.parametrize("sealed", [True, False])
def test_a_checkpoint_given_up_that_comes_whole_after_all_is_used_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    def fail(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    if not sealed:
        monkeypatch.setattr(Generations, "seal", fail)
    world.checkpoints = [cannot("tool_hung", alive=True)]
    world.late = Image(["image"], "fake 1", 5)
    assert world.run(lambda: world.ask(), None, gone("tool_failed"), None, 3) == 3
    assert world.brought_up == ["fresh", "gen-0001"]
    assert world.desk.states == ["ready", "stopping", "failed", "ready"]
    assert world.last["from"] == 1 and world.last["lost"] < 1
    assert world.generations == ["gen-0001"]


def test_a_program_killed_from_outside_without_a_checkpoint_holds_the_job(world: World) -> None:
    assert world.run(None, gone("killed")) == HELD
    assert world.desk.told[-1] == ("held", {"method": "fake", "why": "killed"})
    assert world.path.exists() and world.kills == 1


def test_a_program_killed_from_outside_goes_on_from_its_checkpoint_at_once(world: World) -> None:
    stop(world, 1)
    assert world.run(None, gone("killed"), None, 3) == 3
    assert world.brought_up == ["gen-0001", "gen-0001"]
    assert world.desk.states == ["ready", "ready"]


def test_a_program_killed_again_and_again_is_held_in_the_end_with_its_checkpoint(world: World) -> None:
    stop(world, 1)
    assert world.run(*[None, gone("killed")] * 10) == HELD
    assert world.brought_up == ["gen-0001"] * 3
    assert world.last["why"] == "killed"
    assert world.generations == ["gen-0001"]


def test_a_program_s_own_end_after_a_checkpoint_given_up_is_its_own(world: World) -> None:
    world.checkpoints = [cannot("tool_hung", alive=True)]
    assert world.run(lambda: world.ask(), None, 5) == 5
    assert world.generations == []
    world.checkpoints = [cannot("tool_hung", alive=True), cannot("busy", alive=True)]
    assert world.run(lambda: world.ask(), None, lambda: world.ask(), None, 0) == 0


def test_a_driver_s_unforeseen_error_is_a_failed_checkpoint(world: World) -> None:
    world.checkpoints = [OSError(5, "Input/output error")]
    assert world.run(lambda: world.ask(), None, None, 3) == 3
    assert world.last["why"] == "tool_failed"


@pytest.mark.parametrize("fault", ["full", "read_only", "vanished"])
def test_nothing_is_stopped_where_there_is_no_room(world: World, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    def spoil() -> None:
        world.ask()
        if fault == "full":
            monkeypatch.setattr(space, "needed", lambda pid: 1 << 60)
        elif fault == "vanished":
            world.path.rename(world.path.with_name("elsewhere"))
        else:
            monkeypatch.setattr(os, "open", refusing(os.open))

    assert world.run(spoil, lambda: monkeypatch.undo(), None, 3) == 3
    assert world.asked == 0
    why = "no_space" if fault == "full" else "not_writable"
    assert ("failed", {"method": "fake", "why": why, "times": 1}) in world.desk.told


def refusing(real: Callable[..., int]) -> Callable[..., int]:
    def call(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *arguments, **options)

    return call


def test_a_program_that_ends_while_it_is_stopped_keeps_its_exit_code(world: World) -> None:
    world.checkpoints = [Ended(4)]
    assert world.run(lambda: world.ask()) == 4
    assert world.generations == []


def test_a_program_killed_by_its_first_checkpoint_holds_the_job(world: World) -> None:
    world.checkpoints = [cannot("no_space", alive=False)]
    assert world.run(lambda: world.ask()) == HELD
    assert world.desk.told[-1] == ("held", {"method": "fake", "why": "no_space"})
    assert world.kills == 1


def test_a_program_killed_by_a_later_checkpoint_goes_on_from_the_one_before_at_once(world: World) -> None:
    world.run(lambda: world.ask())
    world.checkpoints = [cannot("tool_failed", alive=False)]
    assert world.run(lambda: world.ask(), None, 6) == 6
    assert world.brought_up == ["fresh", "gen-0001", "gen-0001"]
    assert world.desk.states == ["ready", "stopping", "ready"]
    assert world.last["from"] == 1 and world.last["lost"] >= 0


def test_a_checkpoint_that_cannot_be_made_safe_is_used_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Generations, "seal", fail)
    assert world.run(lambda: world.ask(), None, 6) == 6
    assert world.brought_up == ["fresh", "gen-0001"]
    assert world.desk.states == ["ready", "stopping", "ready"]
    assert world.last["lost"] < 1


def test_a_directory_that_cannot_be_read_holds_the_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> list[str]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Generations, "candidates", fail)
    assert world.run() == HELD
    assert world.last["why"] == "bad_directory"


# -- bringing back ----------------------------------------------------------------------------------
def stop(world: World, times: int) -> None:
    for _ in range(times):
        assert world.run(lambda: world.ask()) == STOPPED
    world.brought_up.clear()


def test_it_goes_on_from_the_newest_and_older_ones_go_only_then(world: World) -> None:
    stop(world, 2)
    assert world.generations == ["gen-0001", "gen-0002"]
    assert world.run(None, None, 3) == 3
    assert world.brought_up == ["gen-0002"]
    assert world.generations == ["gen-0002"]
    assert world.last["from"] == 2 and world.last["lost"] == 0.0


def test_a_failed_program_keeps_its_checkpoint_and_one_that_ended_well_leaves_nothing(world: World) -> None:
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
    assert (world.brought_up, world.generations) == (["gen-0001"], ["failed-0002", "gen-0001"])
    assert world.last["from"] == 1 and world.last["lost"] > 0.0
    world.brought_up.clear()
    world.run(None, 3)
    assert (world.brought_up, world.generations) == (["gen-0001"], ["gen-0001"])


def test_none_left_holds_the_job_and_nothing_is_removed(world: World) -> None:
    stop(world, 2)
    world.restarts = [CannotStart("tool_hung", "hangs")] * 2
    assert world.run() == HELD
    assert world.desk.told == [("held", {"method": "fake", "why": "tool_hung"})]
    assert world.generations == ["gen-0001", "gen-0002"]
    assert world.run(None, 3) == 3  # let go again, it can
    assert world.brought_up == ["gen-0002"]


def test_by_rule_it_starts_from_its_beginning_and_says_so(world: World) -> None:
    stop(world, 1)
    world.restarts = [CannotStart("tool_hung", "hangs")]
    assert world.run(None, 3, fresh=True) == 3
    assert world.desk.told[0][0] == "ready" and world.last["fresh"] == 1 and world.last["lost"] >= 0
    assert world.generations == ["failed-0001"]
    world.run(None, 3)
    assert world.brought_up == ["fresh", "fresh"]


def test_a_stopped_job_without_any_checkpoint_does_not_start_over(world: World) -> None:
    assert world.run(was_stopped=True) == HELD
    assert world.brought_up == []
    assert world.run(3, was_stopped=True, fresh=True) == 3


def test_a_checkpoint_of_another_method_is_refused(world: World) -> None:
    stop(world, 1)
    world.name = "other"
    assert world.run() == HELD


def test_what_was_computed_counts_over_all_runs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Progress, "seconds", lambda self: self._base + 50.0)
    stop(world, 2)
    world.restarts = [CannotStart("tool_hung", "hangs")]
    world.run(None, 3)
    assert world.last["lost"] == pytest.approx(50.0, abs=1)
