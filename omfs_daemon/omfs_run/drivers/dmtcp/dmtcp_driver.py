"""Checkpoints by DMTCP: finds its commands, starts and restarts programs, each with a coordinator of its own."""

import os
import shutil
import subprocess
import sys
import time
from typing import List, Mapping, Optional, Sequence

from omfs_daemon.omfs_run.drivers.dmtcp import addresses, images
from omfs_daemon.omfs_run.drivers.dmtcp import environment as environments
from omfs_daemon.omfs_run.drivers.dmtcp.coordinator import read_port, run_dmtcp
from omfs_daemon.omfs_run.drivers.dmtcp.own_coordinator import Clock, Sleep, start_own
from omfs_daemon.omfs_run.drivers.dmtcp.program import DmtcpProgram
from omfs_daemon.omfs_run.drivers.dmtcp.recorded_path import RecordedPath
from omfs_daemon.omfs_run.drivers.dmtcp.scratch import ScratchDirectory
from omfs_daemon.omfs_run.drivers.dmtcp.tools import Tools
from omfs_daemon.omfs_run.drivers.dmtcp.versions import OLDEST, parse_version, shown
from omfs_daemon.omfs_run.drivers.driver import CannotStart, Driver, Image, Program

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

    def version(self) -> str:
        return self._found().shown

    def start(self, command: Sequence[str], scratch: str) -> Program:
        tools = self._found()
        program = shutil.which(command[0], path=self._environment.get("PATH")) if command else None
        if program is None:
            # DMTCP exits with 99 for this as well as for its own failures.
            raise CannotStart("no_program", "no such program: {!r}".format(command[0] if command else ""))
        scratch_directory = ScratchDirectory(scratch, self._environment)
        if environments.is_mpi(command):
            scratch_directory.use_mpi()
        return self._begin(tools.launch, command, scratch_directory, tools)

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
        scratch_directory = ScratchDirectory(scratch, self._environment)
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
        return program

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
        return DmtcpProgram(process, own, scratch, tools, self._clock, self._sleep, self._stall_limit)

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
