"""What ``scontrol ping`` prints: which slurmctld is active."""

from __future__ import annotations

import re

# 22.05 to 26.05: "Slurmctld(primary) at head is UP"; several backups are numbered.
_LINE = re.compile(r"^Slurmctld\((?:primary|backup\d*)\) at (\S+) is UP\s*$", re.MULTILINE)


def active_controller(printed: str) -> str:
    """Its host as slurm.conf names it, "" if none answers. Slurm prints them in the order in which they take over, and
    a backup answers while it stands by, too: the first that is up is the active one."""
    found = _LINE.search(printed)
    return found[1] if found else ""


def is_same_host(name: str, other: str) -> bool:
    """With or without their domains."""
    if "." in name and "." in other:
        return name.lower() == other.lower()
    return name.partition(".")[0].lower() == other.partition(".")[0].lower()
