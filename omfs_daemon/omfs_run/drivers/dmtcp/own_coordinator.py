"""The coordinator of a run, a child of ours, and what it reports.

Without our library it listens on every address and obeys any user, who may tell it to kill the program. What it kills
ends with exit code 0, as if it had succeeded. But the coordinator, which does one thing at a time, logs a line before
it kills anything and before it begins a checkpoint. We read these lines from a pipe: a full disk loses none of them,
and nobody can remove one. A line that a user forges (as the name of a program) makes us trust less, never more.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
from typing import Callable, Dict

from omfs_daemon.omfs_run.drivers.dmtcp import libraries
from omfs_daemon.omfs_run.drivers.dmtcp.coordinator import read_port
from omfs_daemon.omfs_run.drivers.driver import CannotStart

_PORT_SECONDS = 30.0
_POLL = 0.02
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, which fcntl names only since Python 3.10
_PIPE_SIZE = 1 << 20
_KEPT = 200  # bytes kept to find a text that came in two pieces, and for messages

# These texts have been the same since the first release.
_KILLS = b"killing all connected peers"
_BEGINS = b"starting checkpoint"
_COMPLETES = b"checkpoint complete"
_REPORTS = b"worker connected"

_SIGNALS = set(range(1, signal.NSIG)) - {32, 33}  # these two are the C library's own

Clock = Callable[[], float]
Sleep = Callable[[float], None]


class OwnCoordinator:
    """What it has reported up to the last ``read_output``.

    killed   it has killed the program
    begun    number of checkpoints that it has begun
    complete the last of these was completed
    reports  it reports what it does (a release may be built without)
    """

    def __init__(self, process: "subprocess.Popen[bytes]", pipe: int) -> None:
        self.pid = process.pid
        self._process = process
        self._pipe = pipe
        self._tail = b""
        self.killed = False
        self.reports = False
        self.begun = 0
        self.complete = False

    def read_output(self) -> None:
        """Read what it has written. To be called often: a full pipe would block it."""
        while self._pipe >= 0:
            try:
                data = os.read(self._pipe, 1 << 16)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                os.close(self._pipe)
                self._pipe = -1
                return
            self._take(data.lower())

    def _take(self, data: bytes) -> None:
        text = self._tail + data
        self.killed = self.killed or _KILLS in text
        self.reports = self.reports or _REPORTS in text
        # What lies wholly in the tail was counted before.
        self.begun += text.count(_BEGINS) - self._tail.count(_BEGINS)
        if _BEGINS in text or _COMPLETES in text:
            self.complete = text.rfind(_COMPLETES) > text.rfind(_BEGINS)
        self._tail = text[-_KEPT:]

    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Kill it: it blocks every other signal."""
        if self.alive():
            self._process.kill()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            return  # in the kernel
        self.read_output()

    def last_line(self) -> str:
        lines = [line for line in self._tail.decode("ascii", "replace").splitlines() if line.strip()]
        return "".join(char if char.isprintable() else "?" for char in lines[-1]) if lines else "no message"


def closed_to_others(environment: Dict[str, str]) -> Dict[str, str]:
    """``environment`` with the library that closes the coordinator to other users, where it is installed."""
    closing = libraries.library(libraries.COORDINATOR, environment)
    if closing is None:
        return environment
    others = environment.get("LD_PRELOAD", "")
    return dict(environment, LD_PRELOAD="{}:{}".format(closing, others) if others else closing)


def start_own(
    tool: str, port_file: str, environment: Dict[str, str], directory: str, clock: Clock, sleep: Sleep
) -> OwnCoordinator:
    """Start a coordinator on a free port, in ``directory``; raises CannotStart. ``tool``: ``dmtcp_coordinator``."""
    # A named pipe: up to release 4.2 it writes nothing to an anonymous one.
    name = os.path.join(directory, "dmtcp-output")
    try:
        os.mkfifo(name, 0o600)
        read = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        write = os.open(name, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CannotStart("no_scratch", "cannot use {}: {}".format(directory, error.strerror)) from None
    with contextlib.suppress(OSError):  # otherwise the default of 64 KiB must do
        fcntl.fcntl(read, _SET_PIPE_SIZE, _PIPE_SIZE)
    # Not --exit-on-last: that it still responds after the program's end is what we check. The signals that Slurm sends
    # to all processes of a job are for the program, and would end the coordinator.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        process = subprocess.Popen(
            [tool, "--coord-port", "0", "--port-file", port_file, "-i", "0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=write,
            env=closed_to_others(environment),
            cwd=directory,
            start_new_session=True,
        )
    except OSError as error:
        os.close(read)
        raise CannotStart("tool_failed", "cannot execute {}: {}".format(tool, error.strerror)) from None
    finally:
        os.close(write)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    own = OwnCoordinator(process, read)
    deadline = clock() + _PORT_SECONDS
    while read_port(port_file) is None:
        own.read_output()
        if not own.alive() or clock() >= deadline:
            own.end()
            raise CannotStart("tool_failed", "DMTCP's coordinator did not start: {}".format(own.last_line()))
        sleep(_POLL)
    return own
