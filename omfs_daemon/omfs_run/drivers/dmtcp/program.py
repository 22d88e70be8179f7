"""Watched, signalled, ended."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from typing import List, Optional, Set, Tuple
from omfs_daemon.omfs_run.drivers.dmtcp import environment as environments
from omfs_daemon.omfs_run.drivers.dmtcp import images
from omfs_daemon.omfs_run.drivers.dmtcp import dmtcp_processes as processes
from omfs_daemon.omfs_run.drivers.dmtcp.coordinator import Coordinator
from omfs_daemon.omfs_run.drivers.dmtcp.coordinator import Status
from omfs_daemon.omfs_run.drivers.dmtcp.own_coordinator import Clock
from omfs_daemon.omfs_run.drivers.dmtcp.own_coordinator import OwnCoordinator
from omfs_daemon.omfs_run.drivers.dmtcp.own_coordinator import Sleep
from omfs_daemon.omfs_run.drivers.dmtcp.scratch import Place
from omfs_daemon.omfs_run.drivers.driver import CannotStart
from omfs_daemon.omfs_run.drivers.driver import CannotStop
from omfs_daemon.omfs_run.drivers.driver import Ended
from omfs_daemon.omfs_run.drivers.driver import Image
from omfs_daemon.omfs_run.drivers.driver import Program
from omfs_daemon.omfs_run.drivers.dmtcp.tools import FAILED
from omfs_daemon.omfs_run.drivers.dmtcp.tools import KILLED
from omfs_daemon.omfs_run.drivers.dmtcp.tools import _POLL
from omfs_daemon.omfs_run.drivers.dmtcp.tools import _GLANCE
from omfs_daemon.omfs_run.drivers.dmtcp.checkpoint import _LONGEST_POLL
from omfs_daemon.omfs_run.drivers.dmtcp.checkpoint import _REFUSED_AFTER
from omfs_daemon.omfs_run.drivers.dmtcp.tools import _SURELY_OVER_AFTER
from omfs_daemon.omfs_run.drivers.dmtcp.checkpoint import _PATIENCE
from omfs_daemon.omfs_run.drivers.dmtcp.checkpoint import _LEAVE_SECONDS
from omfs_daemon.omfs_run.drivers.dmtcp.tools import _QUIT_SECONDS
from omfs_daemon.omfs_run.drivers.dmtcp.tools import Tools
from omfs_daemon.omfs_run.drivers.dmtcp.tools import _gone
_ANSWERS = 3  # times that the coordinator is asked whether it is still there, of ten seconds at most


class DmtcpProgram(Program):
    """A program under DMTCP; dmtcp_launch and dmtcp_restart become the program, so their pid is its pid."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        own: OwnCoordinator,
        place: Place,
        tools: Tools,
        clock: Clock,
        sleep: Sleep,
        stalled: float,
    ) -> None:
        self._stalled = stalled
        self.pid = process.pid
        self._process = process
        self._own = own
        self._place = place
        self._tools = tools
        self._clock = clock
        self._sleep = sleep
        self._coordinator = Coordinator(tools.command, place.port_file, place.environment)
        self._lock = threading.Lock()
        # How many of the checkpoints that were begun, by us or by others, are known to be over; when the last was.
        self._over = 0
        self._seen_begun = 0
        self._begun_at = 0.0
        self._peers = 0  # when a checkpoint was asked for last
        self._ended_by_us = False
        self._judged: Optional[CannotStop] = None
        self._is_own = False
        self._known: Set[processes.Process] = set()
        self._nothing_left = False

    # --- what every program can

    def wait(self, timeout: float) -> Optional[int]:
        deadline = self._clock() + timeout
        while True:
            code = self._code()
            left = deadline - self._clock()
            if code is not None or left <= 0:
                break
            self._sleep(min(_POLL, left))
        if code is None:
            self._look_after()
        else:
            self._require_own(code)
        return code

    def _look_after(self) -> None:
        """A checkpoint that was begun long ago, by whomever, is over if all processes run now."""
        if self._own.begun > self._over and self._clock() - self._begun_at >= _SURELY_OVER_AFTER:
            status = self._coordinator.status(2.0)
            if status is not None and status.running:
                self._settle()
            else:
                self._begun_at = self._clock()  # looked at again after as long

    def _require_own(self, code: int) -> None:
        """Return if the exit code is the program's own end (or came of ours); raises CannotStop if it was killed."""
        if self._judged is not None:
            raise self._judged
        if self._is_own or self._ended_by_us:
            return
        self._judged = self._judge(code)
        if self._judged is not None:
            raise self._judged
        self._is_own = True
        if self._place.mpi_session:
            shutil.rmtree(self._place.mpi_session, ignore_errors=True)
        self._coordinator.quit(_QUIT_SECONDS)  # with what the program has left running
        self._own.end()

    def _judge(self, code: int) -> Optional[CannotStop]:
        """Why this exit code is not the program's own, None if it is.

        Also one that DMTCP never gives may be what a parent made of a child that it has killed.
        """
        status = None
        for _ in range(_ANSWERS if code in (KILLED, FAILED) else 1):
            status = self._coordinator.status()
            if status is not None or not self._own.alive():
                break
        self._own.hear()
        if self._own.killed:
            return _gone("killed", "the program was killed from outside, through DMTCP's coordinator")
        if not self._own.alive() or (status is not None and not status.found):
            return _gone("coordinator_gone", "DMTCP's coordinator has died, and the program with it")
        if self._own.begun > self._over and (code in (KILLED, FAILED) or self._peers != 1):
            text = "the program ended ({}) with a checkpoint that DMTCP had begun".format(code)
            return _gone("tool_failed", text)
        if code in (KILLED, FAILED) and status is None:
            text = "DMTCP's coordinator does not answer; the exit code {} may be DMTCP's own".format(code)
            return _gone("tool_hung", text)
        if code in (KILLED, FAILED) and not self._own.talks:
            text = "this DMTCP does not tell what it does; the exit code {} may be DMTCP's own".format(code)
            return _gone("tool_failed", text)
        return None

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
            self._ended_by_us = True
            self._coordinator.quit(_QUIT_SECONDS)
        # The same deadline for all: SIGKILL needs no time but the kernel's.
        self._nothing_left = processes.end_all(self._find, self._sleep)
        self._own.end()
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
        self._peers, before = peers, self._own.begun
        self._ask(deadline)
        self._await_end(directory, peers, deadline)
        names, fault = self._complete(directory, peers)
        code = self._leave()
        if code is None:
            raise CannotStop("tool_failed", "DMTCP's coordinator is gone, the program runs on without it", alive=True)
        if fault:
            raise self._lost(directory, code, before, fault)
        return self._made(directory, names, peers)

    def salvage(self, directory: str) -> Image:
        """The checkpoint that came when it had been given up, after the program has gone; CannotStop if none did."""
        directory = os.path.abspath(directory)
        names, fault = self._complete(directory, self._peers)
        if fault:
            raise _gone("not_verified", fault)
        return self._made(directory, names, self._peers)

    def _made(self, directory: str, names: List[str], peers: int) -> Image:
        if len(names) < peers:
            told = "omfs-run: of {} processes {} are in the checkpoint; the others ended while it was taken\n"
            sys.stderr.write(told.format(peers, len(names)))
        self.kill()
        try:
            files = images.seal(directory)
        except (OSError, images.Incomplete) as error:
            raise _gone("not_verified", "cannot put the checkpoint on disk: {}".format(error)) from None
        self._ended_by_us, self._judged = True, None
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
                self._require_own(code)
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
        """The program runs: what was begun long ago is over."""
        if self._clock() - self._begun_at >= _SURELY_OVER_AFTER:
            self._over = self._own.begun

    def _ask(self, deadline: float) -> None:
        quirks = self._tools.quirks
        longest = max(deadline - self._clock(), 0.1) if quirks.blocks else self._left(deadline)
        reply = self._coordinator.ask(quirks.request, timeout=longest)
        if reply.code is not None and reply.code not in quirks.accepted:
            last = (reply.stderr.strip().splitlines() or ["no message"])[0]
            sys.stderr.write("omfs-run: dmtcp_command ended with {}: {}\n".format(reply.code, last[:200]))

    def _await_end(self, directory: str, peers: int, deadline: float) -> None:
        """Until all have gone, or the coordinator has; raises CannotStop if they stay."""
        running_since: Optional[float] = None
        seen, grown = 0, self._clock()
        pause = _POLL
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
            # While it writes it is asked less and less often: whoever asks in the moment in which the coordinator ends
            # waits a second for the answer.
            pause = _POLL if status is None or status.running else min(2 * pause, _LONGEST_POLL)
            rested = self._clock() + pause
            while self._clock() < rested and self._code() is None:
                self._sleep(_GLANCE)
            if self._code() is not None and not self._is_complete(directory, peers):
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
        if running:
            self._settle()
            try:
                self._place.point_nowhere()
            except OSError as error:
                sys.stderr.write("omfs-run: cannot clear {}: {}\n".format(self._place.link, error.strerror))
            raise CannotStop("tool_failed", "DMTCP did not take the checkpoint; the program runs on", alive=True)
        if status is None and not written:
            # The checkpoint may still come, into this directory: see salvage.
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

    def _lost(self, directory: str, code: int, before: int, fault: str) -> CannotStop:
        """What to say of a program that is gone without a complete checkpoint."""
        judged = self._judged = self._judge(code)
        self.kill()
        if judged is None:
            self._is_own = True
            return Ended(code)
        if self._own.begun == before or judged.why in ("killed", "coordinator_gone"):
            return judged
        if code == KILLED:
            return _gone("not_verified", "the program is gone and the checkpoint is not whole: " + fault)
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
        return _gone(why, message)

    # --- a restart

    def require_running(self, deadline: float, count: int, tool: str) -> None:
        """Watch until all processes run; raises CannotStart, also at the deadline: a short image spins for ever."""
        state = "no process has come up"
        while True:
            code = self._code()
            if code is not None:
                if code == FAILED or code > 128 or code in (126, 127):
                    raise CannotStart("tool_failed", "dmtcp_restart ended with {}{}".format(code, self._other(tool)))
                try:
                    self._require_own(code)
                except CannotStop as gone:
                    raise CannotStart(gone.why, gone.message) from None
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
        self._own.hear()
        if self._own.begun > self._seen_begun:
            self._seen_begun, self._begun_at = self._own.begun, self._clock()
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
