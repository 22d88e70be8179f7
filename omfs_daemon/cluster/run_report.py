"""The word that omfs-run keeps in a job's comment, to tell how far the program in it can be stopped.

``omfs:run=RESTARTS:STATE[:KEY=VALUE]...`` (docs/omfs-run.md). The job's owner can write it himself: whoever reads it
must gain nothing by a lie and lose nothing by one.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState

_WORD = re.compile(r"(?:^|\s)omfs:run=(\d{1,6}):([a-z]{1,16})((?::[a-z]{1,16}=[A-Za-z0-9_.-]{1,40})*)(?=\s|$)")
_NUMBER = re.compile(r"\d{1,16}(?:\.\d{1,9})?")
# A lie may not spoil what is counted over all jobs: a sum of 10^16 seconds never shows a second again.
_MOST_SECONDS = 1e7
_MOST_TIMES = 10**9
_MOST_BYTES = 2**50
_CODE = re.compile(r"[a-z_]{1,40}")


class RunState(StrEnum):
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"
    STOPPED = "stopped"
    HELD = "held"


class Run(NamedTuple):
    """What the launcher says of one run of the job.

    ``restarts``: which run (SLURM_RESTART_COUNT); ``why``: a code, "" if none is given; ``size``: bytes of the
    checkpoint; ``seconds``: for writing it, or (READY) for bringing it back; ``lost``: seconds of work thrown away;
    ``times``: how many checkpoints have failed in this run; FAILED without any: it cannot be stopped in this run.
    """

    restarts: int
    state: RunState
    method: str = ""
    why: str = ""
    size: int = 0
    seconds: float = 0.0
    lost: float = 0.0
    times: int = 0


def of(job: Job) -> Run | None:
    """What is said of the job's present run; of the last one if it waits. None if nothing is said of it."""
    run = _read(job.comment)
    if run is None:
        return None
    present = job.restarts - 1 if job.state is JobState.PENDING and job.restarts > 0 else job.restarts
    return run if run.restarts == present else None


@lru_cache(maxsize=4096)
def _read(comment: str) -> Run | None:
    if "omfs:run=" not in comment:
        return None
    found = _WORD.search(comment)
    if found is None or found[2] not in frozenset(RunState):
        return None
    said = dict(part.split("=", 1) for part in found[3].split(":")[1:])
    return Run(
        int(found[1]),
        RunState(found[2]),
        _code(said.get("method", "")),
        _code(said.get("why", "")),
        int(_number(said.get("bytes", ""), _MOST_BYTES)),
        _number(said.get("seconds", ""), _MOST_SECONDS),
        _number(said.get("lost", ""), _MOST_SECONDS),
        int(_number(said.get("times", ""), _MOST_TIMES)),
    )


def _code(text: str) -> str:
    return text if _CODE.fullmatch(text) else ""


def _number(text: str, most: float) -> float:
    """What is more than it can be counts as not said."""
    value = float(text) if _NUMBER.fullmatch(text) else 0.0
    return value if value <= most else 0.0
