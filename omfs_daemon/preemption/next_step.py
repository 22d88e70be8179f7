"""The next step of a stop: what is seen and the time go in, the next state comes out. Pure."""

from __future__ import annotations

from dataclasses import replace

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.preemption.progress import Means
from omfs_daemon.preemption.preemption import Outcome
from omfs_daemon.preemption.preemption import Step
from omfs_daemon.preemption.preemption import Stop
from omfs_daemon.preemption.preemption import VictimState
from omfs_daemon.preemption.progress import View
from omfs_daemon.preemption.progress import progress_of
from omfs_daemon.preemption.progress import runs_still
from omfs_daemon.preemption.progress import seen_of
from omfs_daemon.preemption.step_orders import is_anything_to_return
from omfs_daemon.preemption.step_orders import is_anything_to_undo
from omfs_daemon.preemption.step_orders import is_moved_in
from omfs_daemon.preemption.methods.base import Progress
from omfs_daemon.preemption.methods.node_work import WorkState


def next_state(stop: Stop, view: View, now: float, means: Means, is_fresh: bool) -> Stop:
    """The state that follows from what is seen; the same object if nothing follows yet.

    ``is_fresh``: the gate let this stop pass on a picture that is still good. After a crash, an outage, or too long a
    time it is not: then nobody is stopped any more who still runs, and the policy decides anew.
    """
    match stop.step:
        case Step.PLANNED:
            unchanged = is_fresh and _still_as_planned(stop, view)
            return _enter(stop, Step.PREPARING, now) if unchanged else _enter(stop, Step.UNDONE, now, Outcome.CHANGED)
        case Step.PREPARING:
            if stop.refused:
                return _enter(stop, Step.UNDOING, now, Outcome.REFUSED)
            return _enter(stop, Step.STOPPING, now) if is_fresh else _enter(stop, Step.UNDOING, now, Outcome.TOO_OLD)
        case Step.STOPPING:
            return _after_stopping(stop, view, now, means, is_fresh)
        case Step.STARTING:
            return _after_starting(stop, view, now, means)
        case Step.RETURNING:
            return stop if is_anything_to_return(stop, view, means) else _enter(stop, Step.DONE, now)
        case Step.UNDOING:
            return stop if is_anything_to_undo(stop, view, means) else _enter(stop, Step.UNDONE, now)
    return stop


def _enter(stop: Stop, step: Step, now: float, outcome: Outcome | None = None) -> Stop:
    return replace(stop, step=step, since=now, outcome=outcome or stop.outcome)


def _still_as_planned(stop: Stop, view: View) -> bool:
    job = view.job(stop.beneficiary.ref)
    wanted = JobState.SUSPENDED if stop.beneficiary.suspended else JobState.PENDING
    return job is not None and job.state is wanted and all(runs_still(v, view) for v in stop.victims)


def _after_stopping(stop: Stop, view: View, now: float, means: Means, is_fresh: bool) -> Stop:
    progress = {victim.ref: progress_of(victim, view, means) for victim in stop.victims}
    if all(far is Progress.STOPPED for far in progress.values()):
        return _enter(stop, Step.STARTING, now)
    needless = _no_longer_needed(stop, view, now) if any(map(means.is_careful, stop.victims)) else None
    if needless is not None:
        return needless
    if any(runs_still(v, view) for v in stop.victims if v.ref in dict(stop.refused)):
        return _enter(stop, Step.UNDOING, now, Outcome.REFUSED)
    if not is_fresh and Progress.UNTOUCHED in progress.values():
        return _enter(stop, Step.UNDOING, now, Outcome.TOO_OLD)
    if means.moves_in_first(stop) and is_moved_in(stop, view) is WorkState.FAILED:
        return _enter(stop, Step.UNDOING, now, Outcome.NOT_STARTED)
    failed = [v for v in stop.victims if progress[v.ref] is Progress.FAILED]
    late = [v for v in stop.victims if progress[v.ref] is not Progress.STOPPED and _is_late(v, stop, now, means)]
    if not failed and not late:
        return stop
    if is_fresh and all(victim.last_resort for victim in (*failed, *late)):
        return _with_last_resort(stop, {victim.ref for victim in (*failed, *late)}, now)
    told = [(victim.ref, _why_failed(victim, view, means)) for victim in failed]
    told += [(victim.ref, _how_late(victim, means)) for victim in late if victim not in failed]
    return replace(_enter(stop, Step.UNDOING, now, Outcome.VICTIM_STAYED), refused=(*stop.refused, *told))


def _no_longer_needed(stop: Stop, view: View, now: float) -> Stop | None:
    """Saving work takes its time: meanwhile others may have ended, so that the beneficiary runs already, or it may be
    gone. Then nobody more is stopped for it."""
    job = view.job(stop.beneficiary.ref)
    if job is None:
        return _enter(stop, Step.UNDOING, now, Outcome.BENEFICIARY_GONE)
    if job.holds_cpus:
        return replace(_enter(stop, Step.UNDOING, now, Outcome.STARTED), started_at=now)
    return None


def _is_late(victim: VictimState, stop: Stop, now: float, means: Means) -> bool:
    """A quick one waits until all careful ones are through, and only then has its own time."""
    patience = means.moving(stop.beneficiary) if means.is_careful(victim) else means.patience(stop)
    return now - stop.since > means.stop_limit(victim) + patience


def _with_last_resort(stop: Stop, refs: set[str], now: float) -> Stop:
    """What their class allows, explicitly, for jobs that could not be stopped with their work kept."""
    victims = tuple(
        replace(victim, method=victim.last_resort, last_resort="") if victim.ref in refs else victim
        for victim in stop.victims
    )
    return replace(stop, victims=victims, since=now)


def _why_failed(victim: VictimState, view: View, means: Means) -> str:
    job = view.job(victim.ref)
    why = "" if job is None else means.method(victim).why_failed(seen_of(victim, job, view))
    return f"job {victim.ref} could not be stopped ({victim.method}): {why or 'no reason given'}"


def _how_late(victim: VictimState, means: Means) -> str:
    return f"job {victim.ref} took longer than {means.stop_limit(victim):g} s to be stopped ({victim.method})"


def _after_starting(stop: Stop, view: View, now: float, means: Means) -> Stop:
    job = view.job(stop.beneficiary.ref)
    if job is None:
        return _enter(stop, Step.RETURNING, now, Outcome.BENEFICIARY_GONE)
    if job.holds_cpus:
        return replace(_enter(stop, Step.RETURNING, now, Outcome.STARTED), started_at=now)
    if now - stop.since > means.start_limit(stop.beneficiary):
        return _enter(stop, Step.UNDOING, now, Outcome.NOT_STARTED)
    return stop
