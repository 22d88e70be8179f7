"""What differs between Slurm's releases, as far as we read or tell it: here and nowhere else. Pure.

What the text itself shows (a field that only newer releases print) is told from the text; for what must be known
before a command is given there is ``Release``. How to look for more differences: docs/slurm-versions.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Self

from omfs_daemon.errors import ParseError

_VERSION = re.compile(r"(\d+)\.(\d+)")
_SHOWN = 80


class Release(NamedTuple):
    """A release of Slurm by its year and month (22.05, 24.11); patch levels make no difference to us."""

    year: int
    month: int

    @classmethod
    def of(cls, version: str) -> Self:
        """From ``24.11.5`` or ``slurm-wlm 24.11.5``; ParseError if there is no version in it."""
        found = _VERSION.search(version)
        if found is None:
            raise ParseError(f"not a version of Slurm: {version[:_SHOWN]!r}")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.year}.{self.month:02}"

    @property
    def array_option(self) -> str:
        """Without one of these squeue merges a requeued task with the waiting rest and hides its hold. --array-unique
        is gone since 23.02; with --array the waiting rest takes a line for each task."""
        return "--array" if self >= (23, 2) else "--array-unique"

    @property
    def waiting_states(self) -> str:
        """For squeue --states: each of them counts as a state of its own there, and an unknown one is an error."""
        return "pending,special_exit" + (",expediting" if self >= (25, 11) else "")

    @property
    def sharing_field(self) -> str:
        """Of squeue -O: whether the job takes whole nodes; 26.05 took that out of OverSubscribe."""
        return "Exclusive" if self >= (26, 5) else "OverSubscribe"

    def over_subscribe(self, word: str) -> str:
        """What squeue printed in ``sharing_field`` as the word that OverSubscribe had until then."""
        return _OVER_SUBSCRIBE.get(word, word) if self >= (26, 5) else word

    @property
    def pins_before_licences(self) -> bool:
        """scontrol update with NodeList and Licenses sets the first although it refuses the second (since 23.02)."""
        return self >= (23, 2)

    @property
    def cgroup_conf(self) -> str:
        """cgroup.conf of a Slurm without cgroups, which slurmd looks for unasked; this word is known since 24.05."""
        return "CgroupPlugin=disabled\n" if self >= (24, 5) else ""


_OVER_SUBSCRIBE = {"NO": "OK", "NODE": "NO"}

OLDEST = Release(22, 5)
"""Older ones are refused."""

TRIED = (Release(22, 5), Release(24, 11), Release(26, 5))
"""With these the whole contract was tried, and tests/fixtures/slurm/ has what they print."""


def untried(version: str) -> str:
    """One line of warning about a release that nobody has tried, "" for one of ``TRIED``."""
    if Release.of(version) in TRIED:
        return ""
    return f"Slurm {version} is not among the releases that omfsd was tried with ({', '.join(map(str, TRIED))})"


# scontrol show job: what stands between the job's name and " UserId=" (SLUID: since 25.11).
AFTER_JOB_NAME = re.compile(r"(?: SLUID=\S+)? UserId=")


def is_exclusive(partition: Mapping[str, str]) -> bool:
    """scontrol show partitions: jobs get whole nodes; 26.05 has a field for it."""
    return partition["OverSubscribe"] == "EXCLUSIVE" or partition.get("Exclusive", "NO") == "NODE"
