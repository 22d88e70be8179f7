"""PrivateData=jobs: users are shown no job, account, or user name of anybody else, not even of who preempted them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from omfs_daemon.preemption.effects import Chain, Effects
from omfs_daemon.slurm.orders import HoldJobs, MarkJobs, ReleaseJobs

_REF = r"[0-9]+(?:_[0-9\[\]:,%\-.]*)?"
_NAMED = re.compile(rf"\b(job|jobs|preempting|started) {_REF}(?:, {_REF})*(?![0-9]|\.[0-9])")
_ACCOUNT = re.compile(r",? ?\b(?:of )?account [^\s,;)]+")


def hides_jobs(slurm_settings: Mapping[str, str]) -> bool:
    """Whether users of this Slurm may not see the jobs of others (slurm.conf(5), PrivateData)."""
    return "jobs" in slurm_settings.get("PrivateData", "").lower().split(",")


def without_others(text: str) -> str:
    """One of our sentences without the jobs and accounts that it names."""
    return _ACCOUNT.sub("", _NAMED.sub(lambda found: f"{found[1]} (not shown)", text))


def hide_others(effects: Effects) -> None:
    """Leave jobs and accounts out of what the owners of jobs are told in AdminComment."""
    effects.chains = [_hidden(chain) for chain in effects.chains]


def _hidden(chain: Chain) -> Chain:
    fields = [
        replace(order, sentence=without_others(order.sentence))
        if isinstance(order, HoldJobs | ReleaseJobs | MarkJobs)
        else order
        for order in chain.fields
    ]
    return replace(chain, fields=tuple(fields))
