"""Pure parts of what a step brings about; grows into Effects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from omfs_daemon.preemption.state import JobStopped
from omfs_daemon.preemption.preemption import Stop
from omfs_daemon.preemption.preemption import VictimState
from omfs_daemon.preemption.methods.base import Action


def _parts(actions: Iterable[Action]) -> frozenset[tuple[str, str]]:
    """Kind and job of each order, so that a list which merely grows shorter is not taken for a new one."""
    return frozenset(
        (type(action).__name__, ref)
        for action in actions
        for ref in (getattr(action, "refs", None) or (getattr(action, "ref", ""),))
    )


def _stopped(stop: Stop, victim: VictimState, now: float) -> JobStopped:
    licenses = () if victim.keeps is None else victim.licenses
    return JobStopped(victim.ref, now, victim.method, stop.beneficiary.ref, licenses, victim.gres)


def with_clock_moved(stop: Stop, seconds: float) -> Stop:
    """The stop as if its step had begun later: time in which Slurm was away does not count."""
    return replace(stop, since=stop.since + seconds)
