"""DMTCP as a way of checkpointing: a coordinator of its own for each run, and a protocol that holds on every release.

The program is launched under a coordinator on a free port. To stop it: see that all its processes run, ask the
coordinator to checkpoint and then end them, wait until they have gone, and only then look at what lies on disk: that
alone decides. An exit code of 0 of the program says nothing then: DMTCP ends what it kills with 0.

DMTCP is told its directory once, when the program starts, and looks at the path when it writes. So the path is one in
the scratch directory, which becomes a link to the directory of the generation just before each checkpoint.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from omfs_daemon.launcher import dmtcp_environment as environments
from omfs_daemon.launcher import dmtcp_images as images
from omfs_daemon.launcher import dmtcp_processes as processes
from omfs_daemon.launcher.dmtcp_coordinator import Coordinator, Status, call
from omfs_daemon.launcher.dmtcp_versions import OLDEST, Quirks, Version, parse_version, quirks_of, shown
from omfs_daemon.launcher.driver import CannotStart, CannotStop, Driver, Ended, Image, Program

# DMTCP's own exit code for its own failures.
FAILED = 99
KILLED = 0

_POLL = 0.05
_VERSION_SECONDS = 20.0
# A coordinator that refused leaves the program RUNNING; one that accepted stops it within milliseconds.
_REFUSED_AFTER = 2.0
# A process in the kernel can hold up an accepted one; after this long of running on it surely was refused.
_SURELY_REFUSED_AFTER = 30.0
# The restart script comes last, possibly after the program has gone.
_PATIENCE = 5.0
_LEAVE_SECONDS = 5.0
_QUIT_SECONDS = 3.0

Clock = Callable[[], float]
Sleep = Callable[[float], None]


class Tools:
    """The paths of DMTCP's commands, its version and how that version behaves."""

    def __init__(self, launch: str, command: str, restart: str, version: Version) -> None:
        self.launch = launch
        self.command = command
        self.restart = restart
        self.version = version

    @property
    def quirks(self) -> Quirks:
        return quirks_of(self.version)

    @property
    def shown(self) -> str:
        return shown(self.version)


class Dmtcp(Driver):
    """``bin_directory``: where DMTCP's commands are (None: on the PATH); ``environment``: the job's.

    ``stalled``: seconds without a byte written after which a checkpoint that is over its time is given up.
    """

    name = "dmtcp"

    def __init__(
        self,
        bin_directory: Optional[str] = None,
        environment: Optional[Mapping[str, str]] = None,
        clock: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
        stalled: float = 60.0,
    ) -> None:
        self._stalled = stalled
        self._bin = bin_directory
        self._environment = dict(os.environ if environment is None else environment)
        self._clock = clock
        self._sleep = sleep
        self._tools: Optional[Tools] = None

    def version(self) -> str:
        return self._found().shown

    def start(self, command: Sequence[str], scratch: str) -> Program:
        tools = self._found()
        program = shutil.which(command[0], path=self._environment.get("PATH")) if command else None
        if program is None:
            # DMTCP ends with 99 for this and for its own failures alike.
            raise CannotStart("no_program", "no such program: {!r}".format(command[0] if command else ""))
        place = _Place(scratch, self._environment)
        if environments.is_mpi(command):
            place.use_mpi()
        arguments = [tools.launch, "--new-coordinator", "--coord-port", "0", "--port-file", place.port_file]
        arguments += ["--ckptdir", place.link, "-i", "0", "-q", *list(command)]
        return self._begin(arguments, place, tools)

    def restart(self, directory: str, image: Image, scratch: str, timeout: float) -> Program:
        deadline = self._clock() + timeout
        tools = self._found()
        names = [name for name in image.files if name.endswith(images.SUFFIX) and os.sep not in name]
        if not names:
            raise CannotStart("bad_image", "the checkpoint in {} lists no image of DMTCP".format(directory))
        paths = [os.path.join(os.path.abspath(directory), name) for name in names]
        missing = [path for path in paths if not os.path.isfile(path)]
        if missing:
            raise CannotStart("bad_image", "the checkpoint lacks {}".format(missing[0]))
        place = _Place(scratch, self._environment)
        if environments.holds_mpi(names):
            place.use_mpi()
        arguments = [tools.restart, "--new-coordinator", "-p", "0", "--port-file", place.port_file]
        arguments += ["--ckptdir", place.link, "-i", "0", "-q", *paths]
        # Started in the job's directory: a program that never changed its directory comes back in that of the restart.
        program = self._begin(arguments, place, tools)
        try:
            program.require_running(deadline, len(paths), image.tool)
        except BaseException:
            program.kill()
            raise
        return program

    def _begin(self, arguments: List[str], place: "_Place", tools: Tools) -> "DmtcpProgram":
        try:
            process = subprocess.Popen(arguments, env=place.environment, preexec_fn=os.setpgrp, restore_signals=True)
        except OSError as error:
            raise CannotStart("tool_failed", "cannot run {}: {}".format(arguments[0], error.strerror)) from None
        return DmtcpProgram(process, place, tools, self._clock, self._sleep, self._stalled)

    def _found(self) -> Tools:
        if self._tools is None:
            self._tools = self._find()
        return self._tools

    def _find(self) -> Tools:
        where = self._bin or self._environment.get("PATH", os.defpath)
        found = []
        for name in ("dmtcp_launch", "dmtcp_command", "dmtcp_restart"):
            path = shutil.which(name, path=where)
            if path is None:
                raise CannotStart("tool_missing", "{} is not in {}".format(name, self._bin or "the PATH"))
            found.append(os.path.abspath(path))
        environment = {name: value for name, value in self._environment.items() if not name.startswith("DMTCP_")}
        try:
            reply = call([found[0], "--version"], environment, _VERSION_SECONDS)
        except OSError as error:
            raise CannotStart("tool_missing", "cannot run {}: {}".format(found[0], error.strerror)) from None
        version = parse_version(reply.stdout + reply.stderr)
        if version is None:
            raise CannotStart("tool_missing", "{} --version says no version".format(found[0]))
        if version < OLDEST:
            raise CannotStart("tool_missing", "{} is {}; 2.6.0 or later is needed".format(found[0], shown(version)))
        return Tools(found[0], found[1], found[2], version)


class _Place:
    """What a run has in its scratch directory, and its environment."""

    def __init__(self, scratch: str, environment: Mapping[str, str]) -> None:
        scratch = os.path.abspath(scratch)
        self.port_file = os.path.join(scratch, "dmtcp-port")
        self.link = os.path.join(scratch, "dmtcp-images")
        temporary = os.path.join(scratch, "dmtcp-tmp")
        self.mark = b"DMTCP_TMPDIR=" + os.fsencode(temporary)
        self.mpi_session = ""
        self._aside = 0
        self.environment: Dict[str, str] = environments.clean(environment, self.link, temporary)
        try:
            if os.path.lexists(self.port_file):
                os.unlink(self.port_file)
            # A directory, not yet a link: dmtcp_restart would follow it for good.
            self.point_nowhere()
            os.makedirs(temporary, 0o700, exist_ok=True)
        except OSError as error:
            raise CannotStart("no_scratch", "cannot use {}: {}".format(scratch, error.strerror)) from None

    def use_mpi(self) -> None:
        self.mpi_session = environments.mpi_session(self.environment)
        self.environment = environments.for_open_mpi(self.environment, self.mpi_session)

    def point_to(self, directory: str) -> None:
        """From now on DMTCP writes into ``directory``; what lay at its own place (nothing, normally) is set aside."""
        new = self.link + ".new"
        if os.path.lexists(new):
            os.unlink(new)
        os.symlink(os.path.abspath(directory), new)
        self._set_aside()
        os.rename(new, self.link)

    def point_nowhere(self) -> None:
        """From now on DMTCP writes into an empty directory in the scratch."""
        self._set_aside()
        os.mkdir(self.link, 0o700)

    def _set_aside(self) -> None:
        if os.path.islink(self.link):
            os.unlink(self.link)
        elif os.path.lexists(self.link):
            while os.path.lexists("{}.{}".format(self.link, self._aside)):
                self._aside += 1
            os.rename(self.link, "{}.{}".format(self.link, self._aside))


class DmtcpProgram(Program):
    """A program under DMTCP; dmtcp_launch and dmtcp_restart become the program, so their pid is its pid."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        place: _Place,
        tools: Tools,
        clock: Clock,
        sleep: Sleep,
        stalled: float,
    ) -> None:
        self._stalled = stalled
        self.pid = process.pid
        self._process = process
        self._place = place
        self._tools = tools
        self._clock = clock
        self._sleep = sleep
        self._coordinator = Coordinator(tools.command, place.port_file, place.environment)
        self._lock = threading.Lock()
        # A checkpoint was asked for and it is not known what came of it: the program may be ended by it at any time.
        self._pending = False
        self._asked = 0.0
        self._stopped = False
        self._known: Set[processes.Process] = set()
        self._nothing_left = False

    # --- what every program can

    def wait(self, timeout: float) -> Optional[int]:
        """Its exit code. 0 while a checkpoint that came to no end may have killed it is told as 99, DMTCP's failure."""
        deadline = self._clock() + timeout
        while True:
            code = self._code()
            left = deadline - self._clock()
            if code is not None or left <= 0:
                break
            self._sleep(min(_POLL, left))
        if code == KILLED and self._pending:
            return FAILED
        if code is not None and self._place.mpi_session and not self._pending and not self._stopped:
            shutil.rmtree(self._place.mpi_session, ignore_errors=True)
        return code

    def ready(self) -> bool:
        status = self._coordinator.status(2.0)
        return status is not None and status.running

    def signal(self, number: int) -> None:
        if number == environments.checkpoint_signal(self._place.environment):
            name = signal.Signals(number).name
            sys.stderr.write("omfs-run: {} is DMTCP's own signal and is not passed on\n".format(name))
            return
        if self._code() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        if self._nothing_left:
            return
        self._remember()
        if self._code() is None:
            self._coordinator.quit(_QUIT_SECONDS)
        # The same deadline for all: SIGKILL needs no time but the kernel's.
        self._nothing_left = processes.end_all(self._find, self._sleep)
        self._code()
        if not self._nothing_left:
            sys.stderr.write("omfs-run: processes under DMTCP that cannot be killed are left\n")

    # --- a checkpoint

    def checkpoint(self, directory: str, timeout: float) -> Image:
        if not self._lock.acquire(False):
            raise CannotStop("busy", "a checkpoint is under way already", alive=self._code() is None)
        try:
            return self._checkpoint(os.path.abspath(directory), self._clock() + timeout)
        finally:
            self._lock.release()

    def _checkpoint(self, directory: str, deadline: float) -> Image:
        self._require_writable(directory)
        peers = self._peers_when_running(deadline)
        self._remember()
        self._place.point_to(directory)
        self._ask(deadline)
        self._await_end(directory, peers, deadline)
        names, fault = self._complete(directory, peers)
        code = self._leave()
        if code is None:
            raise CannotStop("tool_failed", "DMTCP's coordinator is gone, the program runs on without it", alive=True)
        if fault:
            raise self._lost(directory, code, peers, fault)
        if len(names) < peers:
            told = "omfs-run: of {} processes {} are in the checkpoint; the others ended while it was taken\n"
            sys.stderr.write(told.format(peers, len(names)))
        self.kill()
        try:
            files = images.seal(directory)
        except (OSError, images.Incomplete) as error:
            raise CannotStop(
                "not_verified", "cannot put the checkpoint on disk: {}".format(error), alive=False
            ) from None
        self._pending, self._stopped = False, True
        size = sum(os.path.getsize(os.path.join(directory, name)) for name in files)
        return Image(files, self._tools.shown, size)

    def _require_writable(self, directory: str) -> None:
        # DMTCP finds this out when it writes, and kills the program for it.
        alive = self._code() is None
        if os.path.islink(directory) or not os.path.isdir(directory) or os.listdir(directory):
            raise CannotStop("bad_directory", "{} is not a new, empty directory".format(directory), alive)
        probe = os.path.join(directory, ".omfs-probe")
        try:
            os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            os.unlink(probe)
        except OSError as error:
            raise CannotStop(
                "not_writable", "cannot write into {}: {}".format(directory, error.strerror), alive
            ) from None

    def _peers_when_running(self, deadline: float) -> int:
        """How many processes there are, once all run; nothing has been asked for when this raises."""
        status: Optional[Status] = None
        while True:
            code = self._code()
            if code is not None:
                if code == FAILED or (code == KILLED and self._pending):
                    raise CannotStop("tool_failed", "the program was ended by DMTCP ({})".format(code), alive=False)
                raise Ended(code)
            status = self._coordinator.status(self._left(deadline))
            if status is not None and status.running:
                self._settle()
                return status.peers
            if self._clock() >= deadline:
                break
            self._sleep(_POLL)
        if status is None:
            raise CannotStop("tool_hung", "DMTCP's coordinator does not answer", alive=True)
        if not status.found:
            raise CannotStop("tool_failed", "DMTCP's coordinator is gone", alive=True)
        raise CannotStop("busy", "the program is not in a state in which DMTCP can checkpoint it", alive=True)

    def _settle(self) -> None:
        """The program runs: what was asked for long ago was refused."""
        self._pending = self._pending and self._clock() - self._asked < _SURELY_REFUSED_AFTER

    def _ask(self, deadline: float) -> None:
        quirks = self._tools.quirks
        if not self._pending:
            self._pending, self._asked = True, self._clock()
        longest = max(deadline - self._clock(), 0.1) if quirks.blocks else self._left(deadline)
        reply = self._coordinator.ask(quirks.request, timeout=longest)
        if reply.code is not None and reply.code not in quirks.accepted:
            last = (reply.stderr.strip().splitlines() or ["no message"])[0]
            sys.stderr.write("omfs-run: dmtcp_command ended with {}: {}\n".format(reply.code, last[:200]))

    def _await_end(self, directory: str, peers: int, deadline: float) -> None:
        """Until all have gone, or the coordinator has; raises CannotStop if they stay."""
        running_since: Optional[float] = None
        seen, grown = 0, self._clock()
        while True:
            if self._code() is not None and self._is_complete(directory, peers):
                return  # not asked: it takes dmtcp_command a second to find out that there is no coordinator
            status = self._coordinator.status(self._left(deadline))
            now = self._clock()
            if status is not None and (not status.found or status.peers == 0):
                return
            if self._code() is not None and status is None:
                return
            if status is None or not status.running:
                running_since = None
            elif running_since is None:
                running_since = now
            written = images.bytes_in(directory)
            if written != seen:
                seen, grown = written, now
            if now >= deadline and self._code() is None:
                self._give_up(status, written, now - grown, 0.0 if running_since is None else now - running_since)
            if running_since is not None and now - running_since >= _REFUSED_AFTER:
                # Refused, whatever was answered. Asking again cannot make two of one: a second one is refused.
                self._ask(deadline)
                running_since = None
            self._sleep(_POLL)

    def _give_up(self, status: Optional[Status], written: int, still: float, ran: float) -> None:
        """Over time: raise CannotStop, or return to wait on.

        DMTCP cannot be told to leave off. Once it has stopped the processes they compute no more, and when the images
        are written it ends them: so as long as it writes, waiting loses the least. If it does not, the program is
        frozen for good, and is ended.
        """
        running = status is not None and status.running
        if running and ran < _REFUSED_AFTER:
            return  # it may have been accepted a moment ago
        if running or (status is None and not written):
            if running:
                self._settle()
            try:
                self._place.point_nowhere()
            except OSError as error:
                sys.stderr.write("omfs-run: cannot clear {}: {}\n".format(self._place.link, error.strerror))
            if running:
                raise CannotStop("tool_failed", "DMTCP did not take the checkpoint; the program runs on", alive=True)
            raise CannotStop("tool_hung", "DMTCP's coordinator does not answer", alive=True)
        if still >= self._stalled:
            self.kill()
            text = "DMTCP froze the program and has written nothing for {:.0f} s; it was ended".format(still)
            raise CannotStop("tool_hung", text, alive=self._code() is None)

    def _is_complete(self, directory: str, peers: int) -> bool:
        try:
            return bool(images.complete_set(directory, peers))
        except (images.Incomplete, OSError):
            return False

    def _complete(self, directory: str, peers: int) -> Tuple[List[str], str]:
        """The images, or what is missing still after some seconds of patience."""
        deadline = self._clock() + _PATIENCE
        while True:
            try:
                return images.complete_set(directory, peers), ""
            except (images.Incomplete, OSError) as error:
                fault = str(error)
            code = self._code()
            if self._clock() >= deadline or code not in (None, KILLED):
                return [], fault
            self._sleep(_POLL)

    def _leave(self) -> Optional[int]:
        deadline = self._clock() + _LEAVE_SECONDS
        while self._code() is None and self._clock() < deadline:
            self._sleep(0.01)
        return self._code()

    def _lost(self, directory: str, code: int, peers: int, fault: str) -> CannotStop:
        """What to say of a program that is gone without a complete checkpoint."""
        self.kill()
        if code not in (KILLED, FAILED) and peers == 1:
            # With more than one process the code may be what a parent made of a child that DMTCP ended.
            self._pending = False
            return Ended(code)
        if code == KILLED:
            return CannotStop(
                "not_verified", "the program is gone and the checkpoint is not whole: " + fault, alive=False
            )
        why = "tool_failed"
        try:
            space = os.statvfs(directory)
            if space.f_bavail * space.f_frsize < 1 << 20:
                why = "no_space"
            elif not os.access(directory, os.W_OK | os.X_OK):
                why = "not_writable"
        except OSError:
            why = "not_writable"
        message = "the program was ended by DMTCP's failure ({}) and the checkpoint is not whole: {}".format(
            code, fault
        )
        return CannotStop(why, message, alive=False)

    # --- a restart

    def require_running(self, deadline: float, count: int, tool: str) -> None:
        """Watch until all processes run; raises CannotStart, also at the deadline: a short image spins for ever."""
        state = "no process has come up"
        while True:
            code = self._code()
            if code is not None:
                if code == FAILED or code > 128 or code in (126, 127):
                    raise CannotStart("tool_failed", "dmtcp_restart ended with {}{}".format(code, self._other(tool)))
                return  # it came back and ended by itself before it was seen
            peers = self._coordinator.peers(self._left(deadline))
            if peers and all(peer.state == "RUNNING" for peer in peers):
                return
            if peers:
                state = "{} of {} processes are up, in state {}".format(len(peers), count, peers[0].state)
            if self._clock() >= deadline:
                raise CannotStart("tool_hung", "the restart came to no end: {}{}".format(state, self._other(tool)))
            self._sleep(_POLL)

    def _other(self, tool: str) -> str:
        return "" if tool == self._tools.shown else " (the image is of {}, this is {})".format(tool, self._tools.shown)

    # --- processes

    def _code(self) -> Optional[int]:
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def _left(self, deadline: float) -> float:
        return min(10.0, max(deadline - self._clock(), 0.5))

    def _remember(self) -> None:
        """Note what the coordinator lists: a restarted orphan is found in no other way."""
        if self._code() is None:
            listed = [peer.pid for peer in self._coordinator.peers(_QUIT_SECONDS)]
            self._known |= set(processes.processes_of(listed))

    def _find(self) -> Set[processes.Process]:
        self._code()  # so that the program itself is no zombie
        return processes.belonging(self.pid, self._known, self._place.mark)
