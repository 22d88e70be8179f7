"""What is to be done on a job's nodes, and what has become of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Do(StrEnum):
    """OUT: stop the job's processes and move their memory out; IN: bring it back."""

    OUT = "out"
    IN = "in"


class WorkState(StrEnum):
    UNDER_WAY = "under_way"
    DONE = "done"
    FAILED = "failed"


class Work(NamedTuple):
    """One wish for one job. ``resume``: after IN, let its processes go on (else Slurm will, when it resumes the job).

    ``timeout``: seconds for each node; ``options``: the site's, for the method.
    """

    ref: str
    job_id: int
    uid: int
    nodes: tuple[str, ...]
    do: Do
    method: str
    resume: bool
    timeout: float
    options: Mapping[str, object] = {}


class WorkSeen(NamedTuple):
    """How far it is, on all nodes together.

    ``size``: bytes moved; ``freed``: bytes proved free; ``seconds``: from the wish to the end; ``slowest``: of the
    process that took longest (UJFB, Equation 3); ``why``: a code, ``message``: a line for people, of a failure;
    ``at``: when it ended (began, while it is under way), seconds since the epoch.
    """

    do: Do
    method: str
    state: WorkState
    at: float
    resume: bool = False
    size: int = 0
    freed: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    why: str = ""
    message: str = ""
