"""Checkpoints of a program under DMTCP: requested, awaited, and verified."""

import os
import sys
import threading
from typing import TYPE_CHECKING, List, Optional, Tuple

from omfs_daemon.omfs_run.drivers.dmtcp import fitness, images
from omfs_daemon.omfs_run.drivers.dmtcp.coordinator import Coordinator, Status
from omfs_daemon.omfs_run.drivers.dmtcp.rehearsal import Rehearsal
from omfs_daemon.omfs_run.drivers.dmtcp.tools import KILLED, POLL, SHORT_POLL, program_lost
from omfs_daemon.omfs_run.drivers.driver import CannotStart, CannotStop, Ended, Image
from omfs_daemon.omfs_run.drivers.processes import process_tree

if TYPE_CHECKING:
    from omfs_daemon.omfs_run.drivers.dmtcp.program import DmtcpProgram

_LONGEST_POLL = 0.5
# A coordinator that refused leaves the program RUNNING; one that accepted stops it within milliseconds.
_REFUSED_AFTER = 2.0
# The restart script comes last, possibly after the program has ended.
_IMAGES_SECONDS = 5.0
_EXIT_SECONDS = 5.0
_FIT_SECONDS = 3.0
_RESUME_SECONDS = 10.0
# A process in the kernel can delay a checkpoint; once the program has run on for this long, the checkpoint is over.
_SURELY_OVER_AFTER = 30.0


class DmtcpCheckpoint:
    """Checkpoints of one program. ``peers``: the number of its processes when the last one was requested."""

    def __init__(self, coordinator: Coordinator, program: "DmtcpProgram") -> None:
        self.peers = 0
        self._id = ""  # DMTCP's, of the program's first process
        self._coordinator = coordinator
        self._program = program
        self._clock = program.clock
        self._sleep = program.sleep
        self._lock = threading.Lock()
        # How many of the checkpoints that anyone began are known to be over, and when the last one began.
        self._over = 0
        self._seen_begun = 0
        self._begun_at = 0.0

    def note_begun(self) -> None:
        """Record the time if the coordinator has begun another checkpoint."""
        if self._program.own.begun > self._seen_begun:
            self._seen_begun, self._begun_at = self._program.own.begun, self._clock()

    def is_under_way(self) -> bool:
        """Whether a checkpoint that anyone began may not be over yet."""
        return self._program.own.begun > self._over

    def never_reached_program(self) -> bool:
        """Whether there is no part of an image of the program's first process, which the others were started by."""
        try:
            names = os.listdir(self._program.scratch.link)
        except OSError:
            return False
        return self._id != "" and not images.of_process(names, self._id)

    def recheck(self) -> None:
        """Consider a checkpoint that began long ago to be over if all processes run now."""
        if self.is_under_way() and self._clock() - self._begun_at >= _SURELY_OVER_AFTER:
            status = self._coordinator.status(2.0)
            if status is not None and status.running:
                self._settle()
            else:
                self._begun_at = self._clock()  # checked again after the same time

    def checkpoint(self, directory: str, timeout: float) -> Image:
        """Write a checkpoint into ``directory`` and end the program; see Program."""
        if not self._lock.acquire(False):
            raise CannotStop("busy", "a checkpoint is already in progress", alive=self._program.exit_code() is None)
        try:
            return self._checkpoint(os.path.abspath(directory), self._clock() + timeout)
        finally:
            self._lock.release()

    def salvage(self, directory: str) -> Image:
        """A checkpoint that was given up and completed later, after the program has ended; see Program."""
        directory = os.path.abspath(directory)
        names, fault = self._complete(directory, self.peers)
        if fault:
            raise program_lost("not_verified", fault)
        return self._image(directory, names, self.peers)

    def _checkpoint(self, directory: str, deadline: float) -> Image:
        self._require_writable(directory)
        self._peers_when_running(deadline)
        self._require_fit(deadline)
        if self._program.rehearsal is not None:
            self._program.rehearsal.require_harmless(self._program.pid)
        peers = self._peers_when_running(deadline)
        self._id = self._identify(deadline)
        self._program.scratch.point_to(directory)
        self.peers, before = peers, self._program.own.begun
        if self._program.rehearsal is not None:
            return self._rehearsed(self._program.rehearsal, directory, before, deadline)
        self._ask(deadline)
        self._await_end(directory, peers, deadline)
        return self._ended(directory, before)

    def _ended(self, directory: str, before: int) -> Image:
        """The image of a program that has ended or is about to; ``before``: checkpoints that had begun before."""
        names, fault = self._complete(directory, self.peers)
        code = self._await_exit()
        if code is None:
            raise CannotStop(
                "tool_failed", "DMTCP's coordinator has ended; the program continues without it", alive=True
            )
        if fault or self._program.finished_first():
            raise self._lost(directory, code, before, fault)
        return self._image(directory, names, self.peers)

    def _rehearsed(self, rehearsal: Rehearsal, directory: str, before: int, deadline: float) -> Image:
        try:
            rehearsal.hold.begin()
            self._ask(deadline)
            self._await_end(directory, self.peers, deadline)
            if self._program.exit_code() is not None:
                return self._ended(directory, before)
            names = images.complete_set(directory, self.peers)
            rehearsal.require_harmless(self._program.pid)  # nothing changes any more
            rehearsal.restart(directory, names, max(1.0, deadline - self._clock()))
            return self._image(directory, names, self.peers)
        except (OSError, images.IncompleteCheckpoint, CannotStart) as error:
            text = "the checkpoint was rehearsed, and a copy of the program does not restart from it: {}".format(error)
            raise CannotStop("rehearsal_failed", text, alive=self._program.exit_code() is None) from None
        finally:
            rehearsal.hold.end()
            self._await_running()

    def _await_running(self) -> None:
        """After a rehearsal that failed: the program goes on, and its checkpoint is over."""
        deadline = self._clock() + _RESUME_SECONDS
        while self._program.exit_code() is None and self._clock() < deadline:
            status = self._coordinator.status(2.0)
            if status is not None and status.running:
                self._over = self._program.own.begun
                self._program.scratch.point_nowhere()
                return
            self._sleep(POLL)

    def _image(self, directory: str, names: List[str], peers: int) -> Image:
        if len(names) < peers:
            text = "omfs-run: the checkpoint holds {} of {} processes; the others ended while it was taken\n"
            sys.stderr.write(text.format(len(names), peers))
        self._program.kill()
        try:
            files = images.seal(directory)
        except (OSError, images.IncompleteCheckpoint) as error:
            raise program_lost("not_verified", "cannot write the checkpoint to disk: {}".format(error)) from None
        self._program.ended_by_checkpoint()
        size = sum(os.path.getsize(os.path.join(directory, name)) for name in files)
        return Image(files, self._program.tools.shown, size)

    def _require_writable(self, directory: str) -> None:
        # DMTCP would notice only when it writes, and would kill the program.
        alive = self._program.exit_code() is None
        if os.path.islink(directory) or not os.path.isdir(directory) or os.listdir(directory):
            raise CannotStop("bad_directory", "{} is not a new, empty directory".format(directory), alive)
        probe = os.path.join(directory, ".omfs-probe")
        try:
            os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            os.unlink(probe)
        except OSError as error:
            text = "cannot write to {}: {}".format(directory, error.strerror)
            raise CannotStop("not_writable", text, alive) from None

    def _peers_when_running(self, deadline: float) -> int:
        """The number of processes once all of them run. When this raises, nothing was requested."""
        status: Optional[Status] = None
        while True:
            self._require_going_on()
            status = self._coordinator.status(self._program.left(deadline))
            if status is not None and status.running:
                self._settle()
                return status.peers
            if self._clock() >= deadline:
                break
            self._sleep(POLL)
        if status is None:
            raise CannotStop("tool_hung", "DMTCP's coordinator does not respond", alive=True)
        if not status.found:
            raise CannotStop("tool_failed", "DMTCP's coordinator has ended", alive=True)
        raise CannotStop("busy", "the program is not in a state in which DMTCP can checkpoint it", alive=True)

    def _require_going_on(self) -> None:
        code = self._program.exit_code()
        if code is not None:
            self._program.require_own_end(code)
            raise Ended(code)

    def _identify(self, deadline: float) -> str:
        """DMTCP's name of the program's first process. When this raises, nothing was requested."""
        while True:
            listed = self._program.remember_peers()
            found = [peer.id for peer in listed if peer.pid == self._program.pid]
            if found:
                return found[0]
            self._require_going_on()
            if self._clock() >= deadline:
                raise CannotStop("tool_hung", "DMTCP's coordinator does not list the program", alive=True)
            self._sleep(SHORT_POLL)

    def _require_fit(self, deadline: float) -> None:
        """Wait for some seconds until nothing would be lost: much passes, such as a child that was just forked."""
        end = min(deadline, self._clock() + _FIT_SECONDS)
        while True:
            listed = {peer.pid for peer in self._coordinator.peers(self._program.left(deadline))}
            fault = fitness.unfit(process_tree(self._program.pid), listed, self._program.may_lose_statuses)
            if not fault or self._program.exit_code() is not None:
                return
            if self._clock() >= end:
                raise CannotStop("unfit", fault, alive=True)
            self._sleep(POLL)

    def _settle(self) -> None:
        """The program runs: a checkpoint that began long ago is over."""
        if self._clock() - self._begun_at >= _SURELY_OVER_AFTER:
            self._over = self._program.own.begun

    def _ask(self, deadline: float) -> None:
        quirks = self._program.tools.quirks
        if self._program.rehearsal is not None:
            self._coordinator.ask("--checkpoint", timeout=self._program.left(deadline))
            return
        timeout = max(deadline - self._clock(), 0.1) if quirks.blocks else self._program.left(deadline)
        reply = self._coordinator.ask(quirks.request, timeout=timeout)
        if reply.code is not None and reply.code not in quirks.accepted:
            line = (reply.stderr.strip().splitlines() or ["no message"])[0]
            sys.stderr.write("omfs-run: dmtcp_command ended with exit code {}: {}\n".format(reply.code, line[:200]))

    def _await_end(self, directory: str, peers: int, deadline: float) -> None:
        """Wait until all processes or the coordinator have ended; CannotStop if the program runs on."""
        running_since: Optional[float] = None
        seen, grown = 0, self._clock()
        pause = POLL
        while True:
            if self._program.exit_code() is not None and (
                self._is_complete(directory, peers) or self._program.finished_first()
            ):
                return  # dmtcp_command would take a second to find that there is no coordinator
            if self._is_held(directory, peers):
                return
            status = self._coordinator.status(self._program.left(deadline))
            now = self._clock()
            if status is not None and (not status.found or status.peers == 0):
                return
            if self._program.exit_code() is not None and status is None:
                return
            if status is None or not status.running:
                running_since = None
            elif running_since is None:
                running_since = now
            written = images.bytes_in(directory)
            if written != seen:
                seen, grown = written, now
            if now >= deadline and self._program.exit_code() is None:
                self._give_up(status, written, now - grown, 0.0 if running_since is None else now - running_since)
            if running_since is not None and now - running_since >= _REFUSED_AFTER:
                # Refused, whatever the reply was. A repeated request cannot cause two: the second one is refused.
                self._ask(deadline)
                running_since = None
            # Poll less and less often while images are written: a poll at the moment the coordinator ends waits a
            # second for its reply.
            pause = POLL if status is None or status.running else min(2 * pause, _LONGEST_POLL)
            next_poll = self._clock() + pause
            while self._clock() < next_poll and self._program.exit_code() is None:
                self._sleep(SHORT_POLL)
            if self._program.exit_code() is not None and not self._is_complete(directory, peers):
                self._sleep(POLL)

    def _give_up(self, status: Optional[Status], written: int, stalled: float, running_for: float) -> None:
        """The deadline has passed: raise CannotStop, or return to wait longer.

        DMTCP cannot cancel a checkpoint. Its stopped processes compute no more, and it ends them when the images are
        written: while it writes, waiting loses the least. If it does not write, the program is frozen for good and is
        ended.
        """
        running = status is not None and status.running
        if self._program.rehearsal is not None:
            self._program.rehearsal.hold.end()
        if running and running_for < _REFUSED_AFTER:
            return  # it may have been accepted a moment ago
        if running:
            self._settle()
            scratch = self._program.scratch
            try:
                scratch.point_nowhere()
            except OSError as error:
                sys.stderr.write("omfs-run: cannot clear {}: {}\n".format(scratch.link, error.strerror))
            raise CannotStop("tool_failed", "DMTCP did not take the checkpoint; the program continues", alive=True)
        if status is None and not written:
            # The checkpoint may still come, into this directory: see salvage.
            raise CannotStop("tool_hung", "DMTCP's coordinator does not respond", alive=True)
        if stalled >= self._program.stall_limit:
            self._program.kill()
            text = "DMTCP froze the program and wrote nothing for {:.0f} s; the program was killed".format(stalled)
            raise CannotStop("tool_hung", text, alive=self._program.exit_code() is None)

    def _is_held(self, directory: str, peers: int) -> bool:
        """Whether the checkpoint is complete, and all of the program is held for a rehearsal."""
        if self._program.rehearsal is None:
            return False
        try:
            return len(self._program.rehearsal.hold.held()) == len(images.complete_set(directory, peers))
        except (images.IncompleteCheckpoint, OSError):
            return False

    def _is_complete(self, directory: str, peers: int) -> bool:
        try:
            return bool(images.complete_set(directory, peers))
        except (images.IncompleteCheckpoint, OSError):
            return False

    def _complete(self, directory: str, peers: int) -> Tuple[List[str], str]:
        """The images and "", or what is still missing after some seconds."""
        deadline = self._clock() + _IMAGES_SECONDS
        while True:
            try:
                return images.complete_set(directory, peers), ""
            except (images.IncompleteCheckpoint, OSError) as error:
                fault = str(error)
            code = self._program.exit_code()
            if self._clock() >= deadline or code not in (None, KILLED):
                return [], fault
            if code == KILLED and self._program.finished_first():
                return [], fault
            self._sleep(POLL)

    def _await_exit(self) -> Optional[int]:
        deadline = self._clock() + _EXIT_SECONDS
        while self._program.exit_code() is None and self._clock() < deadline:
            self._sleep(0.01)
        return self._program.exit_code()

    def _lost(self, directory: str, code: int, before: int, fault: str) -> CannotStop:
        """Why a program ended without a complete checkpoint."""
        cause = self._program.judge_end(code)
        self._program.kill()
        if cause is None:
            return Ended(code)
        if self._program.own.begun == before or cause.why in ("killed", "coordinator_gone"):
            return cause
        if code == KILLED:
            return program_lost("not_verified", "the program has ended and the checkpoint is incomplete: " + fault)
        why = "tool_failed"
        try:
            space = os.statvfs(directory)
            if space.f_bavail * space.f_frsize < 1 << 20:
                why = "no_space"
            elif not os.access(directory, os.W_OK | os.X_OK):
                why = "not_writable"
        except OSError:
            why = "not_writable"
        text = "DMTCP failed (exit code {}) and ended the program; the checkpoint is incomplete: {}"
        return program_lost(why, text.format(code, fault))
