"""The differences between Slurm's releases that matter here, in one place. Pure.

What the output itself shows (a field that only newer releases print) is recognized from the output; what must be known
before a command is run is in ``SlurmRelease``. How to find more differences: docs/slurm-versions.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Self

from omfs_daemon.errors import ParseError

_VERSION = re.compile(r"(\d+)\.(\d+)")
_SHOWN = 80


class SlurmRelease(NamedTuple):
    """A release of Slurm by its year and month (22.05, 24.11); patch levels make no difference."""

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

    def over_subscribe(self, value: str) -> str:
        """What squeue printed in ``sharing_field``, as OverSubscribe had it before 26.05."""
        return _OVER_SUBSCRIBE.get(value, value) if self >= (26, 5) else value

    @property
    def pins_before_licenses(self) -> bool:
        """scontrol update with NodeList and Licenses sets the first although it refuses the second (since 23.02)."""
        return self >= (23, 2)

    @property
    def cgroup_conf(self) -> str:
        """cgroup.conf of a Slurm without cgroups, which slurmd always reads; "disabled" is known since 24.05."""
        return "CgroupPlugin=disabled\n" if self >= (24, 5) else ""


_OVER_SUBSCRIBE = {"NO": "OK", "NODE": "NO"}

OLDEST = SlurmRelease(22, 5)
"""Older ones are refused."""

TESTED = (SlurmRelease(22, 5), SlurmRelease(24, 11), SlurmRelease(26, 5))
"""The whole contract was tested with these, and tests/fixtures/slurm/ has their output."""


def untested_release(version: str) -> str:
    """A warning about a release that was not tested, "" for one of ``TESTED``."""
    if SlurmRelease.of(version) in TESTED:
        return ""
    return f"Slurm {version} is not among the releases that omfsd was tested with ({', '.join(map(str, TESTED))})"


# scontrol show job: what stands between the job's name and " UserId=" (SLUID: since 25.11; HetJobIdSet: of
# parts of heterogeneous jobs).
AFTER_JOB_NAME = re.compile(r"(?: (?:HetJobIdSet|SLUID)=\S+)* UserId=")


def is_exclusive(partition: Mapping[str, str]) -> bool:
    """scontrol show partitions: jobs get whole nodes; 26.05 has a field for it."""
    return partition["OverSubscribe"] == "EXCLUSIVE" or partition.get("Exclusive", "NO") == "NODE"


def is_exclusive_user(partition: Mapping[str, str]) -> bool:
    """scontrol show partitions: a node has jobs of one user only; 26.05 has the field of ``is_exclusive`` for it."""
    return partition.get("ExclusiveUser", "NO") == "YES" or partition.get("Exclusive", "NO") == "USER"
