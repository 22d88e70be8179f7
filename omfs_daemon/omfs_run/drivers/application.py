"""Programs that checkpoint themselves: sent a signal, they write a checkpoint, and create a mark file or end."""

import contextlib
import os
import signal
import stat
import time
from typing import Mapping, Sequence

from omfs_daemon.omfs_run.drivers import mpi_ranks
from omfs_daemon.omfs_run.drivers.child import Child
from omfs_daemon.omfs_run.drivers.driver import CannotStop, Driver, Ended, Image, Program
from omfs_daemon.omfs_run.drivers.processes import survives

MARK = "OMFS_MARK"  # in the program's environment: the file to create when the checkpoint is complete
RESTARTED, RESTARTS = "OMFS_RESTARTED", "OMFS_RESTARTS"

_TOOL = "application"
_POLL = 0.02
_GRACE = 5.0  # seconds between TERM and KILL for a program that continues after its mark


class Application(Driver):
    """``number``: the signal that requests a checkpoint; ``restarts``: how often Slurm has restarted the job."""

    name = "application"
    makes_image = False

    def __init__(self, number: int, command: Sequence[str], environment: Mapping[str, str], restarts: int) -> None:
        self._command = list(command)
        self._number = number
        self._environment = dict(environment)
        self._restarts = restarts

    def version(self) -> str:
        return _TOOL

    def start(self, command: Sequence[str], scratch: str) -> Program:
        return self._run(command, scratch, self._restarts > 0)

    def restart(self, directory: str, image: Image, scratch: str, timeout: float) -> Program:
        """Start it again: it finds its checkpoint files itself."""
        return self._run(self._command, scratch, True)

    def _run(self, command: Sequence[str], scratch: str, again: bool) -> Program:
        environment = dict(self._environment)
        environment.update({MARK: os.path.join(scratch, "mark"), RESTARTS: str(self._restarts)})
        if again:
            environment[RESTARTED] = "1"
        return _Run(command, environment, self._number)


class _Run(Child):
    def __init__(self, command: Sequence[str], environment: Mapping[str, str], number: int) -> None:
        super().__init__(command, environment, own_session=True)
        self._mark = environment[MARK]
        self._number = number
        self._rank_variables = mpi_ranks.rank_variables(command)

    def ready(self) -> bool:
        """Before it has a handler, the signal would kill it, or the MPI ranks to which it is passed on."""
        if not survives(self.pid, self._number):
            return False
        return not self._rank_variables or mpi_ranks.all_survive(self._number, self._rank_variables, (MARK, self._mark))

    def checkpoint(self, directory: str, timeout: float) -> Image:
        name = signal.Signals(self._number).name
        if not self.ready() and self.wait(0) is None:
            text = "the program does not catch {}, which would kill it".format(name)
            raise CannotStop("not_caught", text, alive=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._mark)
        self.signal(self._number)
        end = time.monotonic() + timeout
        while True:
            code = self.wait(0)  # before the check of the mark: it may be created last
            if self._marked():
                self._end()
                return Image([], _TOOL, 0)
            if code is not None:
                raise Ended(code)
            if time.monotonic() > end:
                text = "the program did not create its mark within {:g} s of {}".format(timeout, name)
                raise CannotStop("no_mark", text, alive=True)
            self.wait(_POLL)

    def _marked(self) -> bool:
        try:
            state = os.lstat(self._mark)
        except OSError:
            return False
        return stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid()

    def _end(self) -> None:
        """Many programs end by themselves: no KILL before the grace time is over."""
        self.signal(signal.SIGTERM)
        self.wait(_GRACE)
        self.kill()
