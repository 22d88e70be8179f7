"""What omfs-run reports in a job's comment: whether its program can be preempted, and how that went.

The job's owner can write the report too (docs/omfs-run.md), so nobody may gain or lose by a false one.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.protocol import job_comment

_NUMBER = re.compile(r"\d{1,16}(?:\.\d{1,9})?")
# A false report must not spoil totals over all jobs: a sum of 10^16 seconds never shows one second more.
_MOST_SECONDS = 1e7
_MOST_TIMES = 10**9
_MOST_BYTES = 2**50
_CODE = re.compile(r"[a-z0-9_]{1,40}")


class RunState(StrEnum):
    READY = job_comment.READY
    STOPPING = job_comment.STOPPING
    FAILED = job_comment.FAILED
    STOPPED = job_comment.STOPPED
    HELD = job_comment.HELD


class RunReport(NamedTuple):
    """What omfs-run reports of one run of the job.

    ``restarts``: which run (SLURM_RESTART_COUNT); ``why``: a reason code, "" if none is given; ``size``: bytes of the
    checkpoint; ``seconds``: to write it, or (READY) to restart from it; ``lost``: seconds of work lost; ``times``: how
    many checkpoints failed in this run. FAILED with ``times`` 0: the job cannot be preempted in this run.
    """

    restarts: int
    state: RunState
    method: str = ""
    why: str = ""
    size: int = 0
    seconds: float = 0.0
    lost: float = 0.0
    times: int = 0


def run_report(job: Job) -> RunReport | None:
    """The report of the job's present run, or of its last run if it waits; None without one. Slurm counts a requeue
    when the job begins to leave its nodes."""
    run = _read(job.comment)
    if run is None:
        return None
    if job.state is JobState.COMPLETING and run.restarts == job.restarts - 1:
        return run
    present = job.restarts - 1 if job.state is JobState.PENDING and job.restarts > 0 else job.restarts
    return run if run.restarts == present else None


@lru_cache(maxsize=4096)
def _read(comment: str) -> RunReport | None:
    found = job_comment.find_run_comment(comment)
    if found is None:
        return None
    values = found.fields
    return RunReport(
        found.restarts,
        RunState(found.state),
        _code(values.get("method", "")),
        _code(values.get("why", "")),
        int(_number(values.get("bytes", ""), _MOST_BYTES)),
        _number(values.get("seconds", ""), _MOST_SECONDS),
        _number(values.get("lost", ""), _MOST_SECONDS),
        int(_number(values.get("times", ""), _MOST_TIMES)),
    )


def _code(text: str) -> str:
    return text if _CODE.fullmatch(text) else ""


def _number(text: str, most: float) -> float:
    """0 if the text is no number, or above ``most``."""
    value = float(text) if _NUMBER.fullmatch(text) else 0.0
    return value if value <= most else 0.0
