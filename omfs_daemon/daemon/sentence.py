"""The one human sentence about a cycle, which is logged, shown by ``omfs status`` and asserted by tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from omfs_daemon.daemon.state import State
from omfs_daemon.policy.gate import REFUSAL_TEXT, Verdict
from omfs_daemon.policy.plan import Plan, Reclaim

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
