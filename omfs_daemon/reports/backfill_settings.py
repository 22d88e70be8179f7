"""What Slurm's backfill scheduler is set to look at: SchedulerParameters in slurm.conf(5)."""

from __future__ import annotations

import re
from typing import NamedTuple

from omfs_daemon.errors import ConfigError

_MINUTE = 60.0


class BackfillSettings(NamedTuple):
    """Slurm's own values unless set.

    max_job_test  so many pending jobs are tested in a cycle
    window        seconds ahead that are planned; a longer job is planned only up to there
    resolution    seconds: no shorter gap is told apart
    source        where they are from, for people
    """

    max_job_test: int = 500
    window: float = 1440 * _MINUTE
    resolution: float = 60.0
    source: str = "Slurm's own values"


_PARAMETERS = {"bf_max_job_test": (1, 1_000_000), "bf_window": (1, 43_200), "bf_resolution": (1, 3600)}
"""Least and most that slurm.conf(5) allows, in its units."""


def backfill_settings(text: str, source: str) -> BackfillSettings:
    """From SchedulerParameters, ``bf_window=2880,bf_max_job_test=100``; others in it are Slurm's affair. ConfigError
    for a value that is not allowed."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name in _PARAMETERS:
            least, most = _PARAMETERS[name]
            if not re.fullmatch(r"[0-9]{1,9}", value) or not least <= int(value) <= most:
                raise ConfigError(f"{source}: {part.strip()!r}: must be a whole number from {least} to {most:,}")
            found[name] = int(value)
    usual = BackfillSettings()
    return BackfillSettings(
        found.get("bf_max_job_test", usual.max_job_test),
        found["bf_window"] * _MINUTE if "bf_window" in found else usual.window,
        float(found.get("bf_resolution", usual.resolution)),
        source if found else usual.source,
    )
