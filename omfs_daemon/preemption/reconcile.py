"""What has become of the jobs that we remember. Pure: state and picture in; records, orders, events out."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from omfs_daemon.cluster import run_report as launched
from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.run_report import RunState
from omfs_daemon.cluster.preempt_methods import SUSPEND
from omfs_daemon.cluster.snapshot import Stopped
from omfs_daemon.preemption.observation import Picture
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import JobBack
from omfs_daemon.preemption.state import JobsGone
from omfs_daemon.preemption.state import JobStopped
from omfs_daemon.preemption.state import Record
from omfs_daemon.preemption.state import State
from omfs_daemon.preemption.state import Unpinned
from omfs_daemon.preemption.records import Event
from omfs_daemon.preemption.records import Paid
from omfs_daemon.preemption.methods.base import Action
from omfs_daemon.preemption.methods.base import Seen
from omfs_daemon.preemption.methods.base import StopMethod
from omfs_daemon.preemption.methods.checkpoint import WHY_TEXT
from omfs_daemon.preemption.methods.not_installed import method_of
from omfs_daemon.policy.rules.job_kinds import Kinds
from omfs_daemon.cluster.holds import OUR_MARK
from omfs_daemon.cluster.holds import STOPPED_MARK
from omfs_daemon.cluster.holds import is_held_for_owner
from omfs_daemon.slurm import orders

RESUMED_LATELY = 60.0
"""Seconds in which a resume is watched for having come over CPUs that Slurm had just given away."""

SPEAKS_WITHIN = 60.0
"""Seconds of running after which a launcher that has not said how its restart went is not waited for."""


class Findings(NamedTuple):
    """``records`` are written before ``orders`` are given."""

    records: list[Record]
    orders: list[Action]
    events: list[Event]
    costs: list[Paid]


def reconcile(state: State, picture: Picture, now: float, settings: Settings) -> Findings:
    """Jobs that run again, are gone, still carry our pin, or were resumed over busy CPUs; stops under way apart."""
    under_way = {ref for stop in state.stops.values() for ref in stop.refs}
    found = Findings([], [], [], [])
    gone = sorted(ref for ref in state.known_refs() - under_way if picture.job(ref) is None)
    if gone:
        found.records.append(JobsGone(tuple(gone)))
    for ref, stopped in state.stopped.items():
        job = picture.job(ref)
        if job is None or ref in under_way:
            continue
        if job.runs:
            _runs_again(found, job, stopped, picture, now, settings)
        elif job.state is JobState.PENDING:  # it was requeued while it was stopped
            found.orders.extend(orders.licenses_back(job, stopped.licenses))
    for ref, nodes in state.pins.items():
        job = picture.job(ref)
        if job is not None and job.state is JobState.PENDING and ref not in under_way:
            # Forgotten only once it is *seen* to be off: the order may get lost.
            if job.request.required_nodes == frozenset(nodes):
                found.records.append(Unpinned(ref))
            else:
                found.orders.append(orders.Pin(ref, nodes))
    marked = [job for job in picture.snapshot.jobs.values() if _is_marked(job)]
    _let_go_of_forgotten(found, state, marked, now, under_way)
    _tell_owners(found, state, marked, now)
    _tell_unready(found, marked, now, settings)
    _take_marks_off(found, state, marked, under_way)
    _suspend_overcommitted(found, state, picture, now)
    return found


def _is_marked(job: Job) -> bool:
    """Whether it has words for us or of ours, or exited as omfs-run does: few jobs among many."""
    return job.special_exit or bool(job.admin_comment) or "omfs:" in job.comment


def _let_go_of_forgotten(found: Findings, state: State, marked: Sequence[Job], now: float, under_way: Set[str]) -> None:
    """Jobs that a launcher stopped, and for which no stop is remembered: somebody else asked for it, or ours was
    undone before it was through. Nobody else would let them go on."""
    for job in marked:
        if not _waits_after_stop(job):
            continue
        if job.ref not in state.stopped and job.ref not in under_way:
            found.orders.append(orders.Release((job.ref,)))
            text = "its checkpoint is written, but nothing is remembered of a stop: it may go on"
            found.events.append(Event(now, job.ref, job.user, job.account, "let_go", text))


def _tell_owners(found: Findings, state: State, marked: Sequence[Job], now: float) -> None:
    """Jobs that omfs-run could not restart are their owners' again: he alone can mend and release them."""
    for job in marked:
        if not job.special_exit or job.admin_comment.startswith(_TOLD) or not is_held_for_owner(job):
            continue
        run = launched.of(job)
        why = WHY_TEXT.get(run.why, run.why) if run is not None and run.why else "see the job's output"
        text = f"{_TOLD} from a checkpoint: {why}. Its owner may release it to try again"
        if job.ref in state.stopped:
            found.records.append(JobsGone((job.ref,)))
        found.orders.append(orders.Comment((job.ref,), text))
        found.events.append(Event(now, job.ref, job.user, job.account, "held_for_owner", text))


_TOLD = "[omfs] could not be restarted"


def _tell_unready(found: Findings, marked: Sequence[Job], now: float, settings: Settings) -> None:
    """Jobs that say how they can be stopped, and do nothing for it: most owners have only forgotten omfs-run."""
    kinds = Kinds(settings.rules)
    for job in marked:
        if not job.runs or job.run_time < SPEAKS_WITHIN or "omfs:method=" not in job.comment:
            continue
        if job.admin_comment.startswith((_UNREADY, OUR_MARK)):
            continue
        job_class = kinds.of(job).job_class
        if job_class.methods and kinds.is_only_said(job, job_class):
            text = f"{_UNREADY}, as its comment says: put `exec omfs-run` before the program in its script"
            found.orders.append(orders.Comment((job.ref,), text))
            found.events.append(Event(now, job.ref, job.user, job.account, "not_ready", text))


_UNREADY = "[omfs] cannot be stopped"


def _waits_after_stop(job: Job) -> bool:
    """In the hold that Slurm sets after exit code 101, or in ours on top of it."""
    run = launched.of(job)
    if run is None or run.state is not RunState.STOPPED or job.state is not JobState.PENDING:
        return False
    return job.special_exit and (job.hold is Hold.USER or job.admin_comment.startswith(STOPPED_MARK))


def _take_marks_off(found: Findings, state: State, marked: Sequence[Job], under_way: Set[str]) -> None:
    """Jobs that nothing of ours holds any more: a hold that an administrator sets later is to be seen as his."""
    stale = [
        job.ref
        for job in marked
        if job.admin_comment.startswith(OUR_MARK)
        and job.hold is Hold.NONE
        and job.ref not in state.stopped
        and job.ref not in under_way
    ]
    if stale:
        found.orders.append(orders.Comment(tuple(stale), "[omfs] was held for a while; let go"))


def _runs_again(found: Findings, job: Job, stopped: Stopped, picture: Picture, now: float, settings: Settings) -> None:
    method = method_of(settings.methods, stopped.method)
    missing = [*orders.licenses_back(job, stopped.licenses), *method.bring_back(Seen(job, picture.work(job.ref)), True)]
    if missing:
        found.orders.extend(missing)
        return
    run = launched.of(job)
    spoke = run is not None and run.state is not RunState.STOPPED
    if method.traits.launched and not spoke and job.run_time < SPEAKS_WITHIN:
        return
    found.records.append(JobBack(job.ref, now, method.traits.keeps_work))
    away = now - stopped.at
    text = f"[omfs] was stopped ({stopped.method}) for job {stopped.beneficiary} and runs again after {away:.0f} s"
    found.orders.append(orders.Comment((job.ref,), text))
    found.events.append(Event(now, job.ref, job.user, job.account, "runs_again", text, {"away_seconds": away}))
    found.costs.append(_paid(job, method, picture, now))


def _paid(job: Job, method: StopMethod, picture: Picture, now: float) -> Paid:
    """What its return has cost, as omfs-run or the nodes tell."""
    run, work = launched.of(job), picture.work(job.ref)
    seconds, lost, size = 0.0, 0.0, 0
    if method.traits.launched and run is not None:
        seconds, lost = min(run.seconds, job.run_time), run.lost  # its own word, which its owner can write
    elif method.traits.on_nodes and work is not None:
        seconds, size = work.seconds, work.moved
    name, nodes = method.traits.name, max(1, len(job.on_nodes))
    return Paid(now, job.ref, job.user, job.account, name, "in", seconds, seconds, size, lost, nodes)


def _suspend_overcommitted(found: Findings, state: State, picture: Picture, now: float) -> None:
    """Slurm resumes a job over busy CPUs without a word: then it must stand back again, for it came last."""
    lately = [ref for ref, at in state.running_since.items() if now - at < RESUMED_LATELY and ref not in state.stopped]
    if not lately:
        return
    nodes = picture.overcommitted()
    for ref in lately:
        job = picture.job(ref)
        if job is not None and job.runs and nodes.intersection(job.on_nodes):
            found.records.append(JobStopped(ref, now, SUSPEND.name, ""))
            found.orders.append(orders.Suspend((ref,)))
            text = "its CPUs had just been taken when it was resumed: suspended again"
            found.events.append(Event(now, ref, job.user, job.account, "stood_back", text))
