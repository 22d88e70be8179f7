"""Compares the journal's state with what is observed. Pure: returns records, orders, events, and costs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from omfs_daemon.cluster.holds import (
    admin_comment_of,
    is_held,
    is_held_by_us,
    is_held_for_owner,
    is_release_observed,
    is_release_unfinished,
)
from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.cluster.preempt_methods import IN
from omfs_daemon.cluster.run_report import RunState, run_report
from omfs_daemon.cluster.snapshot import PreemptedJob
from omfs_daemon.policy.rules.job_kinds import JobKinds
from omfs_daemon.preemption.methods.base import Action, ObservedJob, PreemptMethod
from omfs_daemon.preemption.methods.checkpoint import WHY_TEXT
from omfs_daemon.preemption.methods.not_installed import method_named
from omfs_daemon.preemption.methods.suspend import SuspendMethod
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.records import JobEvent, PaidCost
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import (
    JobPreempted,
    JobRunsAgain,
    JobsGone,
    Record,
    ReleasesObserved,
    State,
    Unpinned,
)
from omfs_daemon.protocol import job_comment
from omfs_daemon.slurm import orders

RESUMED_LATELY = 60.0
"""Seconds in which a resumed job is checked for CPUs that Slurm had just given to another."""

REPORTS_WITHIN = 60.0
"""Seconds of running after which an omfs-run that has not reported its restart is no longer waited for."""


class Findings(NamedTuple):
    """``records`` are written before ``orders`` are given."""

    records: list[Record]
    orders: list[Action]
    events: list[JobEvent]
    costs: list[PaidCost]


def reconcile(state: State, observation: Observation, now: float, settings: Settings) -> Findings:
    """Jobs that run again, are gone, still carry our pin, or were resumed over busy CPUs; not those of preemptions
    under way."""
    under_way = {ref for preemption in state.preemptions.values() for ref in preemption.refs}
    found = Findings([], [], [], [])
    gone = sorted(ref for ref in state.known_refs() - under_way if observation.job(ref) is None)
    if gone:
        found.records.append(JobsGone(tuple(gone)))
    for ref, preempted in state.preempted.items():
        job = observation.job(ref)
        if job is None or ref in under_way:
            continue
        if job.runs:
            _runs_again(found, job, preempted, observation, now, settings)
        elif job.state is JobState.PENDING:  # it was requeued while it was suspended
            found.orders.extend(orders.return_licenses(job, preempted.licenses))
    for ref, nodes in state.pins.items():
        job = observation.job(ref)
        if job is not None and job.state is JobState.PENDING and ref not in under_way:
            # Forgotten only once Slurm shows that it is off: the order may get lost.
            if job.request.required_nodes == frozenset(nodes):
                found.records.append(Unpinned(ref))
            else:
                found.orders.append(orders.PinNodes(ref, nodes))
    marked = [job for job in observation.snapshot.jobs.values() if _is_marked(job)]
    known = under_way.union(state.preempted)
    _finish_releases(found, state, observation)
    _release_unknown(found, marked, now, known)
    _report_to_owners(found, state, marked, now)
    _report_unready(found, marked, now, settings)
    _end_marks(found, marked, known)
    _suspend_overcommitted(found, state, observation, now)
    return found


def _is_marked(job: Job) -> bool:
    """Whether it has a comment for us or of ours, or exited as omfs-run does: few jobs among many."""
    return not job.set_aside and (job.special_exit or bool(job.admin_comment) or job_comment.PREFIX in job.comment)


def _finish_releases(found: Findings, state: State, observation: Observation) -> None:
    """A release that ended between its mark and the release itself is repeated."""
    again: dict[str, None] = {}
    observed = []
    for ref, number in state.releasing.items():
        job = observation.job(ref)
        if job is None:
            continue
        if is_release_unfinished(job, number):
            again[job.ref] = None
        elif is_release_observed(job, number):
            observed.append(ref)
    if observed:
        found.records.append(ReleasesObserved(tuple(observed)))
    if again:
        found.orders.append(orders.ReleaseJobs(tuple(again)))


def _release_unknown(found: Findings, marked: Sequence[Job], now: float, known: Collection[str]) -> None:
    """Jobs that omfs-run has checkpointed without a preemption that we know: another user sent the signal, or ours was
    undone meanwhile. And running jobs that we hold for no preemption that we know. Nobody else would release them."""
    for job in marked:
        if job.ref in known:
            continue
        if _waits_after_checkpoint(job):
            found.orders.append(orders.ReleaseJobs((job.ref,)))
            text = "its checkpoint is written, but no preemption of it is known: released"
            found.events.append(JobEvent(now, job.ref, job.user, job.account, "released", text))
        elif job.runs and is_held_by_us(job):
            found.orders.append(orders.ReleaseJobs((job.ref,)))


def _report_to_owners(found: Findings, state: State, marked: Sequence[Job], now: float) -> None:
    """Jobs that omfs-run could not restart belong to their owners again, who alone can fix and release them."""
    for job in marked:
        if not job.special_exit or not is_held_for_owner(job):
            continue
        if admin_comment_of(job).sentence.startswith(_NOT_RESTARTED):
            continue
        run = run_report(job)
        why = WHY_TEXT.get(run.why, run.why) if run is not None and run.why else "see the job's output"
        text = f"{_NOT_RESTARTED} from a checkpoint: {why}. Its owner may release it to try again"
        if job.ref in state.preempted:
            found.records.append(JobsGone((job.ref,)))
        found.orders.append(orders.MarkJobs((job.ref,), MarkWord.RELEASED, text))
        found.events.append(JobEvent(now, job.ref, job.user, job.account, "held_for_owner", text))


_NOT_RESTARTED = "[omfs] could not be restarted"


def _report_unready(found: Findings, marked: Sequence[Job], now: float, settings: Settings) -> None:
    """Jobs that name a method in their comment without being ready for it: most owners have forgotten omfs-run."""
    kinds = JobKinds(settings.rules)
    for job in marked:
        if not job.runs or job.run_time < REPORTS_WITHIN or job_comment.METHOD_KEY not in job.comment:
            continue
        written = admin_comment_of(job)
        if written.sentence.startswith(_NOT_READY) or written.word in (MarkWord.HELD, MarkWord.STOPPING):
            continue
        job_class = kinds.of(job).job_class
        if job_class.methods and kinds.is_only_declared(job, job_class):
            text = f"{_NOT_READY} as its comment says: put `exec omfs-run` before the program in its batch script"
            found.orders.append(orders.MarkJobs((job.ref,), MarkWord.RELEASED, text))
            found.events.append(JobEvent(now, job.ref, job.user, job.account, "not_ready", text))


_NOT_READY = "[omfs] cannot be preempted"


def _waits_after_checkpoint(job: Job) -> bool:
    """Held by Slurm after omfs-run's exit code, or by us on top of that."""
    if not job.special_exit or job.state is not JobState.PENDING:
        return False
    run = run_report(job)
    by_its_exit = job.hold is Hold.USER and admin_comment_of(job).word is not MarkWord.ADMIN_HELD
    return run is not None and run.state is RunState.STOPPED and (by_its_exit or is_held_by_us(job))


def _end_marks(found: Findings, marked: Sequence[Job], known: Collection[str]) -> None:
    """A running job that is not preempted, or was spared, has no mark of a hold or of a preemption: what an
    administrator did while it waited is over, and a later suspension by somebody else must not look like ours."""
    over = tuple(job.ref for job in marked if job.ref not in known and _is_mark_over(job))
    if over:
        found.orders.append(orders.MarkJobs(over, MarkWord.RELEASED))


def _is_mark_over(job: Job) -> bool:
    if is_held(job):
        return False
    if job.state is JobState.PENDING:
        return admin_comment_of(job).word is MarkWord.STOPPING
    return job.runs and admin_comment_of(job).word in (MarkWord.HELD, MarkWord.STOPPING, MarkWord.ADMIN_RELEASED)


def _runs_again(
    found: Findings, job: Job, preempted: PreemptedJob, observation: Observation, now: float, settings: Settings
) -> None:
    method = method_named(settings.methods, preempted.method)
    missing = [
        *orders.return_licenses(job, preempted.licenses),
        *method.resume(ObservedJob(job, observation.work(job.ref)), True),
    ]
    if missing:
        found.orders.extend(missing)
        return
    run = run_report(job)
    has_reported = run is not None and run.state is not RunState.STOPPED
    if method.traits.launched and not has_reported and job.run_time < REPORTS_WITHIN:
        return
    found.records.append(JobRunsAgain(job.ref, now, method.traits.keeps_work))
    away = now - preempted.at
    text = f"[omfs] was preempted ({preempted.method}) for job {preempted.preemptor} and runs again after {away:.0f} s"
    found.orders.append(orders.MarkJobs((job.ref,), MarkWord.RELEASED, text))
    found.events.append(JobEvent(now, job.ref, job.user, job.account, "runs_again", text, {"away_seconds": away}))
    found.costs.append(_paid(job, method, observation, now))


def _paid(job: Job, method: PreemptMethod, observation: Observation, now: float) -> PaidCost:
    """What its return has cost, as omfs-run or the nodes report."""
    run, work = run_report(job), observation.work(job.ref)
    seconds, lost, size = 0.0, 0.0, 0
    if method.traits.launched and run is not None:
        seconds, lost = min(run.seconds, job.run_time), run.lost  # capped: the job's owner can write the job comment
    elif method.traits.on_nodes and work is not None:
        seconds, size = work.seconds, work.moved
    name, nodes = method.traits.name, max(1, len(job.on_nodes))
    return PaidCost(now, job.ref, job.user, job.account, name, IN, seconds, seconds, size, lost, nodes)


def _suspend_overcommitted(found: Findings, state: State, observation: Observation, now: float) -> None:
    """Slurm resumes a job even over busy CPUs: it is suspended again, because it came last."""
    lately = [
        ref for ref, at in state.running_since.items() if now - at < RESUMED_LATELY and ref not in state.preempted
    ]
    if not lately:
        return
    nodes = observation.overcommitted()
    for ref in lately:
        job = observation.job(ref)
        if job is not None and job.runs and nodes.intersection(job.on_nodes):
            found.records.append(JobPreempted(ref, now, SuspendMethod.traits.name, ""))
            found.orders.append(orders.SuspendJobs((ref,)))
            text = "its CPUs had just been taken when it was resumed: suspended again"
            found.events.append(JobEvent(now, ref, job.user, job.account, "suspended_again", text))
