"""The interface of movers, which move the memory of stopped processes out and in."""

from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

# Where the memory of a job's processes is (Mover.state).
IN = "in"
OUT = "out"
MIXED = "mixed"
NONE = "none"


class CannotMove(Exception):
    """Memory could not be moved, or its move could not be verified.

    why      a code ([a-z_]+): bad_options, no_swap_space, not_usable, not_verified, not_permitted, timeout,
             process_lost, tool_failed
    message  one line for the daemon's log: what, where, how much
    """

    def __init__(self, why: str, message: str) -> None:
        super().__init__(message)
        self.why = why
        self.message = message


class HeldProcess(NamedTuple):
    """A process of the job: its uid was checked through ``fd``, a pidfd that is open while the mover works.

    The mover closes nothing and sends no signals: the caller stops and continues the processes.
    """

    pid: int
    fd: int


class Moved(NamedTuple):
    """Bytes written out (or read in), bytes verified as freed (or taken), and seconds of the slowest process."""

    bytes: int
    freed: int
    slowest: float


class Mover:
    """A method, configured by the site's options (``__init__`` raises CannotMove("bad_options", ...)).

    Deadlines are values of ``time.monotonic()``; soon after one, raise CannotMove("timeout"). A process that has ended
    meanwhile is no failure: its memory is free.
    """

    name = ""
    held_name = ""  # key of ``held`` in the response to a probe: "resident" or "ve"

    def __init__(self, options: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def out(self, processes: Sequence[HeldProcess], deadline: float) -> Moved:
        """Move the memory of these processes out, all at once, and verify it.

        Every thread of every process is stopped when this is called. Raises CannotMove, possibly with part of it
        moved: the caller then calls ``bring_in`` and continues the processes. What is already out stays out (no error).
        """
        raise NotImplementedError

    def bring_in(self, processes: Sequence[HeldProcess], deadline: float) -> Moved:
        """Bring the memory in and wait until the processes may be continued; they stay stopped.

        What is already in stays in (no error). Raises CannotMove if a process must not be continued yet.
        """
        raise NotImplementedError

    def state(self, processes: Sequence[HeldProcess]) -> str:
        """IN, OUT, MIXED, or NONE if no process is left; changes nothing. Raises CannotMove if it is unknown."""
        raise NotImplementedError

    def probe(self) -> Dict[str, Any]:
        """This method's entry in the response to a probe: ``usable``, ``why`` ("" or a code), and what is free."""
        raise NotImplementedError

    def held(self, pids: List[int]) -> int:
        """Bytes that ``out`` would free now; processes that have ended count 0. Never raises."""
        raise NotImplementedError
