"""What every way of checkpointing from inside a job must be able to do.

A driver is a class made without arguments and named in the table of ``drivers.py`` (``dmtcp.Dmtcp``, ``criu.Criu``).
Before ``checkpoint`` the core has seen that the directory takes files and has room (``space.require_room``).
"""

from typing import List, NamedTuple, Optional, Sequence


class CannotStop(Exception):
    """The program could not be stopped with its work kept.

    why      a code of the job's comment ([a-z_]+), such as no_space, not_writable, tool_hung, not_verified
    message  one line for the job's output
    alive    whether the program still runs
    """

    def __init__(self, why: str, message: str, alive: bool) -> None:
        super().__init__(message)
        self.why = why
        self.message = message
        self.alive = alive


class Ended(CannotStop):
    """The program surely ended by itself while it was to be stopped; ``code``: its own exit code, which is kept.

    An exit code that may be the tool's (DMTCP's 0 after a kill, 99) is no such proof: raise CannotStop then.
    """

    def __init__(self, code: int) -> None:
        super().__init__("ended", "the program ended by itself with exit code {}".format(code), alive=False)
        self.code = code


class CannotStart(Exception):
    """The program could not be started, or not be restarted from an image; ``why`` and ``message`` as above."""

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
    """A program under a driver. One instance a run of the job."""

    pid = 0  # the real program's pid where there is one (under mpirun: mpirun's), for signals

    def wait(self, timeout: float) -> Optional[int]:
        """The program's exit code (128 + N if signal N ended it), or None if it runs on after ``timeout`` seconds.

        Raises CannotStop (not alive) if the program is gone and that was not its own end: it was killed through the
        tool, or the tool has failed.
        """
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether it can be checkpointed already; asked again until it is true."""
        return True

    def signal(self, number: int) -> None:
        """Pass on a signal that the batch shell was sent."""
        raise NotImplementedError

    def checkpoint(self, directory: str, timeout: float) -> Image:
        """Write a checkpoint into the new, empty, 0700 ``directory`` and end the program.

        Returns only what was verified to be complete and is on disk (fsync); raises CannotStop otherwise.
        """
        raise NotImplementedError

    def salvage(self, directory: str) -> Image:
        """A checkpoint into ``directory`` that was given up as ``tool_hung`` and came later, when the program is gone.

        As ``checkpoint``; raises CannotStop if there is none.
        """
        raise CannotStop("not_verified", "there is no complete checkpoint", alive=False)

    def kill(self) -> None:
        """End the program and all that belongs to it (coordinators too); when this returns nothing is left."""
        raise NotImplementedError


class Driver:
    """A way of checkpointing. ``scratch``: a private directory of this run of the job, gone when it ends."""

    name = ""
    makes_image = True  # False: the program keeps its checkpoints itself; asked for neither room nor files

    def version(self) -> str:
        """The tool and its version, e.g. ``dmtcp 4.2.0``; raises CannotStart if it cannot be used here."""
        raise NotImplementedError

    def start(self, command: Sequence[str], scratch: str) -> Program:
        """Start the program anew; raises CannotStart."""
        raise NotImplementedError

    def restart(self, directory: str, image: Image, scratch: str, timeout: float) -> Program:
        """Bring the program back from a verified image and watch until all of it runs; raises CannotStart.

        After CannotStart nothing of the attempt is left running, and the image is as it was.
        """
        raise NotImplementedError
