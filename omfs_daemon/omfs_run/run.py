"""One run of a job under a way of checkpointing: bring the program up, watch it, stop it when asked."""

import time
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from omfs_daemon.omfs_run import disk_space as space
from omfs_daemon.protocol import job_comment as word
from omfs_daemon.omfs_run.job_exit import Desk
from omfs_daemon.omfs_run.drivers.driver import CannotStart
from omfs_daemon.omfs_run.drivers.driver import CannotStop
from omfs_daemon.omfs_run.drivers.driver import Driver
from omfs_daemon.omfs_run.drivers.driver import Ended
from omfs_daemon.omfs_run.drivers.driver import Image
from omfs_daemon.omfs_run.drivers.driver import Program
from omfs_daemon.omfs_run.write_back import Early
from omfs_daemon.omfs_run.store.generations import Generations
from omfs_daemon.omfs_run.store.generations import Place
from omfs_daemon.omfs_run.store.manifest import Refused
from omfs_daemon.omfs_run.store.computed_time import Progress
from omfs_daemon.omfs_run.message import say
from omfs_daemon.omfs_run.signals import Inbox
from omfs_daemon.protocol.exit_codes import HELD
from omfs_daemon.protocol.exit_codes import STOPPED

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell ends for a program that it cannot start

_POLL = 1.0  # seconds; a signal or the end of a child of ours is seen at once
_POLL_NOT_READY = 0.1
_LOOK_AGAIN = 60.0  # seconds between two questions to a Slurm that did not answer
_OURS = range(101, 110)
_HUNG = "tool_hung"
_SHORT = 60.0  # seconds of running: not long enough that bringing it back once more were of use
_SHORT_RUNS = 3


class Hold(Exception):
    """The program cannot be brought back: the job is held for its owner. ``why``: a code of the job's comment."""

    def __init__(self, why: str, message: str) -> None:
        super().__init__(message)
        self.why = why


class Setting(NamedTuple):
    """What a run is made with. ``limit``: seconds for a checkpoint and for a restart; ``facts``: for the manifest.

    ``was_stopped``: the job's comment says that an earlier run was stopped; ``fresh_if_lost``: the program is started
    from its beginning when nothing can be restarted, instead of a hold.
    """

    command: Sequence[str]
    driver: Driver
    scratch: str
    limit: float
    fresh_if_lost: bool
    was_stopped: bool
    facts: Mapping[str, Any]


class Run:
    """``go`` runs it to its end."""

    def __init__(
        self,
        setting: Setting,
        desk: Desk,
        inbox: Inbox,
        store: Generations,
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._setting = setting
        self._driver = setting.driver
        self._desk = desk
        self._inbox = inbox
        self._store = store
        self._progress = progress
        self._clock = clock
        self._program = Program()
        self._ready: Mapping[str, Any] = {}
        self._told_ready = False
        self._failures = 0  # of checkpoints, told with each: else the second could not be told from the first
        self._looked = clock()
        # Of a checkpoint that was given up, and that may still come to its end and end the program.
        self._late: Optional[Place] = None
        self._up_at, self._short_runs = clock(), 0

    def go(self) -> int:
        """The exit code to end with: the program's own, or one that holds the job."""
        try:
            self._bring_up()
            return self._watch()
        except _NotStarted as error:
            say(str(error))
            return error.code
        except Hold as hold:
            return self._held(hold.why, str(hold))
        except OSError as error:
            # Of the directory, and only while no program runs: all else is dealt with where it happens.
            return self._held("bad_directory", "{}: {}".format(self._store.path, error))

    def _held(self, why: str, text: str) -> int:
        say("{}; the job is held".format(text))
        self._desk.tell(word.HELD, method=self._driver.name, why=why)
        return self._desk.leave(HELD)

    # -- up ----------------------------------------------------------------------------------------
    def _bring_up(self) -> None:
        names = self._store.candidates()
        if names:
            self._restart([(name, None) for name in names], self._reached())
        elif self._setting.was_stopped:
            text = "the job was stopped with its work kept, but no checkpoint is left in {}".format(self._store.path)
            self._lost("not_verified", text, self._reached())
        else:
            self._start({})

    def _start(self, ready: Mapping[str, Any]) -> None:
        try:
            self._program = self._driver.start(self._setting.command, self._setting.scratch)
        except CannotStart as error:
            if error.why in ("no_program", "not_executable"):
                raise _NotStarted(str(error), NOT_FOUND if error.why == "no_program" else NOT_EXECUTABLE) from None
            raise Hold(error.why, "the program cannot be started: {}".format(error)) from None
        self._up(0.0, ready)

    def _restart(self, candidates: Sequence[Tuple[str, Optional[Image]]], reached: float) -> None:
        """From the best candidate that can be restarted; one that comes with its image was made just now."""
        failed: List[str] = []
        why, began = "not_verified", self._clock()
        for name, image in candidates:
            try:
                computed = reached
                if image is None:
                    found = self._store.verify(name)
                    image, computed = found.image, found.computed
                    if found.method != self._driver.name:
                        raise Refused("made by method {}, not {}".format(found.method, self._driver.name))
                path = self._store.place(name).path
                self._program = self._driver.restart(path, image, self._setting.scratch, self._setting.limit)
            except Refused as error:
                say("checkpoint {} cannot be used: {}".format(name, error))
            except (CannotStart, OSError) as error:
                why = getattr(error, "why", "tool_failed")
                say("no restart from checkpoint {}: {}".format(name, error))
            else:
                self._restarted(name, failed, computed, max(0.0, reached - computed), began)
                return
            failed.append(name)
        self._lost(why, "no checkpoint in {} could be restarted".format(self._store.path), reached)

    def _restarted(self, name: str, failed: Sequence[str], computed: float, lost: float, began: float) -> None:
        seconds = self._clock() - began
        try:
            self._store.settle(name, failed)
        except OSError as error:
            say("{}: older checkpoints could not be removed: {}".format(self._store.path, error))
        say("goes on from checkpoint {} after {:.1f} s; {:.0f} s of computing are lost".format(name, seconds, lost))
        self._up(computed, {"from": int(name.rpartition("-")[2]), "seconds": seconds, "lost": lost})

    def _lost(self, why: str, text: str, reached: float) -> None:
        if not self._setting.fresh_if_lost:
            raise Hold(why, text)
        say("{}; it starts from its beginning, as --if-lost says; {:.0f} s of computing are lost".format(text, reached))
        try:
            self._store.start_over()
        except OSError as error:
            raise Hold("not_writable", "{}: {}".format(self._store.path, error)) from None
        self._start({"fresh": 1, "lost": reached})

    def _up(self, computed: float, ready: Mapping[str, Any]) -> None:
        self._progress.begin(computed)
        self._up_at = self._clock()
        self._ready, self._told_ready = ready, False

    def _reached(self) -> float:
        return max(self._progress.reached(), self._store.computed())

    # -- running -----------------------------------------------------------------------------------
    def _watch(self) -> int:
        while True:
            try:
                code = self._program.wait(0)
            except CannotStop as gone:
                self._gone(gone.why, gone.message)
                continue
            if code is not None:
                return self._ended(code)
            for number in self._inbox.take():
                self._pass_on(number)
            if not self._told_ready:
                self._tell_ready()
            if self._inbox.asked is not None:
                done = self._asked()
                if done is not None:
                    return done
            self._progress.beat()
            self._inbox.wait(_POLL if self._told_ready or self._desk.fault else _POLL_NOT_READY)

    def _pass_on(self, number: int) -> None:
        try:
            self._program.signal(number)
        except OSError as error:
            say("signal {} could not be passed on: {}".format(number, error))

    def _tell_ready(self) -> None:
        if self._desk.fault is None and self._clock() - self._looked >= _LOOK_AGAIN:
            self._looked = self._clock()
            self._desk.look()
        if self._desk.fault == "" and self._program.ready():
            self._told_ready = True
            self._desk.tell(word.READY, method=self._driver.name, **self._ready)

    def _asked(self) -> Optional[int]:
        if self._desk.fault:
            say("asked to stop, but {}".format(self._desk.fault))
            self._inbox.asked = None
            return None
        return self._stop() if self._told_ready else None

    def _ended(self, code: int) -> int:
        """The program's own end. With exit code 0 its checkpoints have no use any more."""
        self._progress.beat(now=True)
        self._discard(self._late)
        if code in _OURS:
            say("the program ended with exit code {}, after which Slurm may hold the job".format(code))
        if code == 0:
            try:
                self._store.clear()
            except OSError as error:
                say("{}: checkpoints could not be removed: {}".format(self._store.path, error))
        return code

    # -- stopping ----------------------------------------------------------------------------------
    def _stop(self) -> Optional[int]:
        """The exit code with which to end, or None if the program runs on."""
        asked = self._inbox.asked if self._inbox.asked is not None else self._clock()
        self._desk.tell(word.STOPPING, method=self._driver.name)
        place: Optional[Place] = None
        try:
            if self._driver.makes_image:
                space.require_room(self._store.path, self._program.pid)
            place = self._new()
            image = self._checkpoint(place.path)
        except Ended as end:
            self._discard(place)
            return self._ended(end.code)
        except CannotStop as fault:
            if fault.alive and fault.why == _HUNG:
                self._late = place  # the tool may still write there
            else:
                self._discard(place)
            self._inbox.asked = None  # however often it was asked meanwhile, it was for this one
            self._not_stopped(fault)
            return None
        self._inbox.asked = None
        self._progress.beat(now=True)
        size = self._seal(place, image)
        if size is None:
            self._fall_back([(place.name, image)], "not_verified")
            return None
        seconds = self._clock() - asked
        say("stopped at checkpoint {}: {:.1f} MB in {:.1f} s".format(place.name, size / 1e6, seconds))
        self._desk.tell(word.STOPPED, method=self._driver.name, bytes=size, seconds=seconds)
        return self._desk.leave(STOPPED)

    def _seal(self, place: Place, image: Image) -> Optional[int]:
        """Its bytes; None if it could not be made safe."""
        try:
            return self._store.seal(place.name, self._driver.name, image, self._progress.seconds(), self._setting.facts)
        except (OSError, Refused) as error:
            say("checkpoint {} could not be made safe: {}".format(place.name, error))
            return None

    def _new(self) -> Place:
        try:
            return self._store.new()
        except OSError as error:
            raise space.refusal(self._store.path, error) from None

    def _checkpoint(self, path: str) -> Image:
        try:
            with Early(path):
                return self._program.checkpoint(path, self._setting.limit)
        except OSError as error:
            # Not foreseen by the driver; whether the program lives is seen from itself.
            raise CannotStop("tool_failed", str(error), alive=self._program.wait(0) is None) from None

    def _discard(self, place: Optional[Place]) -> None:
        if place is not None:
            try:
                self._store.discard(place.name)
            except OSError as error:
                say("{} could not be removed: {}".format(place.path, error))

    def _not_stopped(self, fault: CannotStop) -> None:
        say("no checkpoint ({}): {}".format(fault.why, fault))
        if fault.alive:
            self._failures += 1
            self._desk.tell(word.FAILED, method=self._driver.name, why=fault.why, times=self._failures)
        else:
            self._fall_back([], fault.why)

    def _gone(self, why: str, text: str) -> None:
        """The program has gone, and that was not its own end."""
        say(text)
        self._fall_back(self._salvaged(), why)

    def _salvaged(self) -> List[Tuple[str, Optional[Image]]]:
        """The checkpoint that was given up, if it has become complete after all."""
        place, self._late = self._late, None
        if place is None:
            return []
        try:
            image = self._program.salvage(place.path)
        except (CannotStop, OSError) as error:
            say("of the checkpoint that was given up nothing can be used: {}".format(error))
            return []
        say("the checkpoint that was given up, {}, is complete after all".format(place.name))
        self._seal(place, image)
        return [(place.name, image)]

    def _fall_back(self, made: List[Tuple[str, Optional[Image]]], why: str) -> None:
        """The program is gone: bring it back at once from what is there. Never from its beginning without a word."""
        self._program.kill()
        self._late = None
        self._short_runs = self._short_runs + 1 if self._clock() - self._up_at < _SHORT else 0
        if self._short_runs >= _SHORT_RUNS and not made:
            raise Hold(why, "the program was lost {} times within {:g} s".format(_SHORT_RUNS, _SHORT))
        reached = self._progress.seconds()
        known = [name for name, _ in made]
        candidates = made + [(name, None) for name in self._store.candidates() if name not in known]
        if not candidates:
            self._lost(why, "the program is gone and has no checkpoint to go on from", reached)
        else:
            self._restart(candidates, reached)


class _NotStarted(Exception):
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
