"""The loop around the cycle."""

from __future__ import annotations

from dataclasses import replace
from omfs_daemon.daemon.api.cycle_report import Report
from omfs_daemon.errors import OmfsError
from omfs_daemon.slurm.gateway import SlurmSettings

BEAT_EVERY = 2.0
"""Seconds between two heartbeats while nothing happens; the submit plug-in takes ten for the daemon's end."""


def _carried(report: Report, previous: Report) -> Report:
    """A cycle that saw nothing keeps the last picture for people to look at, with its error."""
    return replace(
        report, rules=previous.rules, snapshot=previous.snapshot, plan=previous.plan, verdict=previous.verdict
    )


def refuse_unfit(settings: SlurmSettings) -> None:
    """Under priority/basic any owner can release any hold by ``nice=``: then nothing that we hold is held."""
    kind = settings.values.get("PriorityType", "")
    if kind != "priority/multifactor":
        raise OmfsError(
            f"slurm.conf: PriorityType = {kind}: must be priority/multifactor (its weights may all be 0): "
            "under priority/basic the owner of a job can release any hold"
        )


def _uid_in(text: str) -> int | None:
    """The number in ``slurm(64030)``."""
    found = text[text.find("(") + 1 : text.find(")")]
    return int(found) if found.isdecimal() else None
