"""Checkpoints by DMTCP: finds its commands, starts and restarts programs, each with a coordinator of its own."""

import functools
import os
import shutil
import subprocess
import sys
import time
from typing import List, Mapping, Optional, Sequence

from omfs_daemon.omfs_run.drivers.dmtcp import addresses, images, libraries
from omfs_daemon.omfs_run.drivers.dmtcp import environment as environments
from omfs_daemon.omfs_run.drivers.dmtcp.coordinator import read_port, run_dmtcp
from omfs_daemon.omfs_run.drivers.dmtcp.hold import ProcessHold
from omfs_daemon.omfs_run.drivers.dmtcp.own_coordinator import Clock, Sleep, start_own
from omfs_daemon.omfs_run.drivers.dmtcp.program import DmtcpProgram
from omfs_daemon.omfs_run.drivers.dmtcp.recorded_path import RecordedPath
from omfs_daemon.omfs_run.drivers.dmtcp.rehearsal import Rehearsal
from omfs_daemon.omfs_run.drivers.dmtcp.scratch import ScratchDirectory
from omfs_daemon.omfs_run.drivers.dmtcp.tools import Tools
from omfs_daemon.omfs_run.drivers.dmtcp.versions import OLDEST, parse_version, shown
from omfs_daemon.omfs_run.drivers.driver import CannotStart, Driver, Image, Program
from omfs_daemon.omfs_run.message import message

_VERSION_SECONDS = 20.0


class Dmtcp(Driver):
    """``bin_directory``: where DMTCP's commands are (None: on the PATH); ``environment``: the job's.

    ``stall_limit``: seconds without a byte written after which an overdue checkpoint is given up.
    """

    name = "dmtcp"

    def __init__(
        self,
        bin_directory: Optional[str] = None,
        environment: Optional[Mapping[str, str]] = None,
        clock: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
        stall_limit: float = 60.0,
    ) -> None:
        self._stall_limit = stall_limit
        self._bin = bin_directory
        self._environment = dict(os.environ if environment is None else environment)
        self._clock = clock
        self._sleep = sleep
        self._tools: Optional[Tools] = None
        self._may_lose_statuses = False
        self._rehearses = False
        self._is_told = False

    def accept_lost_statuses(self) -> None:
        self._may_lose_statuses = True

    def rehearse_checkpoints(self) -> None:
        self._rehearses = True

    def version(self) -> str:
        tools = self._found()
        if self._rehearses and not (tools.rehearses and libraries.library(libraries.CHILDREN, self._environment)):
            text = "rehearsals need DMTCP 4.2 or 5.0 and {}; this is {}"
            raise CannotStart("no_rehearsal", text.format(libraries.CHILDREN, tools.shown))
        return tools.shown

    def start(self, command: Sequence[str], scratch: str) -> Program:
        tools = self._found()
        program = shutil.which(command[0], path=self._environment.get("PATH")) if command else None
        if program is None:
            # DMTCP exits with 99 for this as well as for its own failures.
            raise CannotStart("no_program", "no such program: {!r}".format(command[0] if command else ""))
        scratch_directory = self._scratch(scratch, tools)
        if environments.is_mpi(command):
            scratch_directory.use_mpi()
        return self._rehearsed(self._begin(tools.launch, command, scratch_directory, tools))

    def restart(self, directory: str, image: Image, scratch: str, timeout: float) -> Program:
        deadline = self._clock() + timeout
        tools = self._found()
        names = [name for name in image.files if name.endswith(images.SUFFIX) and os.sep not in name]
        if not names:
            raise CannotStart("bad_image", "the checkpoint in {} lists no DMTCP image".format(directory))
        paths = [os.path.join(os.path.abspath(directory), name) for name in names]
        missing = [path for path in paths if not os.path.isfile(path)]
        if missing:
            raise CannotStart("bad_image", "the checkpoint lacks {}".format(missing[0]))
        scratch_directory = self._scratch(scratch, tools)
        if environments.holds_mpi(names):
            scratch_directory.use_mpi()
        # Started in the job's directory: a program that never changed its directory continues in that of the restart.
        recorded = RecordedPath(directory)
        try:
            program = self._begin(tools.restart, paths, scratch_directory, tools)
            try:
                program.require_running(deadline, len(paths), image.tool)
            except BaseException:
                program.kill()
                raise
        finally:
            recorded.remove()
        return self._rehearsed(program)

    def _rehearsed(self, program: DmtcpProgram) -> DmtcpProgram:
        """The program, whose checkpoints are rehearsed if they are to be."""
        if self._rehearses:
            restart = functools.partial(self._restart_copy, program.scratch.run)
            program.rehearsal = Rehearsal(program.scratch.environment, program.scratch.temporary, restart)
        return program

    def _restart_copy(self, scratch: str, directory: str, names: Sequence[str], within: float) -> None:
        """Restart a copy until it is held, and kill it; see Rehearsal."""
        deadline = self._clock() + within
        tools = self._found()
        scratch_directory = self._scratch(scratch, tools)
        hold = ProcessHold(scratch_directory.temporary)
        hold.begin()
        paths = [os.path.join(directory, name) for name in names]
        copy = self._begin(tools.restart, paths, scratch_directory, tools)
        try:
            copy.require_held(hold, len(paths), deadline)
        finally:
            copy.kill()

    def _begin(self, tool: str, operands: Sequence[str], scratch: ScratchDirectory, tools: Tools) -> DmtcpProgram:
        own = start_own(
            tools.coordinator, scratch.port_file, scratch.environment, scratch.path, self._clock, self._sleep
        )
        where = ["-j", "--coord-host", "127.0.0.1", "--coord-port", str(read_port(scratch.port_file))]
        arguments: List[str] = [tool, *where, "--ckptdir", scratch.link, "-i", "0", "-q", *operands]
        try:
            process = subprocess.Popen(
                arguments,
                env=scratch.environment,
                preexec_fn=addresses.in_group_with_fixed_addresses,
                restore_signals=True,
            )
        except OSError as error:
            own.end()
            raise CannotStart("tool_failed", "cannot execute {}: {}".format(tool, error.strerror)) from None
        if addresses.are_randomized(process.pid):
            sys.stderr.write("omfs-run: address randomization cannot be switched off; a restart may fail\n")
        program = DmtcpProgram(process, own, scratch, tools, self._clock, self._sleep, self._stall_limit)
        program.may_lose_statuses = self._may_lose_statuses
        return program

    def _scratch(self, scratch: str, tools: Tools) -> ScratchDirectory:
        found = {name: libraries.library(name, self._environment) for name in libraries.MISSING}
        plug_in = found[libraries.CHILDREN] if tools.takes_plug_ins else None
        if not self._is_told:
            self._is_told = True
            for name in found:
                if found[name] is None:
                    message("{} is not installed: {}".format(name, libraries.MISSING[name]))
            if found[libraries.CHILDREN] is not None and plug_in is None:
                message("{} does not fit {} and is left out".format(libraries.CHILDREN, tools.shown))
        return ScratchDirectory(scratch, self._environment, plug_in)

    def _found(self) -> Tools:
        if self._tools is None:
            self._tools = self._find()
        return self._tools

    def _find(self) -> Tools:
        where = self._bin or self._environment.get("PATH", os.defpath)
        found = []
        for name in ("dmtcp_launch", "dmtcp_command", "dmtcp_restart", "dmtcp_coordinator"):
            path = shutil.which(name, path=where)
            if path is None:
                raise CannotStart("tool_missing", "{} is not in {}".format(name, self._bin or "the PATH"))
            found.append(os.path.abspath(path))
        environment = {name: value for name, value in self._environment.items() if not name.startswith("DMTCP_")}
        try:
            reply = run_dmtcp([found[0], "--version"], environment, _VERSION_SECONDS)
        except OSError as error:
            raise CannotStart("tool_missing", "cannot execute {}: {}".format(found[0], error.strerror)) from None
        version = parse_version(reply.stdout + reply.stderr)
        if version is None:
            raise CannotStart("tool_missing", "{} --version prints no version".format(found[0]))
        if version < OLDEST:
            raise CannotStart("tool_missing", "{} is {}; 2.6.0 or later is needed".format(found[0], shown(version)))
        return Tools(found[0], found[1], found[2], found[3], version)
