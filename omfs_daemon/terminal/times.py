"""Times as people type them."""

from __future__ import annotations

import re
from datetime import datetime

from omfs_daemon.errors import ConfigError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_from_now(text: str, now: float, option: str = "--until") -> float:
    """``"6h"`` from ``now`` on, or an ISO time to come; ConfigError, which names the option, for anything else."""
    if after := re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([smhd])", text.strip()):
        return now + float(after[1]) * _UNITS[after[2]]
    try:
        time = datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        raise ConfigError(f"{option} = {text!r}: must be such as 30m, 6h, 2d or 2026-03-01T14:00") from None
    if time <= now:
        raise ConfigError(f"{option} = {text!r}: is over")
    return time


def seconds_since_epoch(text: str, now: float, option: str = "--since") -> float:
    """``"6h"`` before ``now``, or an ISO time (local without a zone); ConfigError, which names the option, for anything
    else."""
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip()):
        return max(0.0, now - float(ago[1]) * _UNITS[ago[2]])
    try:
        return max(0.0, datetime.fromisoformat(text.strip()).timestamp())
    except (ValueError, OverflowError):
        raise ConfigError(f"{option} = {text!r}: must be such as 30m, 6h, 2d or 2026-03-01T14:00") from None
