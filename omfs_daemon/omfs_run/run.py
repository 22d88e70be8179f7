"""One run of a job with checkpoints: starts or restarts the program, watches it, and checkpoints it on request."""

import time
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from omfs_daemon.omfs_run import disk_space
from omfs_daemon.omfs_run.drivers.driver import CannotStart, CannotStop, Driver, Ended, Image, Program
from omfs_daemon.omfs_run.job_exit import JobExit
from omfs_daemon.omfs_run.message import message
from omfs_daemon.omfs_run.signals import Inbox
from omfs_daemon.omfs_run.store.computed_time import ComputedTime
from omfs_daemon.omfs_run.store.generations import GenerationPath, Generations
from omfs_daemon.omfs_run.store.manifest import BadManifest
from omfs_daemon.omfs_run.write_back import WriteBack
from omfs_daemon.protocol import job_comment
from omfs_daemon.protocol.exit_codes import HELD, HOLD_CODES, STOPPED

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # a shell's exit codes for a program that it cannot start

_POLL = 1.0  # seconds; signals and the end of a child interrupt it
_POLL_NOT_READY = 0.1
_ASK_AGAIN = 60.0  # seconds until a Slurm that did not respond is asked again
_HUNG = "tool_hung"
_SHORT = 60.0  # seconds; after several runs shorter than this another restart is of no use
_SHORT_RUNS = 3


class HoldForOwner(Exception):
    """The program cannot be restarted: the job is held for its owner. ``why``: a reason code."""

    def __init__(self, why: str, message: str) -> None:
        super().__init__(message)
        self.why = why


class RunSetup(NamedTuple):
    """What a run needs.

    limit          seconds for a checkpoint, and for a restart
    fresh_if_lost  start the program anew when no checkpoint can be restarted, instead of holding the job
    was_stopped    the job's comment reports that an earlier run was stopped
    facts          for the manifest
    """

    command: Sequence[str]
    driver: Driver
    scratch: str
    limit: float
    fresh_if_lost: bool
    was_stopped: bool
    facts: Mapping[str, Any]


class Run:
    """A run of the program under its driver; ``go`` runs it to its end."""

    def __init__(
        self,
        setup: RunSetup,
        job_exit: JobExit,
        inbox: Inbox,
        store: Generations,
        computed_time: ComputedTime,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._setup = setup
        self._driver = setup.driver
        self._job_exit = job_exit
        self._inbox = inbox
        self._store = store
        self._computed_time = computed_time
        self._clock = clock
        self._program = Program()
        self._ready: Mapping[str, Any] = {}
        self._is_reported_ready = False
        self._failures = 0  # of checkpoints; reported so that each failure gives a different report
        self._told = ""  # why there was no checkpoint, said once as long as it stays the same
        self._asked_slurm_at = clock()
        # A checkpoint that was given up; it may still complete and end the program.
        self._late: Optional[GenerationPath] = None
        self._began_at, self._short_runs = clock(), 0

    def go(self) -> int:
        """The exit code to end with: the program's own, or one that holds the job."""
        try:
            self._start_or_restart()
            return self._watch()
        except _NotStarted as error:
            message(str(error))
            return error.code
        except HoldForOwner as hold:
            return self._held(hold.why, str(hold))
        except OSError as error:
            # From the checkpoint directory while no program runs; other errors are handled where they occur.
            return self._held("bad_directory", "{}: {}".format(self._store.path, error))

    def _held(self, why: str, text: str) -> int:
        message("{}; the job is held".format(text))
        self._job_exit.report(job_comment.HELD, method=self._driver.name, why=why)
        return self._job_exit.leave(HELD)

    # -- start and restart ----------------------------------------------------------------------------------------
    def _start_or_restart(self) -> None:
        names = self._store.candidates()
        if names:
            self._restart([(name, None) for name in names], self._reached())
        elif self._setup.was_stopped:
            text = "the job was checkpointed, but no checkpoint is left in {}".format(self._store.path)
            self._lost("not_verified", text, self._reached())
        else:
            self._start({})

    def _start(self, ready: Mapping[str, Any]) -> None:
        try:
            self._program = self._driver.start(self._setup.command, self._setup.scratch)
        except CannotStart as error:
            if error.why in ("no_program", "not_executable"):
                raise _NotStarted(str(error), NOT_FOUND if error.why == "no_program" else NOT_EXECUTABLE) from None
            raise HoldForOwner(error.why, "the program cannot be started: {}".format(error)) from None
        self._begin(0.0, ready)

    def _restart(self, candidates: Sequence[Tuple[str, Optional[Image]]], reached: float) -> None:
        """Restart from the best candidate that works; one given with its image was made just now."""
        failed: List[str] = []
        why, began = "not_verified", self._clock()
        for name, image in candidates:
            try:
                computed = reached
                if image is None:
                    found = self._store.verify(name)
                    image, computed = found.image, found.computed
                    if found.method != self._driver.name:
                        raise BadManifest("made by method {}, not {}".format(found.method, self._driver.name))
                path = self._store.generation(name).path
                self._program = self._driver.restart(path, image, self._setup.scratch, self._setup.limit)
            except BadManifest as error:
                message("checkpoint {} cannot be used: {}".format(name, error))
            except (CannotStart, OSError) as error:
                why = getattr(error, "why", "tool_failed")
                message("cannot restart from checkpoint {}: {}".format(name, error))
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
            message("{}: cannot remove older checkpoints: {}".format(self._store.path, error))
        message("restarted from checkpoint {} in {:.1f} s; {:.0f} s of computing are lost".format(name, seconds, lost))
        self._begin(computed, {"from": int(name.rpartition("-")[2]), "seconds": seconds, "lost": lost})

    def _lost(self, why: str, text: str, reached: float) -> None:
        if not self._setup.fresh_if_lost:
            raise HoldForOwner(why, text)
        message("{}; the program starts anew (--if-lost fresh); {:.0f} s of computing are lost".format(text, reached))
        try:
            self._store.start_over()
        except OSError as error:
            raise HoldForOwner("not_writable", "{}: {}".format(self._store.path, error)) from None
        self._start({"fresh": 1, "lost": reached})

    def _begin(self, computed: float, ready: Mapping[str, Any]) -> None:
        self._computed_time.begin(computed)
        self._began_at = self._clock()
        self._ready, self._is_reported_ready = ready, False

    def _reached(self) -> float:
        return max(self._computed_time.reached(), self._store.computed())

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
            if not self._is_reported_ready:
                self._report_ready()
            if self._inbox.requested is not None:
                done = self._requested()
                if done is not None:
                    return done
            self._computed_time.record()
            self._inbox.wait(_POLL if self._is_reported_ready or self._job_exit.fault else _POLL_NOT_READY)

    def _pass_on(self, number: int) -> None:
        try:
            self._program.signal(number)
        except OSError as error:
            message("cannot pass on signal {}: {}".format(number, error))

    def _report_ready(self) -> None:
        if self._job_exit.fault is None and self._clock() - self._asked_slurm_at >= _ASK_AGAIN:
            self._asked_slurm_at = self._clock()
            self._job_exit.ask_slurm()
        if self._job_exit.fault == "" and self._program.ready():
            self._is_reported_ready = True
            self._job_exit.report(job_comment.READY, method=self._driver.name, **self._ready)

    def _requested(self) -> Optional[int]:
        if self._job_exit.fault:
            message("a checkpoint was requested, but {}".format(self._job_exit.fault))
            self._inbox.requested = None
            return None
        return self._stop() if self._is_reported_ready else None

    def _ended(self, code: int) -> int:
        """The program's own end. With exit code 0 its checkpoints are of no more use."""
        self._computed_time.record(now=True)
        self._discard(self._late)
        if code in HOLD_CODES:
            message("the program ended with exit code {}: Slurm may hold the job".format(code))
        if code == 0:
            try:
                self._store.clear()
            except OSError as error:
                message("{}: cannot remove checkpoints: {}".format(self._store.path, error))
        return code

    # -- checkpoints ----------------------------------------------------------------------------------
    def _stop(self) -> Optional[int]:
        """Checkpoint and end the program; returns the exit code to end with, or None if the program continues."""
        requested = self._inbox.requested if self._inbox.requested is not None else self._clock()
        self._job_exit.report(job_comment.STOPPING, method=self._driver.name)
        generation: Optional[GenerationPath] = None
        try:
            if self._driver.makes_image:
                disk_space.require_space(self._store.path, self._program.pid)
            generation = self._new()
            image = self._checkpoint(generation.path)
        except Ended as end:
            self._discard(generation)
            return self._ended(end.code)
        except CannotStop as fault:
            if fault.alive and fault.why == _HUNG:
                self._late = generation  # the tool may still write there
            else:
                self._discard(generation)
            self._inbox.requested = None  # further requests meanwhile were for this one
            self._not_stopped(fault)
            return None
        self._inbox.requested = None
        self._computed_time.record(now=True)
        size = self._seal(generation, image)
        if size is None:
            self._fall_back([(generation.name, image)], "not_verified")
            return None
        seconds = self._clock() - requested
        message("stopped at checkpoint {}: {:.1f} MB in {:.1f} s".format(generation.name, size / 1e6, seconds))
        self._job_exit.report(job_comment.STOPPED, method=self._driver.name, bytes=size, seconds=seconds)
        return self._job_exit.leave(STOPPED)

    def _seal(self, generation: GenerationPath, image: Image) -> Optional[int]:
        """Its bytes; None if it could not be written to disk."""
        try:
            computed = self._computed_time.seconds()
            return self._store.seal(generation.name, self._driver.name, image, computed, self._setup.facts)
        except (OSError, BadManifest) as error:
            message("cannot write checkpoint {} to disk: {}".format(generation.name, error))
            return None

    def _new(self) -> GenerationPath:
        try:
            return self._store.new()
        except OSError as error:
            raise disk_space.cannot_write(self._store.path, error) from None

    def _checkpoint(self, path: str) -> Image:
        try:
            with WriteBack(path):
                return self._program.checkpoint(path, self._setup.limit)
        except OSError as error:
            # Not expected by the driver, which cannot tell whether the program still runs.
            raise CannotStop("tool_failed", str(error), alive=self._program.wait(0) is None) from None

    def _discard(self, generation: Optional[GenerationPath]) -> None:
        if generation is not None:
            try:
                self._store.discard(generation.name)
            except OSError as error:
                message("cannot remove {}: {}".format(generation.path, error))

    def _not_stopped(self, fault: CannotStop) -> None:
        text = "no checkpoint ({}): {}".format(fault.why, fault)
        if text != self._told:
            message(text)
        self._told = text if fault.alive else ""
        if fault.alive:
            self._failures += 1
            self._job_exit.report(job_comment.FAILED, method=self._driver.name, why=fault.why, times=self._failures)
        else:
            self._fall_back([], fault.why)

    def _gone(self, why: str, text: str) -> None:
        """The program ended, but not by itself."""
        message(text)
        self._fall_back(self._salvaged(), why)

    def _salvaged(self) -> List[Tuple[str, Optional[Image]]]:
        """The checkpoint that was given up, if it was completed after all."""
        generation, self._late = self._late, None
        if generation is None:
            return []
        try:
            image = self._program.salvage(generation.path)
        except (CannotStop, OSError) as error:
            message("the checkpoint that was given up cannot be used: {}".format(error))
            return []
        message("checkpoint {}, which was given up, is complete after all".format(generation.name))
        self._seal(generation, image)
        return [(generation.name, image)]

    def _fall_back(self, made: List[Tuple[str, Optional[Image]]], why: str) -> None:
        """The program has ended: restart it at once from what is there, never silently from its beginning."""
        self._program.kill()
        self._late = None
        self._short_runs = self._short_runs + 1 if self._clock() - self._began_at < _SHORT else 0
        if self._short_runs >= _SHORT_RUNS and not made:
            raise HoldForOwner(why, "the program was lost {} times within {:g} s each".format(_SHORT_RUNS, _SHORT))
        reached = self._computed_time.seconds()
        known = [name for name, _ in made]
        candidates = made + [(name, None) for name in self._store.candidates() if name not in known]
        if not candidates:
            self._lost(why, "the program has ended and left no checkpoint", reached)
        else:
            self._restart(candidates, reached)


class _NotStarted(Exception):
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
