"""The orders of a preemption's step: what is still missing. Pure, so that they can be sent again after a crash."""

from __future__ import annotations

from dataclasses import replace

from omfs_daemon.cluster.holds import is_held, is_held_by_us, may_hold
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.preemption.methods.base import Action, NodeOrder, ObservedJob, PreemptionProgress
from omfs_daemon.preemption.methods.node_work import NodeAction, NodeWorkState
from omfs_daemon.preemption.methods.not_installed import method_named
from omfs_daemon.preemption.methods.requeue import RequeueMethod
from omfs_daemon.preemption.preemption import Preemption, Step, VictimState
from omfs_daemon.preemption.progress import MethodSettings, ObservedCluster, progress_of, seen_of
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.orders import Order


def orders_for(preemption: Preemption, view: ObservedCluster, method_settings: MethodSettings) -> list[Action]:
    """What is still missing for the present step; holds tell their owners why."""
    found = _orders_of_step(preemption, view, method_settings)
    text = _sentence(preemption)
    return [replace(o, sentence=text) if isinstance(o, orders.HoldJobs) and not o.sentence else o for o in found]


def _orders_of_step(preemption: Preemption, view: ObservedCluster, method_settings: MethodSettings) -> list[Action]:
    match preemption.step:
        case Step.PREPARING:
            return [*_prepare(preemption, view, method_settings)]
        case Step.STOPPING:
            first = _preemptor_first(preemption, view)
            return [
                *first,
                *_preempt_running(preemption, view, method_settings),
                *_keep_preempted(preemption, view, method_settings),
            ]
        case Step.STARTING:
            first = _preemptor_first(preemption, view)
            return [
                *first,
                *_keep_preempted(preemption, view, method_settings),
                *_resume_preemptor(preemption, view, method_settings),
            ]
        case Step.RETURNING:
            return [*_resume_victims(preemption, view, method_settings)]
        case Step.UNDOING:
            return [*_restore_preemptor(preemption, view), *_resume_victims(preemption, view, method_settings)]
    return []


def _prepare(preemption: Preemption, view: ObservedCluster, method_settings: MethodSettings) -> list[Action]:
    """Mark the victims; rank the preemptor first, pin it to its nodes, and release it. Victims of a requeue are marked
    by the hold that comes right before it: the time between both is to be short."""
    marked = tuple(v.ref for v in preemption.victims if v.method != RequeueMethod.traits.name)
    wanted: list[Action] = []
    if marked:
        wanted.append(orders.MarkJobs(marked, MarkWord.STOPPING, _sentence(preemption)))
    for victim in preemption.victims:
        job = view.job(victim.ref)
        if job is not None:
            wanted += method_settings.method(victim).prepare(seen_of(victim, job, view))
    return [*wanted, *_preemptor_first(preemption, view)]


def _preemptor_first(preemption: Preemption, view: ObservedCluster) -> list[Order]:
    """What the pending preemptor still lacks. A hold that somebody else has set meanwhile is left alone."""
    preemptor = preemption.preemptor
    job = view.job(preemptor.ref)
    if job is None or preemptor.suspended or job.state is not JobState.PENDING:
        return []
    wanted: list[Order] = []
    nodes = tuple(allocation.node for allocation in preemptor.allocations)
    licensed = preemptor.licenses is None or job.licenses == preemptor.licenses
    nice = preemptor.nice if job.nice != preemptor.nice else None
    if job.request.required_nodes != frozenset(nodes) or not licensed:
        wanted.append(orders.PinNodes(preemptor.ref, nodes, preemptor.licenses, nice))
    elif nice is not None:
        wanted.append(orders.SetNice((preemptor.ref,), preemptor.nice))
    if is_held_by_us(job):
        wanted.append(orders.ReleaseJobs((preemptor.ref,)))
    return wanted


def _sentence(preemption: Preemption) -> str:
    kind = "urgent" if preemption.preemptor.urgent else "entitled"
    return f"[omfs] preempted for job {preemption.preemptor.ref} ({kind}, account {preemption.preemptor.account})"


def _preempt_running(preemption: Preemption, view: ObservedCluster, method_settings: MethodSettings) -> list[Action]:
    """Careful victims first. Only when their work is safe do they free their CPUs, and are the quick ones preempted: no
    job loses work for a preemption that fails halfway, and all CPUs become free at once."""
    found = [(victim, job) for victim in preemption.victims if (job := view.job(victim.ref)) is not None]
    far = {victim.ref: progress_of(victim, view, method_settings) for victim, _ in found}
    is_safe = all(far[v.ref] in _SAFE for v, _ in found if method_settings.is_careful(v))
    if (
        is_safe
        and method_settings.moves_in_first(preemption)
        and is_moved_in(preemption, view) is not NodeWorkState.DONE
    ):
        return _resume_preemptor(preemption, view, method_settings)
    wanted: list[Action] = []
    quick: list[Action] = []
    for name in dict.fromkeys(victim.method for victim, _ in found):
        of_name = [(victim, seen_of(victim, job, view)) for victim, job in found if victim.method == name]
        untouched = [seen for victim, seen in of_name if far[victim.ref] is PreemptionProgress.UNTOUCHED]
        secured = [seen for victim, seen in of_name if far[victim.ref] is PreemptionProgress.SECURED]
        victim, method = of_name[0][0], method_settings.method(of_name[0][0])
        if secured and is_safe:
            wanted += method.finish(secured)
        if untouched and method_settings.is_careful(victim):
            wanted += method.preempt(untouched)
        elif untouched and is_safe:
            quick += method.preempt(untouched)
    return [*wanted, *quick]


_SAFE = (PreemptionProgress.SECURED, PreemptionProgress.PREEMPTED)


def _keep_preempted(preemption: Preemption, view: ObservedCluster, method_settings: MethodSettings) -> list[Action]:
    wanted: list[Action] = []
    for victim in preemption.victims:
        job = view.job(victim.ref)
        if job is not None:
            wanted += method_settings.method(victim).keep_preempted(seen_of(victim, job, view))
    return wanted


def orders_after_preempting(
    preemption: Preemption, view: ObservedCluster, method_settings: MethodSettings
) -> list[Order]:
    """To be sent right after the orders that preempt the victims, if Slurm took them all.

    A suspended preemptor is resumed before Slurm can give the CPUs to another job: Slurm counts a victim's CPUs as free
    once it has taken the order, and starts no job on a node until the victim has left it.
    """
    careful = [victim for victim in preemption.victims if method_settings.is_careful(victim)]
    if not preemption.preemptor.suspended or any(
        progress_of(victim, view, method_settings) not in _SAFE for victim in careful
    ):
        return []
    if method_settings.is_moved_in(preemption.preemptor) and is_moved_in(preemption, view) is not NodeWorkState.DONE:
        return []
    return [orders.ResumeJobs((preemption.preemptor.ref,))]


def _resume_preemptor(preemption: Preemption, view: ObservedCluster, method_settings: MethodSettings) -> list[Action]:
    """Memory that is out is moved in first, also while other jobs are on its CPUs."""
    job = view.job(preemption.preemptor.ref)
    if not preemption.preemptor.suspended or job is None or job.state is not JobState.SUSPENDED:
        return []
    is_free = preemption.step is Step.STOPPING or bool(view.fit_together([job]))
    return method_named(method_settings.methods, preemption.preemptor.method).resume(
        ObservedJob(job, view.work(job.ref)), is_free
    )


def is_moved_in(preemption: Preemption, view: ObservedCluster) -> NodeWorkState | None:
    """The state of moving the preemptor's memory in; None if that has not begun."""
    work = view.work(preemption.preemptor.ref)
    return work.state if work is not None and work.do is NodeAction.IN else None


def _resume_victims(preemption: Preemption, view: ObservedCluster, method_settings: MethodSettings) -> list[Action]:
    """Victims that left their nodes are released. Suspended ones are resumed by the planner, except in an undo: there
    those whose CPUs are still idle are resumed at once, and a preemption that has only begun is undone, too."""
    wanted: list[Action] = []
    undoing = preemption.step is Step.UNDOING
    found = [(victim, job) for victim in preemption.victims if (job := view.job(victim.ref)) is not None]
    suspended = [job for _, job in found if job.state is JobState.SUSPENDED]
    fitting = view.fit_together(suspended) if undoing else set()
    for victim, job in found:
        if undoing or not job.runs:
            wanted += method_settings.method(victim).resume(seen_of(victim, job, view), job.ref in fitting)
        if undoing and job.runs and victim.keeps is not None and job.licenses != victim.licenses:
            wanted.append(orders.SetLicenses((job.ref,), victim.licenses))  # taken off, but never suspended
    return wanted


def _restore_preemptor(preemption: Preemption, view: ObservedCluster) -> list[Order]:
    preemptor = preemption.preemptor
    job = view.job(preemptor.ref)
    if job is None or preemptor.suspended or job.state is not JobState.PENDING:
        return []
    wanted: list[Order] = []
    if preemptor.held_before and not is_held(job) and may_hold(job):
        wanted.append(orders.HoldJobs((job.ref,), "[omfs] held again: what it needs could not be freed"))
    licenses = None if preemptor.licenses is None else preemptor.licenses_before
    if set(job.request.required_nodes) != set(preemptor.required_before) or licenses not in (None, job.licenses):
        wanted.append(orders.PinNodes(job.ref, preemptor.required_before, licenses))
    if job.nice != preemptor.nice_before:
        wanted.append(orders.SetNice((job.ref,), preemptor.nice_before))
    return wanted


def is_anything_to_return(preemption: Preemption, view: ObservedCluster, method_settings: MethodSettings) -> bool:
    return bool(_resume_victims(preemption, view, method_settings)) or _is_any_completing(preemption, view)


def is_anything_to_undo(preemption: Preemption, view: ObservedCluster, method_settings: MethodSettings) -> bool:
    """What only nodes can do, and cannot do now, is not waited for: ``reconcile`` does it later."""
    waited_for = [
        action
        for action in _resume_victims(preemption, view, method_settings)
        if not isinstance(action, NodeOrder) or not _has_failed(action, view)
    ]
    return bool(_restore_preemptor(preemption, view) or waited_for) or _is_any_completing(preemption, view)


def _has_failed(action: NodeOrder, view: ObservedCluster) -> bool:
    work = view.work(action.ref)
    return work is not None and work.do is action.do and work.state is NodeWorkState.FAILED


def not_resumed(preemption: Preemption, view: ObservedCluster, method_settings: MethodSettings) -> list[VictimState]:
    """Victims that run as far as Slurm knows, but whose processes a node still keeps stopped."""
    found = [(victim, job) for victim in preemption.victims if (job := view.job(victim.ref)) is not None]
    return [v for v, job in found if job.runs and method_settings.method(v).resume(seen_of(v, job, view), True)]


def _is_any_completing(preemption: Preemption, view: ObservedCluster) -> bool:
    """A victim that is still COMPLETING is held as soon as it is done: it must not be forgotten then."""
    jobs = (view.job(victim.ref) for victim in preemption.victims)
    return any(job is not None and job.state is JobState.COMPLETING for job in jobs)
