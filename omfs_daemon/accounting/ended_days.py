"""Ends of jobs from Slurm's accounting, a day at a time, as predictions learn from them.

Without polars: the daemon reads it, and a head node need not have the extra ``sim``. A secret separator keeps names and
comments, which are users' text, from forging a job.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import datetime
from math import inf
from pathlib import Path
from typing import NamedTuple

from omfs_daemon.errors import ParseError
from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.job_ends import JobEnd, gres_text, hour_of, how_ended, named_features
from omfs_daemon.protocol.job_comment import find_run_comment
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.run_command import Runner, run_command

_FIELDS = (
    *("JobIDRaw", "User", "Account", "Partition", "QOS", "Submit", "Start", "End", "ElapsedRaw", "TimelimitRaw"),
    *("AllocCPUS", "AllocNodes", "ReqTRES", "State", "JobName", "Comment"),
)
_CAME_BACK = frozenset(("REQUEUED", "PREEMPTED"))
_LONGEST = 300.0
"""Seconds that slurmdbd may take for a day."""


class AccountedEnd(NamedTuple):
    """``goes_on``: omfs-run reported on the job, so it went on from checkpoints of its earlier runs."""

    end: JobEnd
    goes_on: bool


def asked_ends(
    begin: float, until: float, conf: Path | None, keep_names: bool, runner: Runner = run_command
) -> list[AccountedEnd]:
    """The runs that ended from ``begin`` on and before ``until`` (seconds since the epoch), in the order in which they
    ended; GatewayError if slurmdbd does not answer. Records that cannot be read are left out."""
    secret = f"<{secrets.token_hex(16)}>"
    first, last = (datetime.fromtimestamp(time).strftime("%Y-%m-%dT%H:%M:%S") for time in (begin, until))
    span = ["--starttime", first, "--endtime", last]
    words = ["sacct", "-a", "-X", "-P", "-n", "-D", *span, f"--delimiter={secret}", f"--format={','.join(_FIELDS)}"]
    printed = runner(words, timeout=_LONGEST, conf=conf).stdout
    found = [one for row in _rows(printed, secret) if (one := _end_of(row, keep_names)) is not None]
    return sorted(
        (one for one in found if begin <= one.end.ended < until), key=lambda one: (one.end.ended, one.end.job)
    )


def _rows(printed: str, secret: str) -> Iterator[dict[str, str]]:
    """A newline between a comment and the next record's first field ends each record."""
    parts, width = printed.split(secret), len(_FIELDS) - 1
    if (len(parts) - 1) % width:
        raise ParseError(f"sacct printed a part of a job: {printed[-80:]!r}")
    first = parts[0]
    for at in range(width, len(parts), width):
        comment, _, following = parts[at].rpartition("\n")
        yield dict(zip(_FIELDS, [first, *parts[at - width + 1 : at], comment], strict=True))
        first = following


def _end_of(row: dict[str, str], keep_names: bool) -> AccountedEnd | None:
    """None if the run has not ended or never began, or cannot be read."""
    state = row["State"].partition(" ")[0]
    how = how_ended(state)
    try:
        start, ended = values.epoch(row["Start"]), values.epoch(row["End"])
        submit = values.epoch(row["Submit"])
        job, run = int(row["JobIDRaw"]), float(row["ElapsedRaw"])
        cpus, nodes = int(row["AllocCPUS"]), int(row["AllocNodes"])
        limit = float(row["TimelimitRaw"]) * 60 if row["TimelimitRaw"].isdecimal() else inf
    except (ValueError, ParseError):
        return None
    if start is None or ended is None or cpus <= 0 or (how is None and state not in _CAME_BACK):
        return None
    features = JobFeatures(
        user=row["User"],
        account=row["Account"],
        partition=row["Partition"],
        qos=row["QOS"],
        cpus=cpus,
        nodes=max(1, nodes),
        gres=_gres(row["ReqTRES"]),
        limit=limit,
        hour=hour_of(submit or start),
    )
    end = JobEnd(job, start, ended, named_features(features, row["JobName"], keep_names), run, how)
    return AccountedEnd(end, find_run_comment(row["Comment"]) is not None)


def _gres(tres: str) -> str:
    """``gpu:4`` of ``cpu=4,gres/gpu=4,gres/gpu:a100=4``."""
    pairs = (part.partition("=")[::2] for part in tres.split(",") if part.startswith("gres/") and ":" not in part)
    return gres_text((name.removeprefix("gres/"), int(count)) for name, count in pairs if count.isdecimal())
