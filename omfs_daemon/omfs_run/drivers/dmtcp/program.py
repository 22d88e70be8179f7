"""A program under DMTCP: watched, signaled, and ended."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from typing import List, Optional, Set

from omfs_daemon.omfs_run.drivers.dmtcp import dmtcp_processes as processes
from omfs_daemon.omfs_run.drivers.dmtcp import environment as environments
from omfs_daemon.omfs_run.drivers.dmtcp.checkpoint import DmtcpCheckpoint
from omfs_daemon.omfs_run.drivers.dmtcp.coordinator import Coordinator, DmtcpPeer
from omfs_daemon.omfs_run.drivers.dmtcp.hold import ProcessHold
from omfs_daemon.omfs_run.drivers.dmtcp.own_coordinator import Clock, OwnCoordinator, Sleep
from omfs_daemon.omfs_run.drivers.dmtcp.rehearsal import Rehearsal
from omfs_daemon.omfs_run.drivers.dmtcp.scratch import ScratchDirectory
from omfs_daemon.omfs_run.drivers.dmtcp.tools import FAILED, KILLED, POLL, QUIT_SECONDS, Tools, program_lost
from omfs_daemon.omfs_run.drivers.driver import CannotStart, CannotStop, Image, Program

# 128 + SIGILL, SIGABRT, SIGBUS, SIGSEGV: of a process that has come back wrong.
_OF_A_FAULT = (132, 134, 135, 139)
_STATUS_TRIES = 3  # questions to the coordinator whether it still runs, of ten seconds at most


class DmtcpProgram(Program):
    """A program under DMTCP. dmtcp_launch and dmtcp_restart become the program, so their pid is its pid."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        own: OwnCoordinator,
        scratch: ScratchDirectory,
        tools: Tools,
        clock: Clock,
        sleep: Sleep,
        stall_limit: float,
    ) -> None:
        self.pid = process.pid
        self.own = own
        self.scratch = scratch
        self.tools = tools
        self.clock = clock
        self.sleep = sleep
        self.stall_limit = stall_limit
        self.may_lose_statuses = False
        self.rehearsal: Optional[Rehearsal] = None
        self._process = process
        self._coordinator = Coordinator(tools.command, scratch.port_file, scratch.environment)
        self._checkpoint = DmtcpCheckpoint(self._coordinator, self)
        self._ended_by_us = False
        self._cause: Optional[CannotStop] = None  # of an end that was not the program's own
        self._is_own_end = False
        self._may_have_left = True  # processes running when it ended
        self._known: Set[processes.DmtcpProcess] = set()
        self._nothing_left = False

    # --- the interface of every program

    def wait(self, timeout: float) -> Optional[int]:
        deadline = self.clock() + timeout
        while True:
            code = self.exit_code()
            left = deadline - self.clock()
            if code is not None or left <= 0:
                break
            self.sleep(min(POLL, left))
        if code is None:
            self._checkpoint.recheck()
        else:
            self.require_own_end(code)
        return code

    def ready(self) -> bool:
        status = self._coordinator.status(2.0)
        return status is not None and status.running

    def signal(self, number: int) -> None:
        if number == environments.checkpoint_signal(self.scratch.environment):
            name = signal.Signals(number).name
            sys.stderr.write("omfs-run: {} is not passed on: DMTCP uses it itself\n".format(name))
            return
        if self.exit_code() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def checkpoint(self, directory: str, timeout: float) -> Image:
        return self._checkpoint.checkpoint(directory, timeout)

    def salvage(self, directory: str) -> Image:
        return self._checkpoint.salvage(directory)

    def kill(self) -> None:
        if self._nothing_left:
            return
        self.remember_peers()
        if self.exit_code() is None:
            self._ended_by_us = True
            self._coordinator.quit(QUIT_SECONDS)
        # No deadline of its own: SIGKILL needs no time but the kernel's.
        self._nothing_left = processes.kill_until_gone(self._find, self.sleep)
        self.own.end()
        self.exit_code()
        if not self._nothing_left:
            sys.stderr.write("omfs-run: some processes under DMTCP could not be killed\n")

    # --- how it ended

    def require_own_end(self, code: int) -> None:
        """Return if the exit code is the program's own, or came of our ending it; CannotStop if it was killed."""
        if self._cause is not None:
            raise self._cause
        if self._is_own_end or self._ended_by_us:
            return
        cause = self.judge_end(code)
        if cause is not None:
            raise cause
        if self.scratch.mpi_session:
            shutil.rmtree(self.scratch.mpi_session, ignore_errors=True)
        if self._may_have_left:
            self._coordinator.quit(QUIT_SECONDS)
        self.own.end()

    def judge_end(self, code: int) -> Optional[CannotStop]:
        """Find out and remember why the program ended; None if the end was its own."""
        self._cause = self._find_cause(code)
        self._is_own_end = self._cause is None
        return self._cause

    def finished_first(self) -> bool:
        """Whether a program that has ended had finished before the checkpoint that has begun could reach it.

        DMTCP freezes all processes before it writes anything, and ends each only when its image is written. So what the
        program's first process did before it left any part of an image, it did by itself, whatever became of the
        others. What the coordinator kills, it logs before.
        """
        self.own.read_output()
        return (
            not self.own.killed and self.own.reports and self.own.alive() and self._checkpoint.never_reached_program()
        )

    def ended_by_checkpoint(self) -> None:
        """Record that the program ended with a complete checkpoint."""
        self._ended_by_us, self._cause = True, None

    def _find_cause(self, code: int) -> Optional[CannotStop]:
        """Why this exit code is not the program's own, None if it is.

        DMTCP may also be behind a code that it never returns: that of a parent whose child it killed.
        """
        status = None
        for _ in range(_STATUS_TRIES if code in (KILLED, FAILED) else 1):
            status = self._coordinator.status()
            if status is not None or not self.own.alive():
                break
        self._may_have_left = status is None or status.peers > 0
        self.own.read_output()
        if self.own.killed:
            return program_lost("killed", "the program was killed from outside, through DMTCP's coordinator")
        if not self.own.alive() or (status is not None and not status.found):
            return program_lost("coordinator_gone", "DMTCP's coordinator has died, and the program with it")
        if (
            self._checkpoint.is_under_way()
            and (code in (KILLED, FAILED) or self._checkpoint.peers != 1)
            and (code == FAILED or not self.finished_first())
        ):
            text = "the program ended (exit code {}) during a checkpoint that DMTCP had begun".format(code)
            return program_lost("tool_failed", text)
        if code in (KILLED, FAILED) and status is None:
            text = "DMTCP's coordinator does not respond; exit code {} may be DMTCP's own".format(code)
            return program_lost("tool_hung", text)
        if code in (KILLED, FAILED) and not self.own.reports:
            text = "this DMTCP does not report what it does; exit code {} may be DMTCP's own".format(code)
            return program_lost("tool_failed", text)
        return None

    # --- a restart

    def require_running(self, deadline: float, count: int, tool: str) -> None:
        """Watch until all processes run; CannotStart, also at the deadline: a truncated image would spin forever."""
        state = "no process has started"
        while True:
            code = self.exit_code()
            if code is not None:
                own = self.scratch.has_restarted(self.pid) and code not in _OF_A_FAULT
                if code == FAILED or code in (126, 127) or (code > 128 and not own):
                    text = "dmtcp_restart ended with exit code {}{}".format(code, self._other_tool(tool))
                    raise CannotStart("tool_failed", text)
                try:
                    self.require_own_end(code)
                except CannotStop as end:
                    raise CannotStart(end.why, end.message) from None
                return  # it was restarted and ended by itself before it was seen
            peers = self._coordinator.peers(self.left(deadline))
            if peers and all(peer.state == "RUNNING" for peer in peers):
                return
            if peers:
                state = "{} of {} processes are up, in state {}".format(len(peers), count, peers[0].state)
            if self.clock() >= deadline:
                text = "the restart did not complete: {}{}".format(state, self._other_tool(tool))
                raise CannotStart("tool_hung", text)
            self.sleep(POLL)

    def require_held(self, hold: ProcessHold, count: int, deadline: float) -> None:
        """Watch a copy until all of its ``count`` processes are held; CannotStart."""
        most = 0
        while len(hold.held()) != count:
            code, now = self.exit_code(), self.clock()
            if code is not None:
                raise CannotStart("tool_failed", "dmtcp_restart ended with exit code {}".format(code))
            connected = len(self._coordinator.peers(self.left(deadline)))
            most = max(most, connected)
            if connected < most:
                raise CannotStart("tool_failed", "{} of {} processes were left".format(connected, count))
            if now >= deadline:
                raise CannotStart("tool_hung", "only {} of {} processes were restored".format(len(hold.held()), count))
            self.sleep(POLL)

    def _other_tool(self, tool: str) -> str:
        if tool == self.tools.shown:
            return ""
        return " (the image was made by {}, this is {})".format(tool, self.tools.shown)

    # --- processes

    def exit_code(self) -> Optional[int]:
        """The exit code as DMTCP left it; None while the program runs."""
        self.own.read_output()
        self._checkpoint.note_begun()
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def left(self, deadline: float) -> float:
        """Seconds for a question to the coordinator."""
        return min(10.0, max(deadline - self.clock(), 0.5))

    def remember_peers(self) -> List[DmtcpPeer]:
        """Record the processes that the coordinator lists: an orphan of a restart is found in no other way."""
        listed = self._coordinator.peers(QUIT_SECONDS) if self.exit_code() is None else []
        self._known |= set(processes.processes_of([peer.pid for peer in listed]))
        return listed

    def _find(self) -> Set[processes.DmtcpProcess]:
        self.exit_code()  # reaps the program itself
        return processes.belonging(self.pid, self._known, self.scratch.temporary)
