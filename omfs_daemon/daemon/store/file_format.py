"""Versions of the files in the state directory."""

from __future__ import annotations

from pathlib import Path

JOURNAL_FORMAT = 11
HISTORY_FORMAT = 2
ENTITLEMENTS_FORMAT = 1
ENDED_JOBS_FORMAT = 1


def refusal(path: Path, found: int, expected: int, advice: str) -> str:
    """One line about a file in another format than ``expected``, and what to do. No number means format 1."""
    writer = "an earlier development version" if found < expected else "a later version"
    formats = f"format {found}; this version reads format {expected}"
    return f"{path}: was written by {writer} of omfs-daemon ({formats}): {advice}"
