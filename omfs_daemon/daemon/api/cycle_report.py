"""The one human sentence about a cycle, which is logged, shown by ``omfs status`` and asserted by tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from omfs_daemon.preemption.state import State
from omfs_daemon.policy.validator import REFUSAL_TEXT
from omfs_daemon.policy.validator import Verdict
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.plan import Reclaim
from dataclasses import dataclass, field
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.policy.planner import plan
from omfs_daemon.policy.rules.classes import Rules

_MANY = 3


def sentence(plan: Plan, verdict: Verdict, state: State, dry_run: bool = False) -> str:
    """What is done now and what goes on, most urgent first; or that there is nothing to do."""
    parts = [_reclaim(reclaim, dry_run) for reclaim in verdict.reclaims[:_MANY]]
    if len(verdict.reclaims) > _MANY:
        parts.append(f"and so for {len(verdict.reclaims) - _MANY} more")
    if verdict.resumes:
        parts.append(f"resuming {_names(resume.ref for resume in verdict.resumes)}")
    if plan.holds:
        parts.append(f"holding {_names(hold.ref for hold in plan.holds)}, beyond their accounts' entitlements")
    if plan.releases:
        parts.append(f"letting go {_names(release.ref for release in plan.releases)}")
    under_way = Counter(stop.step.value for stop in state.stops.values())
    if under_way:
        parts.append("stops under way: " + ", ".join(f"{count} {step}" for step, count in sorted(under_way.items())))
    if verdict.refused:
        first = verdict.refused[0]
        parts.append(f"the safety gate refused {len(verdict.refused)} ({first.ref}: {REFUSAL_TEXT[first.reason]})")
    waiting = sum(row.pending for row in plan.accounts if not row.parent)
    if not parts:
        parts.append("nothing to do" + (f", {waiting} CPUs' worth of jobs wait" if waiting else ""))
    text = "; ".join(parts)
    if state.pause is not None:
        text = f"paused by {state.pause.by}: {text}"
    return f"dry run: {text}" if dry_run else text


def _reclaim(reclaim: Reclaim, dry_run: bool) -> str:
    kind = "urgent" if reclaim.urgent else "entitled"
    victims = _names(f"{victim.ref} ({victim.account}, {victim.method})" for victim in reclaim.victims)
    verb = "would stop" if dry_run else "stopping"
    return f"{verb} {victims} for job {reclaim.beneficiary} ({reclaim.account}, {kind})"


def _names(names: Iterable[str]) -> str:
    """The first few, and how many more."""
    listed = list(names)
    more = len(listed) - _MANY
    return ", ".join(listed[:_MANY]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class Report:
    """What one cycle saw and did, by which rules. ``error``: why it saw or did nothing; ``seen`` and ``decided``: when
    Slurm had answered, and when it was clear what to do."""

    at: float
    sentence: str
    rules: Rules = field(default_factory=Rules)
    snapshot: Snapshot | None = None
    plan: Plan | None = None
    verdict: Verdict | None = None
    error: str | None = None
    took: float = 0.0
    seen: float = 0.0
    decided: float = 0.0
