"""The heartbeat file: seconds since the epoch as text.

The submit plug-in holds jobs only while it is fresh; the failsafe releases everything once it is old.
"""

from __future__ import annotations

from pathlib import Path


def beat(path: Path, now: float) -> None:
    """Write the time."""
    write_for_slurmctld(path, f"{int(now)}\n")


def write_for_slurmctld(path: Path, text: str) -> None:
    """Replace the file; atomic, and world-readable for slurmctld."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(0o644)
    temporary.replace(path)


def age(path: Path, now: float) -> float | None:
    """Seconds since the last heartbeat; None if there is none or it cannot be read."""
    try:
        return now - int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
