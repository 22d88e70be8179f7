"""For which jobs nobody is preempted for a while, because Slurm did not start them or would not. Pure.

The first back-off is short where nobody was preempted, for asking Slurm again costs little; it is for jobs of the same
user and shape. After a preemption in vain it is for those of the same account and shape. Each further one is twice as
long, up to a bound, until one of them starts. A job for which others were
preempted in vain waits until its request changes, or Slurm names another reason for which it waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from omfs_daemon.cluster.holds import is_held
from omfs_daemon.cluster.job_shape import shape_of, shape_of_user
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.policy.rules import laws
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.preemption.doubts import doubts_after, doubts_over
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.ownership import JobField, OwnedField, licenses_of, nodes_of
from omfs_daemon.preemption.preemption import Preemption, PreemptionOutcome
from omfs_daemon.preemption.preemptor_backoffs import ShapeBackoff, Unstarted, UserBackoff
from omfs_daemon.preemption.proof import RESOURCES
from omfs_daemon.preemption.state import BackoffOver, PreemptorBackoff, Record, State, UsersBackOff

MOST_DOUBLINGS = 6
"""How often a back-off is doubled at most."""

ASK_AGAIN = 5.0
"""Seconds until Slurm is asked again for the first time whether it would start a job."""

URGENT_RETRY, URGENT_RETRY_MOST = 15.0, 120.0
"""Seconds until others are preempted again for an urgent job, at first and at most: it is to start at once, and each
attempt may cost others their work."""

BRIEF = 60.0
"""Seconds that a job should run for which others were preempted."""

_FORGOTTEN_AFTER = 86400.0
"""Seconds after its end when a shape's back-off is forgotten."""

_ASKED = (PreemptionOutcome.NOT_STARTABLE, PreemptionOutcome.NOT_PROVEN)


def retry_seconds(urgent: bool, retry_after: float, times: int = 1) -> float:
    """How long nobody is preempted after ``times`` attempts in vain; ``retry_after``: the configured one."""
    longer = 2.0 ** min(times - 1, MOST_DOUBLINGS)
    if urgent:
        return min(retry_after * longer, URGENT_RETRY * longer, URGENT_RETRY_MOST)
    return retry_after * longer


def preemptor_backoff(
    preemption: Preemption, state: State, observation: Observation, now: float, retry_after: float
) -> PreemptorBackoff:
    """After a preemption that failed for another reason than its victims."""
    preemptor, outcome = preemption.preemptor, preemption.outcome
    once = retry_seconds(preemptor.urgent, retry_after)
    job, unstarted = observation.job(preemptor.ref), state.backoff.unstarted.get(preemptor.ref)
    if outcome is PreemptionOutcome.CPUS_TAKEN:  # once is chance, and a bound may be in danger
        return PreemptorBackoff(preemptor.ref, now + (once if preemptor.ref in state.backoff.until else 0.0))
    in_vain = outcome is PreemptionOutcome.NOT_STARTED and not preemptor.suspended
    if not in_vain and outcome not in _ASKED:
        return PreemptorBackoff(preemptor.ref, now + once)
    doubts = doubts_after(preemption, state.backoff.doubts, observation, now, retry_after)
    if preemptor.doubted and not in_vain:
        # It alone waits on: others like it may lack nothing, and must get their turn.
        return PreemptorBackoff(preemptor.ref, now + once, doubts=doubts)
    # What Slurm refuses one user's job it may grant another's. What is tried in vain costs others their work.
    shape = preemptor.shape if in_vain else shape_of_user(preemptor.shape, preemptor.user)
    before = state.backoff.shapes.get(shape)
    times = before.times + 1 if before is not None else 1
    ask_again = min(ASK_AGAIN * 2.0 ** min(times - 1, MOST_DOUBLINGS), once)
    until = now + (retry_seconds(preemptor.urgent, retry_after, times) if in_vain else ask_again)
    tried = tuple(victim.ref for victim in preemption.victims) if in_vain else ()
    if job is not None and (in_vain or unstarted is None or not unstarted.in_vain):
        unstarted = Unstarted(preemptor.shape, job.reason or "None", in_vain)
    return PreemptorBackoff(preemptor.ref, until, ShapeBackoff(shape, until, times, now), unstarted, doubts, tried)


def users_back_off(
    state: State, observation: Observation, now: float, retry_after: float, rules: Rules
) -> list[Record]:
    """Jobs for which others were preempted, and that left at once, count against their user. Each beyond the number
    that the rules allow in an hour costs the user a wait, doubled each time, and at most the quantum."""
    watched, users = state.backoff.served, dict(state.backoff.users)
    preempted = {victim.ref for one in state.preemptions.values() for victim in one.victims} | state.preempted.keys()
    watched = {ref: job for ref, job in watched.items() if ref not in preempted}
    left = [ref for ref, job in watched.items() if _has_left(observation.job(ref)) or now - job.at >= BRIEF]
    for ref in left:
        user, at = watched[ref]
        if now - at < BRIEF:
            brief = (*users.get(user, UserBackoff((), 0.0)).brief, now)
            recent = tuple(time for time in brief if laws.counts_in_hour(time, now))
            beyond = len(recent) - rules.max_preemptions_per_hour
            longer = retry_after * 2.0 ** min(beyond - 1, MOST_DOUBLINGS)
            users[user] = UserBackoff(recent, now + min(longer, rules.quantum) if beyond > 0 else now)
    users = {user: one for user, one in users.items() if laws.counts_in_hour(one.brief[-1], now)}
    return [UsersBackOff(tuple(sorted(left)), users)] if left else []


def _has_left(job: Job | None) -> bool:
    """Whether it has ended, or waits again: its owner has requeued or held it, say."""
    return job is None or job.state is JobState.PENDING


def back_offs_over(state: State, observation: Observation, now: float) -> list[Record]:
    """Those whose cause is over."""
    under_way = {ref for preemption in state.preemptions.values() for ref in preemption.refs}
    known, refs, shapes = state.backoff, set[str](), set[str]()
    for ref in known.until.keys() - under_way:
        job, unstarted = observation.job(ref), known.unstarted.get(ref)
        if job is not None and job.runs:
            refs.add(ref)
        elif job is not None and unstarted is not None and _has_changed(job, unstarted, state.owned.get(ref, {})):
            refs.add(ref)
            shapes.update(shapes_to_clear(unstarted.shape, job.user))
    if known.shapes:
        shapes.update(_started_shapes(known.shapes, observation))
        shapes.update(shape for shape, one in known.shapes.items() if now - one.until > _FORGOTTEN_AFTER)
    shapes &= known.shapes.keys()
    doubts = doubts_over(known.doubts, observation, now)
    over = BackoffOver(tuple(sorted(refs)), tuple(sorted(shapes)), tuple(sorted(doubts)))
    return [over] if refs or shapes or doubts else []


def shapes_to_clear(shape: str, user: str) -> tuple[str, str]:
    """Whose back-offs are over when a job of this shape starts, or could."""
    return shape, shape_of_user(shape, user)


def _has_changed(job: Job, unstarted: Unstarted, owned: Mapping[JobField, OwnedField]) -> bool:
    """Its request, or what it lacks: a job that waits for resources alone passes all limits."""
    if job.state is not JobState.PENDING:
        return False
    lacks_resources = not is_held(job) and job.reason == RESOURCES
    return (lacks_resources and unstarted.reason != RESOURCES) or shape_of(as_requested(job, owned)) != unstarted.shape


def as_requested(job: Job, owned: Mapping[JobField, OwnedField]) -> Job:
    """Without the nodes and licenses that we have set."""
    if JobField.NODES in owned:
        nodes = frozenset(nodes_of(owned[JobField.NODES].baseline))
        job = replace(job, request=replace(job.request, required_nodes=nodes))
    if JobField.LICENSES in owned:
        job = replace(job, licenses=licenses_of(owned[JobField.LICENSES].baseline))
    return job


def _started_shapes(shapes: Mapping[str, ShapeBackoff], observation: Observation) -> Iterator[str]:
    first = min(back_off.since for back_off in shapes.values())
    for job in observation.snapshot.jobs.values():
        if job.runs and job.start is not None and job.start > first:
            for shape in shapes_to_clear(shape_of(job), job.user):
                if shape in shapes and job.start > shapes[shape].since:
                    yield shape
