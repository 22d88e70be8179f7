"""The interface of checkpoint drivers.

A driver is a class made without arguments and named in ``driver_table.py``. Before ``checkpoint`` the caller checks
that the directory is writable and has enough space (``disk_space.require_space``).
"""

from typing import List, NamedTuple, Optional, Sequence

PER_PROCESS = 25 * 1000 * 1000  # bytes that the tool adds to the memory


class CannotStop(Exception):
    """The program could not be stopped without losing its work.

    why      a code of ``protocol.reason_codes``, such as no_space, not_writable, tool_hung, not_verified
    message  one line for the job's output
    alive    whether the program still runs
    """

    def __init__(self, why: str, message: str, alive: bool) -> None:
        super().__init__(message)
        self.why = why
        self.message = message
        self.alive = alive


class Ended(CannotStop):
    """The program certainly ended by itself while it was being stopped; ``code``: its exit code, which is kept.

    An exit code that may be the tool's (DMTCP's 0 after a kill, or 99) proves nothing: raise CannotStop then.
    """

    def __init__(self, code: int) -> None:
        super().__init__("ended", "the program ended by itself with exit code {}".format(code), alive=False)
        self.code = code


class CannotStart(Exception):
    """The program could not be started, or restarted from an image; ``why`` and ``message`` as in CannotStop."""

    def __init__(self, why: str, message: str) -> None:
        super().__init__(message)
        self.why = why
        self.message = message


class Image(NamedTuple):
    """A complete checkpoint: its files, relative to the generation's directory; the tool and its version; bytes."""

    files: List[str]
    tool: str
    size: int


class Program:
    """A program under a driver; one instance for each run of the job."""

    pid = 0  # the real program's pid where there is one (under mpirun: mpirun's), for signals

    def wait(self, timeout: float) -> Optional[int]:
        """The program's exit code (128 + N if signal N ended it), or None if it still runs after ``timeout`` seconds.

        Raises CannotStop (not alive) if the program did not end by itself: it was killed through the tool, or the tool
        failed.
        """
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether it can be checkpointed yet; asked again until it can."""
        return True

    def signal(self, number: int) -> None:
        """Pass on a signal that was sent to the batch shell."""
        raise NotImplementedError

    def checkpoint(self, directory: str, timeout: float) -> Image:
        """Write a checkpoint into the new, empty, 0700 ``directory`` and end the program.

        Returns only an image that was verified to be complete and is on disk (fsync); otherwise raises CannotStop.
        """
        raise NotImplementedError

    def salvage(self, directory: str) -> Image:
        """A checkpoint that was given up as ``tool_hung`` and completed later, after the program has ended.

        As ``checkpoint``; CannotStop if there is none.
        """
        raise CannotStop("not_verified", "there is no complete checkpoint", alive=False)

    def kill(self) -> None:
        """Kill the program and all that belongs to it (coordinators too); nothing is left when this returns."""
        raise NotImplementedError


class Driver:
    """A checkpoint driver. ``scratch``: a private directory of this run of the job, removed at its end."""

    name = ""
    makes_image = True  # False: the program writes its checkpoints itself; neither space nor files are checked

    def version(self) -> str:
        """The tool and its version, e.g. ``dmtcp 4.2.0``; raises CannotStart if it cannot be used here."""
        raise NotImplementedError

    def accept_lost_statuses(self) -> None:
        """From now on, the exit statuses of children that end during a checkpoint may be lost."""

    def rehearse_checkpoints(self) -> None:
        """From now on, a copy of each checkpoint is restarted, as far as it can run, before the program is ended.

        If that fails, or could do harm, the checkpoint has failed and the program continues. CannotStart if this
        driver cannot do that.
        """
        raise CannotStart("no_rehearsal", "it cannot rehearse checkpoints (--rehearse)")

    def start(self, command: Sequence[str], scratch: str) -> Program:
        """Start the program anew; raises CannotStart."""
        raise NotImplementedError

    def restart(self, directory: str, image: Image, scratch: str, timeout: float) -> Program:
        """Restart the program from a verified image and wait until all of it runs; raises CannotStart.

        After CannotStart nothing of the attempt is left running, and the image is unchanged.
        """
        raise NotImplementedError
