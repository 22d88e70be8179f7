"""What a step brings about. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omfs_daemon.preemption.methods.base import Action
from omfs_daemon.preemption.preemption import Preemption, VictimState
from omfs_daemon.preemption.state import JobPreempted


def order_keys(actions: Iterable[Action]) -> frozenset[tuple[str, str]]:
    """Kind and job of each order, so that a list that only became shorter does not count as new."""
    return frozenset(
        (type(action).__name__, ref)
        for action in actions
        for ref in (getattr(action, "refs", None) or (getattr(action, "ref", ""),))
    )


def preempted_record(preemption: Preemption, victim: VictimState, now: float) -> JobPreempted:
    licenses = () if victim.keeps is None else victim.licenses
    return JobPreempted(victim.ref, now, victim.method, preemption.preemptor.ref, licenses, victim.gres)


def with_clock_moved(preemption: Preemption, seconds: float) -> Preemption:
    """As if the step had begun later: time in which Slurm did not answer does not count."""
    return replace(preemption, since=preemption.since + seconds)
