"""What has become of the jobs that we remember. Pure: state and picture in; records, orders, events out."""

from __future__ import annotations

from typing import NamedTuple

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.methods import METHODS, SUSPEND
from omfs_daemon.daemon.picture import Picture
from omfs_daemon.daemon.state import JobBack, JobsGone, JobStopped, Record, State, Unpinned
from omfs_daemon.daemon.story import Event
from omfs_daemon.policy.queue import OUR_MARK
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.orders import Order

RESUMED_LATELY = 60.0
"""Seconds in which a resume is watched for having come over CPUs that Slurm had just given away."""


class Findings(NamedTuple):
    """``records`` are written before ``orders`` are given."""

    records: list[Record]
    orders: list[Order]
    events: list[Event]


def reconcile(state: State, picture: Picture, now: float) -> Findings:
    """Jobs that run again, are gone, still carry our pin, or were resumed over busy CPUs; stops under way apart."""
    under_way = {ref for stop in state.stops.values() for ref in stop.refs}
    found = Findings([], [], [])
    gone = sorted(ref for ref in state.known_refs() - under_way if picture.job(ref) is None)
    if gone:
        found.records.append(JobsGone(tuple(gone)))
    for ref, stopped in state.stopped.items():
        job = picture.job(ref)
        if job is not None and job.runs and ref not in under_way:
            _runs_again(found, job, stopped.method, stopped.at, stopped.beneficiary, now)
    for ref, nodes in state.pins.items():
        job = picture.job(ref)
        if job is not None and job.state is JobState.PENDING and ref not in under_way:
            # Forgotten only once it is *seen* to be off: the order may get lost.
            if job.request.required_nodes == frozenset(nodes):
                found.records.append(Unpinned(ref))
            else:
                found.orders.append(orders.Pin(ref, nodes))
    _take_marks_off(found, state, picture, under_way)
    _suspend_overcommitted(found, state, picture, now)
    return found


def _take_marks_off(found: Findings, state: State, picture: Picture, under_way: set[str]) -> None:
    """Jobs that nothing of ours holds any more: a hold that an administrator sets later is to be seen as his."""
    stale = [
        job.ref
        for job in picture.snapshot.jobs.values()
        if job.admin_comment.startswith(OUR_MARK)
        and job.hold is Hold.NONE
        and job.ref not in state.stopped
        and job.ref not in under_way
    ]
    if stale:
        found.orders.append(orders.Comment(tuple(stale), "[omfs] was held for a while; let go"))


def _runs_again(found: Findings, job: Job, method: str, at: float, beneficiary: str, now: float) -> None:
    resumed = method in METHODS and METHODS[method].keeps_work
    found.records.append(JobBack(job.ref, now, resumed))
    text = f"[omfs] was stopped ({method}) for job {beneficiary} and runs again after {now - at:.0f} s"
    found.orders.append(orders.Comment((job.ref,), text))
    found.events.append(Event(now, job.ref, job.user, job.account, "runs_again", text, {"away_seconds": now - at}))


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
