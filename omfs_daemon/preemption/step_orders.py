"""The orders of a step of a stop: what is still missing for it. Pure, so that they can be given again after a crash."""

from __future__ import annotations

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.preemption.progress import Means
from omfs_daemon.preemption.preemption import Step
from omfs_daemon.preemption.preemption import Stop
from omfs_daemon.preemption.preemption import VictimState
from omfs_daemon.preemption.progress import View
from omfs_daemon.preemption.progress import progress_of
from omfs_daemon.preemption.progress import seen_of
from omfs_daemon.preemption.methods.base import Action
from omfs_daemon.preemption.methods.base import OnNodes
from omfs_daemon.preemption.methods.base import Progress
from omfs_daemon.preemption.methods.base import Seen
from omfs_daemon.preemption.methods.not_installed import method_of
from omfs_daemon.preemption.methods.node_work import Do
from omfs_daemon.preemption.methods.node_work import WorkState
from omfs_daemon.cluster.holds import HOLD_MARK
from omfs_daemon.cluster.holds import OUR_MARK
from omfs_daemon.cluster.holds import STOPPED_MARK
from omfs_daemon.cluster.holds import is_held_by_us
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.orders import Order


def orders_for(stop: Stop, view: View, means: Means) -> list[Action]:
    """What is still missing for the present step."""
    match stop.step:
        case Step.PREPARING:
            return [*_prepare(stop, view, means)]
        case Step.STOPPING:
            first = _beneficiary_first(stop, view)
            return [*first, *_stop_running(stop, view, means), *_keep_stopped(stop, view, means)]
        case Step.STARTING:
            first = _beneficiary_first(stop, view)
            return [*first, *_keep_stopped(stop, view, means), *_resume_beneficiary(stop, view, means)]
        case Step.RETURNING:
            return [*_bring_back(stop, view, means)]
        case Step.UNDOING:
            return [*_restore_beneficiary(stop, view), *_bring_back(stop, view, means)]
    return []


def _prepare(stop: Stop, view: View, means: Means) -> list[Action]:
    """Mark the victims as ours; put the beneficiary first and let it go, on its nodes only."""
    wanted: list[Action] = [orders.Comment(tuple(victim.ref for victim in stop.victims), _mark(stop))]
    for victim in stop.victims:
        job = view.job(victim.ref)
        if job is not None:
            wanted += means.method(victim).prepare(seen_of(victim, job, view))
    return [*wanted, *_beneficiary_first(stop, view)]


def _beneficiary_first(stop: Stop, view: View) -> list[Order]:
    """What the waiting beneficiary still lacks. A hold that somebody else set meanwhile is left alone."""
    beneficiary = stop.beneficiary
    job = view.job(beneficiary.ref)
    if job is None or beneficiary.suspended or job.state is not JobState.PENDING:
        return []
    wanted: list[Order] = []
    nodes = tuple(share.node for share in beneficiary.shares)
    licensed = beneficiary.licenses is None or job.licenses == beneficiary.licenses
    nice = beneficiary.nice if job.nice != beneficiary.nice else None
    if job.request.required_nodes != frozenset(nodes) or not licensed:
        wanted.append(orders.Pin(beneficiary.ref, nodes, beneficiary.licenses, nice))
    elif nice is not None:
        wanted.append(orders.SetNice((beneficiary.ref,), beneficiary.nice))
    if is_held_by_us(job):
        wanted.append(orders.Release((beneficiary.ref,)))
    return wanted


def _mark(stop: Stop) -> str:
    kind = "urgent" if stop.beneficiary.urgent else "entitled"
    return f"{STOPPED_MARK} for job {stop.beneficiary.ref} ({kind}, account {stop.beneficiary.account})"


def _stop_running(stop: Stop, view: View, means: Means) -> list[Action]:
    """Careful victims first. Only when their work is safe are they made to let go, and the quick ones stopped: so
    nobody loses anything for a stop that fails half-way, and all CPUs become free at once."""
    found = [(victim, job) for victim in stop.victims if (job := view.job(victim.ref)) is not None]
    far = {victim.ref: progress_of(victim, view, means) for victim, _ in found}
    is_safe = all(far[v.ref] in _SAFE for v, _ in found if means.is_careful(v))
    if is_safe and means.moves_in_first(stop) and is_moved_in(stop, view) is not WorkState.DONE:
        return _resume_beneficiary(stop, view, means)
    wanted: list[Action] = []
    quick: list[Action] = []
    for name in dict.fromkeys(victim.method for victim, _ in found):
        of_name = [(victim, seen_of(victim, job, view)) for victim, job in found if victim.method == name]
        untouched = [seen for victim, seen in of_name if far[victim.ref] is Progress.UNTOUCHED]
        secured = [seen for victim, seen in of_name if far[victim.ref] is Progress.SECURED]
        victim, method = of_name[0][0], means.method(of_name[0][0])
        if secured and is_safe:
            wanted += method.finish(secured)
        if untouched and means.is_careful(victim):
            wanted += method.stop(untouched)
        elif untouched and is_safe:
            quick += method.stop(untouched)
    return [*wanted, *quick]


_SAFE = (Progress.SECURED, Progress.STOPPED)


def _keep_stopped(stop: Stop, view: View, means: Means) -> list[Action]:
    wanted: list[Action] = []
    for victim in stop.victims:
        job = view.job(victim.ref)
        if job is not None:
            wanted += means.method(victim).keep_stopped(seen_of(victim, job, view))
    return wanted


def orders_after_stopping(stop: Stop, view: View, means: Means) -> list[Order]:
    """To be given right behind the orders that stop the victims, if Slurm took them all.

    A suspended beneficiary runs on before anybody else is given the CPUs: Slurm has taken a stopped job off its
    books when it has taken the order, and starts nobody on a node until that job has left.
    """
    careful = [victim for victim in stop.victims if means.is_careful(victim)]
    if not stop.beneficiary.suspended or any(progress_of(victim, view, means) not in _SAFE for victim in careful):
        return []
    if means.is_moved_in(stop.beneficiary) and is_moved_in(stop, view) is not WorkState.DONE:
        return []
    return [orders.Resume((stop.beneficiary.ref,))]


def _resume_beneficiary(stop: Stop, view: View, means: Means) -> list[Action]:
    """One whose memory is out is moved in before, also while others are in its place."""
    job = view.job(stop.beneficiary.ref)
    if not stop.beneficiary.suspended or job is None or job.state is not JobState.SUSPENDED:
        return []
    is_free = stop.step is Step.STOPPING or bool(view.fit_together([job]))
    return method_of(means.methods, stop.beneficiary.method).bring_back(Seen(job, view.work(job.ref)), is_free)


def is_moved_in(stop: Stop, view: View) -> WorkState | None:
    """How far the beneficiary's memory is on its way in; None if it is not."""
    work = view.work(stop.beneficiary.ref)
    return work.state if work is not None and work.do is Do.IN else None


def _bring_back(stop: Stop, view: View, means: Means) -> list[Action]:
    """Jobs that left get their turn again. Suspended ones wait for their place under the policy's eye, except in an
    undo, where CPUs that nobody took are given back at once; there a stop that was only begun is taken back, too."""
    wanted: list[Action] = []
    undoing = stop.step is Step.UNDOING
    found = [(victim, job) for victim in stop.victims if (job := view.job(victim.ref)) is not None]
    suspended = [job for _, job in found if job.state is JobState.SUSPENDED]
    fitting = view.fit_together(suspended) if undoing else set()
    for victim, job in found:
        if undoing or not job.runs:
            wanted += means.method(victim).bring_back(seen_of(victim, job, view), job.ref in fitting)
        if undoing and job.runs and victim.keeps is not None and job.licenses != victim.licenses:
            wanted.append(orders.SetLicenses((job.ref,), victim.licenses))  # taken off, but never suspended
    return wanted


def _restore_beneficiary(stop: Stop, view: View) -> list[Order]:
    beneficiary = stop.beneficiary
    job = view.job(beneficiary.ref)
    if job is None or beneficiary.suspended or job.state is not JobState.PENDING:
        return []
    wanted: list[Order] = []
    if beneficiary.held_before and job.hold is Hold.NONE:
        if not job.admin_comment.startswith(OUR_MARK):  # the failsafe takes marks off
            wanted.append(orders.Comment((job.ref,), HOLD_MARK))
        wanted.append(orders.Hold((job.ref,)))
    licenses = None if beneficiary.licenses is None else beneficiary.licenses_before
    if set(job.request.required_nodes) != set(beneficiary.required_before) or licenses not in (None, job.licenses):
        wanted.append(orders.Pin(job.ref, beneficiary.required_before, licenses))
    if job.nice != beneficiary.nice_before:
        wanted.append(orders.SetNice((job.ref,), beneficiary.nice_before))
    return wanted


def is_anything_to_return(stop: Stop, view: View, means: Means) -> bool:
    return bool(_bring_back(stop, view, means)) or _is_any_on_its_way(stop, view)


def is_anything_to_undo(stop: Stop, view: View, means: Means) -> bool:
    """What only nodes can do, and cannot do now, is not waited for: it is done later (``reconcile``)."""
    waited_for = [
        action
        for action in _bring_back(stop, view, means)
        if not isinstance(action, OnNodes) or not _in_vain(action, view)
    ]
    return bool(_restore_beneficiary(stop, view) or waited_for) or _is_any_on_its_way(stop, view)


def _in_vain(action: OnNodes, view: View) -> bool:
    work = view.work(action.ref)
    return work is not None and work.do is action.do and work.state is WorkState.FAILED


def not_brought_back(stop: Stop, view: View, means: Means) -> list[VictimState]:
    """Victims that Slurm thinks are running, and that a node still keeps from it."""
    found = [(victim, job) for victim in stop.victims if (job := view.job(victim.ref)) is not None]
    return [v for v, job in found if job.runs and means.method(v).bring_back(seen_of(v, job, view), True)]


def _is_any_on_its_way(stop: Stop, view: View) -> bool:
    """A victim that is still COMPLETING will be held as soon as it is done: it must not be forgotten then."""
    jobs = (view.job(victim.ref) for victim in stop.victims)
    return any(job is not None and job.state is JobState.COMPLETING for job in jobs)
