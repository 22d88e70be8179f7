"""Checkpoints by CRIU, through omfs-criu (plugins/criu), which has the one capability that CRIU needs.

The program runs below omfs-criu-attach, in its own session; after a restore CRIU becomes omfs-criu-attach, so that in
both cases our child has the program's exit code. A dump leaves the program stopped: it is killed only when the images
are verified and on disk, and continues after any failure before that.
"""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from typing import List, NamedTuple, Optional, Sequence

from omfs_daemon.omfs_run.drivers.criu import criu_processes, dump_images
from omfs_daemon.omfs_run.drivers.criu.criu_processes import CriuProcess
from omfs_daemon.omfs_run.drivers.driver import CannotStart, CannotStop, Driver, Ended, Image, Program
from omfs_daemon.omfs_run.drivers.processes import catches

HELPER = "OMFS_CRIU"  # environment variable: the path of omfs-criu, if it is in none of these places
PLACES = (
    "/usr/libexec/omfs/omfs-criu",
    "/usr/local/libexec/omfs/omfs-criu",
    "/opt/omfs-criu/libexec/omfs/omfs-criu",
)

_POLL = 0.01
_VERSION_SECONDS = 10.0  # seconds for omfs-criu to print CRIU's version
_TRIAL = 20.0  # seconds for each half of the self-test
_TRIES = 5  # to find a moment at which the program is fit
_BETWEEN_TRIES = 0.3
_RELEASE = 5.0  # seconds for a program to continue after a failed dump
_HALT = 5.0  # seconds for all processes of a dumped program to be stopped
_END = 10.0
# Seconds to wait until the program's process IDs are free, or its ports: the kernel keeps those of closed connections
# for a minute (TIME_WAIT).
_TAKEN = {"pid_taken": 60.0, "address_taken": 75.0}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Criu(Driver):
    """``helper``: path of omfs-criu, with omfs-criu-attach beside it; found automatically if not given."""

    name = "criu"

    def __init__(self, helper: Optional[str] = None) -> None:
        self._helper = helper or os.environ.get(HELPER) or next(filter(os.path.exists, PLACES), PLACES[0])
        self._tool = ""

    def version(self) -> str:
        """Also dumps and restores a small process, once in each run: nothing less proves that CRIU works here."""
        if not self._tool:
            tool = self._ask_version()
            scratch = ""
            try:
                scratch = tempfile.mkdtemp(prefix="omfs-criu-")
                self._try_out(scratch)
            except (CannotStart, CannotStop, OSError) as error:
                raise CannotStart("self_test", "{} does not work on this node: {}".format(tool, error)) from None
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            self._tool = tool
        return self._tool

    def start(self, command: Sequence[str], scratch: str) -> Program:
        self.version()
        _require_streams()
        try:
            return self._start(command, scratch, None)
        except OSError as error:
            raise CannotStart("not_writable", "{}: {}".format(scratch, error.strerror)) from None

    def restart(self, directory: str, image: Image, scratch: str, timeout: float) -> Program:
        self.version()
        _require_streams()
        try:
            return self._restart(directory, scratch, timeout, None)
        except OSError as error:
            raise CannotStart("not_writable", "{}: {}".format(scratch, error.strerror)) from None

    def _ask_version(self) -> str:
        try:
            process = subprocess.Popen(
                [self._helper, "version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise CannotStart("tool_missing", "{}: {}".format(self._helper, error.strerror)) from None
        try:
            answer = process.communicate(timeout=_VERSION_SECONDS)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            text = "{} did not respond within {:g} s".format(self._helper, _VERSION_SECONDS)
            raise CannotStart("tool_hung", text) from None
        found = re.search(r"^Version: (\S+)", answer, re.MULTILINE)
        if process.returncode != 0 or not found:
            last = (answer.strip().splitlines() or ["no message"])[-1]
            raise CannotStart("tool_missing", "{}: {}".format(self._helper, last))
        return "criu {}".format(found.group(1))

    def _try_out(self, scratch: str) -> None:
        images = os.path.join(scratch, "images")
        os.mkdir(images, 0o700)
        program = self._start(["sleep", "600"], scratch, subprocess.DEVNULL)
        try:
            program.checkpoint(images, _TRIAL, durable=False)
        finally:
            program.kill()
        program = self._restart(images, scratch, _TRIAL, subprocess.DEVNULL)
        try:
            if program.wait(0) is not None:
                raise CannotStart("self_test", "the restored process ended at once")
        finally:
            program.kill()

    def _start(self, command: Sequence[str], scratch: str, output: Optional[int]) -> "_Run":
        work = tempfile.mkdtemp(prefix="start-", dir=scratch)
        attach = self._open([self._helper + "-attach", "start", work, *command], output)
        pid = _attached(attach, work, time.monotonic() + _END)
        if pid:
            return _Run(self._helper, self._tool, attach, pid, scratch)
        _end(attach)
        reason = _read(os.path.join(work, "refused")).strip() or "omfs-criu-attach failed"
        why = "no_program" if reason == os.strerror(2) else "not_executable"
        raise CannotStart(why, "{}: {}".format(command[0], "not found" if why == "no_program" else reason))

    def _restart(self, directory: str, scratch: str, timeout: float, output: Optional[int]) -> "_Run":
        began, pause = time.monotonic(), _FIRST_PAUSE
        end, taken = began + timeout, None  # type: float, Optional[dump_images.CriuFailure]
        while True:
            work = tempfile.mkdtemp(prefix="restore-", dir=scratch)
            with tempfile.TemporaryFile(dir=work) as errors:
                criu = self._open([self._helper, "restore", directory, work], output, errors.fileno())
                pid = _attached(criu, work, end)
                if pid:
                    return _Run(self._helper, self._tool, criu, pid, scratch)
                hung = criu.poll() is None
                _end(criu)
                errors.seek(0)
                text = errors.read().decode(errors="replace")
            error = dump_images.find_failure(_read(os.path.join(work, "restore.log")), text)
            if hung and taken:  # the last of several attempts had too little time left
                raise CannotStart(taken.why, "criu cannot restore: {}".format(taken.message))
            if hung:
                raise CannotStart("tool_hung", "criu did not restore within {:g} s".format(timeout))
            free_by = min(end, began + _TAKEN.get(error.why, 0.0))
            if time.monotonic() + pause > free_by:
                raise CannotStart(error.why, "criu cannot restore: {}".format(error.message))
            taken = error
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _open(
        self, arguments: Sequence[str], output: Optional[int], errors: Optional[int] = None
    ) -> "subprocess.Popen[bytes]":
        null = subprocess.DEVNULL if output is not None else None
        try:
            return subprocess.Popen(arguments, stdin=null, stdout=output, stderr=output if errors is None else errors)
        except (OSError, ValueError) as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            raise CannotStart("tool_missing", "{}: {}".format(arguments[0], text)) from None


class _Dump(NamedTuple):
    code: Optional[int]  # None: it did not end in time and was killed
    error: dump_images.CriuFailure


class _Run(Program):
    def __init__(self, helper: str, tool: str, attach: "subprocess.Popen[bytes]", pid: int, scratch: str) -> None:
        self._helper = helper
        self._tool = tool
        self._attach = attach
        self._scratch = scratch
        self._leader = criu_processes.process_now(pid)
        self.pid = pid

    def wait(self, timeout: float) -> Optional[int]:
        try:
            code = self._attach.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        if code < 0:
            self.kill()  # whoever killed the parent left nobody to report the program's end
            return 128 - code
        return code

    def signal(self, number: int) -> None:
        if self._leader is not None and self._attach.poll() is None:
            criu_processes.send(self._leader, number)

    def checkpoint(self, directory: str, timeout: float, durable: bool = True) -> Image:
        """See Program; unless ``durable``, the images are not forced to disk."""
        end = time.monotonic() + timeout
        for left in reversed(range(_TRIES)):
            try:
                return self._take(directory, end, durable)
            except CannotStop as fault:
                if fault.why != "unfit" or not fault.alive or not left:
                    raise
                time.sleep(_BETWEEN_TRIES)
        raise AssertionError("not reached")

    def _take(self, directory: str, end: float, durable: bool) -> Image:
        timeout = max(end - time.monotonic(), _POLL)
        before = self._members()
        self._refuse_strays()
        _refuse_files(before)
        dump = self._dump(directory, timeout)
        if dump.code != 0:
            hung = dump.code is None
            why = "tool_hung" if hung else dump.error.why
            text = "criu did not finish within {:g} s".format(timeout) if hung else dump.error.message
            raise self._runs_on(before, directory, why, text)
        try:
            stopped = self._members()
            halted = criu_processes.await_stopped(stopped, _HALT)
            marks = criu_processes.switches(stopped)
            tasks = {one.pid: criu_processes.threads(one.pid) for one in stopped if criu_processes.is_alive(one)}
            files = dump_images.verify(directory, tasks)
            _refuse_exit_codes(stopped)
            size = dump_images.to_disk(directory, files) if durable else 0
        except dump_images.IncompleteDump as error:
            raise self._runs_on(before, directory, "not_verified", str(error)) from None
        except _Unfit as error:
            raise self._runs_on(before, directory, "unfit", str(error)) from None
        except OSError as error:
            raise self._runs_on(before, directory, "not_verified", error.strerror or str(error)) from None
        if time.monotonic() > end:
            raise self._runs_on(before, directory, "tool_hung", "not on disk within {:g} s".format(timeout))
        # A process that others continued since (Slurm sends SIGCONT, too) has run on, and its image is outdated.
        still = criu_processes.are_stopped(stopped) and criu_processes.switches(stopped) == marks
        if not (stopped and halted and still):
            raise self._runs_on(before, directory, "woken", "the program was resumed before it could be killed")
        criu_processes.end_stopped(stopped, _END)
        self._wait_attach()
        return Image(files, self._tool, size)

    def kill(self) -> None:
        roots = [] if self._attach.poll() is not None else [self._attach.pid]
        criu_processes.end_tree(roots, self._leader, _END)
        self._wait_attach()

    def _members(self) -> List[CriuProcess]:
        return criu_processes.tree_of(self.pid, criu_processes.all_processes())

    def _wait_attach(self) -> None:
        # A process that hangs in the kernel has its SIGKILL and runs no more.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._attach.wait(_END)

    def _refuse_strays(self) -> None:
        """Refuse daemons and the like: CRIU would not dump them, and their work would be lost."""
        everyone = criu_processes.all_processes().values()
        for one in everyone:
            if one.parent == self._attach.pid and one.pid != self.pid and criu_processes.is_alive(one):
                text = "process {} has lost its parent: criu dumps only descendants of process {}"
                raise CannotStop("stray_process", text.format(one.pid, self.pid), alive=True)

    def _dump(self, directory: str, timeout: float) -> _Dump:
        try:
            work = tempfile.mkdtemp(prefix="dump-", dir=self._scratch)
            with open(os.path.join(work, "output"), "w+b") as output:
                helper = [self._helper, "dump", str(self.pid), directory, work]
                process = subprocess.Popen(helper, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
                code: Optional[int] = None
                try:
                    code = process.wait(timeout)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        except OSError as error:
            return _Dump(1, dump_images.CriuFailure("tool_failed", "{}: {}".format(self._helper, error.strerror)))
        text = _read(os.path.join(work, "output"))
        return _Dump(code, dump_images.find_failure(_read(os.path.join(work, "dump.log")), text))

    def _runs_on(self, before: List[CriuProcess], directory: str, why: str, text: str) -> CannotStop:
        """Let the program continue, except for processes that were stopped before."""
        dump_images.remove_dump(directory)
        stopped_before = [one.pid for one in before if one.state == "T"]
        known = {one.pid: one for one in before + self._members() if one.pid not in stopped_before}
        running = criu_processes.continue_processes(list(known.values()), _RELEASE)
        code = self.wait(0)
        if code is not None:
            return Ended(code)
        alive = criu_processes.is_alive(criu_processes.process_now(self.pid))
        rest = "" if running else "; and not all of its processes run again"
        return CannotStop(why, "no dump: {}{}".format(text, rest), alive=alive)


class _Unfit(Exception):
    pass


def _refuse_exit_codes(stopped: List[CriuProcess]) -> None:
    """Raise _Unfit if a parent would be told a wrong exit code after the restore."""
    for one in stopped:
        code = criu_processes.truncated_exit_code(one)
        if code:
            raise _Unfit("process {} has ended with exit code {} and is not waited for".format(one.pid, code))


def _refuse_files(processes: List[CriuProcess]) -> None:
    """Refuse open files that could not be opened again: CRIU would notice only at the restore.

    And timers read from descriptors that repeat: one that has fired and was not read is restored without its interval
    (tried with CRIU 4.2.1), and the program waits forever. And SIGALRM: that of a timer which fires during a dump or a
    restore may be lost, also to a program that is only dumped and runs on.
    """
    for one in processes:
        if catches(one.pid, signal.SIGALRM):
            raise CannotStop("unfit", "process {} waits for SIGALRM, which criu may lose".format(one.pid), alive=True)
        if criu_processes.has_repeating_timerfd(one.pid):
            text = "process {} has a timerfd open that repeats"
            raise CannotStop("unfit", text.format(one.pid), alive=True)
        for path in criu_processes.not_to_be_opened(one.pid):
            text = "process {} has {} open, which user {} may not open by its name"
            raise CannotStop("unopenable_file", text.format(one.pid, path, os.getuid()), alive=True)


def _attached(attach: "subprocess.Popen[bytes]", work: str, end: float) -> int:
    """The program's pid as soon as it is known; 0 if there is none, or none by ``end``."""
    while True:
        ended = attach.poll() is not None
        text = _read(os.path.join(work, "attached")).strip()
        if text.isdigit():
            return int(text)
        if ended or time.monotonic() > end:
            return 0
        time.sleep(_POLL)


def _end(attach: "subprocess.Popen[bytes]") -> None:
    if attach.poll() is None:
        criu_processes.end_tree([attach.pid], None, _END)
        attach.wait()


def _read(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _require_streams() -> None:
    """CannotStart unless CRIU can restore the standard streams: files (appended to), or /dev/null."""
    for number, name in enumerate(("input", "output", "error")):
        try:
            info = os.fstat(number)
        except OSError:
            continue  # closed
        if stat.S_ISREG(info.st_mode):
            # CRIU restores a file that is only appended to, whatever its size is by then.
            if number:
                flags = fcntl.fcntl(number, fcntl.F_GETFL)
                fcntl.fcntl(number, fcntl.F_SETFL, flags | os.O_APPEND)
        elif not (stat.S_ISCHR(info.st_mode) and info.st_rdev == os.stat(os.devnull).st_rdev):
            text = "standard {} is neither a file nor /dev/null: criu cannot restore it".format(name)
            raise CannotStart("standard_stream", text)
