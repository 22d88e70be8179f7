"""What one cycle did: its report, and the summary that is logged and shown by ``omfs status``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from omfs_daemon.cluster.job_refs import brief_ref
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.errors import GatewayError, GatewayTimeout, ParseError
from omfs_daemon.policy.plan import WHY_FIRST, Plan, PlannedPreemption
from omfs_daemon.policy.rules.classes import REGULAR, Rules
from omfs_daemon.policy.validator import Verdict
from omfs_daemon.preemption.state import State

_MANY = 3


def cycle_summary(plan: Plan, verdict: Verdict, state: State, dry_run: bool = False, on_paper: bool = False) -> str:
    """What is done now and what is under way, most urgent first; or that there is nothing to do. ``dry_run``: the
    daemon sends no orders; ``on_paper``: this is what it would do, whatever it does."""
    would = dry_run or on_paper
    parts = [_reclaim(planned, would) for planned in verdict.preemptions[:_MANY]]
    if len(verdict.preemptions) > _MANY:
        parts.append(f"and so for {len(verdict.preemptions) - _MANY} more")
    if verdict.resumes:
        parts.append(f"{'would resume' if would else 'resuming'} {_names(resume.ref for resume in verdict.resumes)}")
    if plan.holds:
        parts.append(
            f"{'would hold' if would else 'holding'} {_names(hold.ref for hold in plan.holds)}, "
            "beyond their accounts' entitlements"
        )
    if plan.releases:
        parts.append(f"{'would release' if would else 'releasing'} {_names(release.ref for release in plan.releases)}")
    under_way = Counter(preemption.step.value for preemption in state.preemptions.values())
    if under_way:
        parts.append(
            "preemptions under way: " + ", ".join(f"{count} {step}" for step, count in sorted(under_way.items()))
        )
    if verdict.refused:
        first = verdict.refused[0]
        parts.append(f"the validator refused {len(verdict.refused)} ({first.ref}: {first.text})")
    waiting = sum(row.pending for row in plan.accounts if not row.parent)
    if not parts:
        parts.append("nothing to do" + (f", {waiting} CPUs' worth of jobs wait" if waiting else ""))
    text = "; ".join(parts)
    if state.pause is not None:
        text = f"paused by {state.pause.by}: {text}"
    return f"dry run: {text}" if dry_run else text


def _reclaim(planned: PlannedPreemption, would: bool) -> str:
    victims = _names(f"{victim.ref} ({victim.account}, {victim.method})" for victim in planned.victims)
    verb = "would preempt" if would else "preempting"
    return f"{verb} {victims} for job {planned.preemptor} ({planned.account}, {WHY_FIRST[planned.reason]})"


def _names(names: Iterable[str]) -> str:
    """The first few, and how many more."""
    listed = list(names)
    more = len(listed) - _MANY
    return ", ".join(map(brief_ref, listed[:_MANY])) + (f" and {more} more" if more > 0 else "")


ERROR_KINDS = ("timeout", "parse", "failed")


def error_kind(error: GatewayError) -> str:
    """As in ``CycleReport.slurm_error``, one of ``ERROR_KINDS``."""
    if isinstance(error, GatewayTimeout):
        return "timeout"
    return "parse" if isinstance(error, ParseError) else "failed"


@dataclass(frozen=True, slots=True)
class CycleReport:
    """What one cycle observed and did, by which rules.

    error            why it observed or did nothing
    slurm_error      of which of ``ERROR_KINDS``, where Slurm did not answer
    seen, decided    when Slurm had answered, and when the decision was made
    needs_full       whether an urgent poll must be followed by a full one at once
    """

    at: float
    summary: str
    rules: Rules = field(default_factory=lambda: Rules(methods={}, unmatched=REGULAR))
    snapshot: Snapshot | None = None
    plan: Plan | None = None
    verdict: Verdict | None = None
    error: str | None = None
    took: float = 0.0
    seen: float = 0.0
    decided: float = 0.0
    slurm_error: str = ""
    needs_full: bool = False


@dataclass(slots=True)
class LatestPoll:
    """Written by the loop, read by other threads: the newest report, when Slurm last answered in full, and Slurm's
    version and SlurmUser once they are known. ``observers`` are given the snapshot of each full poll. ``hides_jobs``:
    whether users may see their own jobs only (PrivateData); so until Slurm has answered."""

    report: CycleReport
    last_poll: float | None = None
    slurm_version: str = ""
    slurm_uid: int | None = None
    hides_jobs: bool = True
    observers: list[Callable[[Snapshot], None]] = field(default_factory=list)
