"""What every way of moving stopped processes' memory out of the way must be able to do."""

from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

# Where the memory of a job's processes is (Mover.state).
IN = "in"
OUT = "out"
MIXED = "mixed"
NONE = "none"


class CannotMove(Exception):
    """Memory could not be moved, or not be proved to have moved.

    why      a code ([a-z_]+): bad_options, no_swap_space, not_usable, not_verified, not_permitted, timeout,
             process_lost, tool_failed
    message  one line for the daemon's log: what, where, how much
    """

    def __init__(self, why: str, message: str) -> None:
        super().__init__(message)
        self.why = why
        self.message = message


class Process(NamedTuple):
    """A process of the job: its uid was checked through ``fd``, a pidfd that is open while the mover works.

    The mover closes nothing and signals nobody; stopping and continuing is the caller's.
    """

    pid: int
    fd: int


class Moved(NamedTuple):
    """What was moved: bytes written out (or read in), bytes proved free (or taken), seconds of the slowest process."""

    bytes: int
    freed: int
    slowest: float


class Mover:
    """One way, made from the site's options (``__init__`` raises CannotMove("bad_options", ...) for odd ones).

    Deadlines are values of ``time.monotonic()``; nothing may go on much longer than that: raise CannotMove("timeout").
    A process that has ended meanwhile is no failure: its memory is free.
    """

    name = ""
    held_name = ""  # what ``held`` counts, as named in the answer to a probe: "resident" or "ve"

    def __init__(self, options: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def out(self, processes: Sequence[Process], deadline: float) -> Moved:
        """Move the memory of these processes out, all at once, and prove it.

        Every thread of every process is stopped when this is called. Raises CannotMove, possibly with part of it
        moved: the caller then calls ``bring_in`` and continues the processes. What is out already stays out (no error).
        """
        raise NotImplementedError

    def bring_in(self, processes: Sequence[Process], deadline: float) -> Moved:
        """Bring the memory back and wait until the processes may be continued; they stay stopped.

        What is in already stays in (no error). Raises CannotMove if a process must not be continued yet.
        """
        raise NotImplementedError

    def state(self, processes: Sequence[Process]) -> str:
        """IN, OUT, MIXED, or NONE if no process is left; looks only. Raises CannotMove if it cannot be told."""
        raise NotImplementedError

    def probe(self) -> Dict[str, Any]:
        """This method's entry in the answer to a probe: ``usable``, ``why`` ("" or a code), and what is free."""
        raise NotImplementedError

    def held(self, pids: List[int]) -> int:
        """Bytes that these processes hold now of what ``out`` would free; what has ended counts 0. Never raises."""
        raise NotImplementedError
