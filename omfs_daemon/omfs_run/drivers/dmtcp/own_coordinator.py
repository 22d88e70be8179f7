"""The coordinator of a run: our own child, and what it says of what it does.

It listens on every address and asks nobody who he is, so another user may tell it to kill the program. DMTCP ends what
it kills with exit code 0, as if it had ended well. But the coordinator, which does one thing at a time, writes a line
before it kills anything and before it begins a checkpoint. We read these lines from a pipe: no full disk swallows them
and nobody can take one away. A line that a user forges (as the name of a program) makes us believe less, never more.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
from typing import Callable, Dict

from omfs_daemon.omfs_run.drivers.dmtcp.coordinator import read_port
from omfs_daemon.omfs_run.drivers.driver import CannotStart

_PORT_SECONDS = 30.0
_POLL = 0.02
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, which fcntl names only since Python 3.10
_PIPE_SIZE = 1 << 20
_KEPT = 200  # bytes kept to find a text that came in two pieces, and to tell

# In these words since the first release.
_KILLS = b"killing all connected peers"
_BEGINS = b"starting checkpoint"
_TALKS = b"worker connected"

_SIGNALS = set(range(1, signal.NSIG)) - {32, 33}  # but for those two, which are the C library's own

Clock = Callable[[], float]
Sleep = Callable[[float], None]


class OwnCoordinator:
    """``killed``: it has killed the program; ``begun``: how many checkpoints it has begun; ``talks``: its words are on.

    As of the last ``hear``.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", pipe: int) -> None:
        self._process = process
        self._pipe = pipe
        self._tail = b""
        self.killed = False
        self.talks = False
        self.begun = 0

    def hear(self) -> None:
        """Read what it has said. To be called often: a full pipe would hold it up."""
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
        self.talks = self.talks or _TALKS in text
        # What lies wholly in the tail was counted before.
        self.begun += text.count(_BEGINS) - self._tail.count(_BEGINS)
        self._tail = text[-_KEPT:]

    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """It blocks every other signal."""
        if self.alive():
            self._process.kill()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            return  # in the kernel
        self.hear()

    def last_words(self) -> str:
        lines = [line for line in self._tail.decode("ascii", "replace").splitlines() if line.strip()]
        return "".join(char if char.isprintable() else "?" for char in lines[-1]) if lines else "no message"


def start_own(
    tool: str, port_file: str, environment: Dict[str, str], directory: str, clock: Clock, sleep: Sleep
) -> OwnCoordinator:
    """Start a coordinator on a free port, in ``directory``; raises CannotStart. ``tool``: ``dmtcp_coordinator``."""
    # By a name: up to release 4.2 it is silent on a pipe without one.
    name = os.path.join(directory, "dmtcp-said")
    try:
        os.mkfifo(name, 0o600)
        read = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        write = os.open(name, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CannotStart("no_scratch", "cannot use {}: {}".format(directory, error.strerror)) from None
    with contextlib.suppress(OSError):  # else the usual 64 KiB must do
        fcntl.fcntl(read, _SET_PIPE_SIZE, _PIPE_SIZE)
    # Not --exit-on-last: that it still answers when the program has ended is what we want to see. The signals that
    # Slurm sends to all of a job are for the program, and would end it here.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        process = subprocess.Popen(
            [tool, "--coord-port", "0", "--port-file", port_file, "-i", "0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=write,
            env=environment,
            cwd=directory,
            start_new_session=True,
        )
    except OSError as error:
        os.close(read)
        raise CannotStart("tool_failed", "cannot run {}: {}".format(tool, error.strerror)) from None
    finally:
        os.close(write)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    own = OwnCoordinator(process, read)
    deadline = clock() + _PORT_SECONDS
    while read_port(port_file) is None:
        own.hear()
        if not own.alive() or clock() >= deadline:
            own.end()
            raise CannotStart("tool_failed", "DMTCP's coordinator does not start: {}".format(own.last_words()))
        sleep(_POLL)
    return own
