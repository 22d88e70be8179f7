"""A program as our own child, without a checkpoint tool."""

import contextlib
import os
import signal
import subprocess
from typing import Mapping, Optional, Sequence

from omfs_daemon.omfs_run.drivers import processes
from omfs_daemon.omfs_run.drivers.driver import CannotStart, Program


class Child(Program):
    """A program without a checkpoint tool."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], own_session: bool) -> None:
        """``own_session``: so that all its processes can be found and killed. Raises CannotStart."""
        try:
            self._process = subprocess.Popen(list(command), env=dict(environment), start_new_session=own_session)
        except FileNotFoundError as error:
            raise CannotStart("no_program", "{}: not found".format(error.filename or command[0])) from None
        except (OSError, ValueError) as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            raise CannotStart("not_executable", "{}: {}".format(command[0], text)) from None
        self.pid = self._process.pid
        self._own_session = own_session

    def wait(self, timeout: float) -> Optional[int]:
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        self._process.send_signal(number)  # does nothing once it was reaped

    def kill(self) -> None:
        members = processes.process_tree(self.pid) if self.wait(0) is None else []
        processes.kill_processes(members)
        if self._own_session:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self.wait(10.0)
