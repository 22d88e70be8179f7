"""What is done once the daemon has been dead for its grace time: nothing that it held or stopped stays so.

Needs neither the daemon nor its journal: holds carry a mark in Slurm. The journal, if it can be read, adds which
jobs were suspended and which were pinned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import structlog

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.preempt_methods import SUSPEND
from omfs_daemon.cluster.snapshot import Stopped
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.heartbeat import age
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.daemon.store.directory_lock import DirectoryLock
from omfs_daemon.daemon.store.directory_lock import LockError
from omfs_daemon.daemon.node_client.service import options
from omfs_daemon.daemon.node_client.service import slurm_on_nodes
from omfs_daemon.daemon.node_client.service import transport
from omfs_daemon.daemon.observer import Observer
from omfs_daemon.preemption.observation import Picture
from omfs_daemon.preemption.state import State
from omfs_daemon.errors import JournalError
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.daemon.node_client.transport import Transport
from omfs_daemon.preemption.methods.node_work import Do
from omfs_daemon.preemption.methods.node_work import Work
from omfs_daemon.policy.rules.queue_order import Band
from omfs_daemon.cluster.holds import STOPPED_MARK
from omfs_daemon.policy.rules.queue_order import band_of
from omfs_daemon.cluster.holds import is_held_by_us
from omfs_daemon.policy.rules.queue_order import own_nice
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.gateway import Licences
from omfs_daemon.slurm.orders import Order
from omfs_daemon.slurm.orders import give

_COMMENT = "[omfs] let go by the failsafe: the daemon was away"


def run(config: Config) -> int:
    """Release everything if the daemon is dead for its grace time. Exit code 0: done, or nothing to do; 1: something
    could not be brought back yet, so run it again; or a daemon runs that decides nothing."""
    from omfs_daemon.slurm.commands.command_gateway import CommandGateway

    gateway = CommandGateway(config.slurm.conf, config.slurm.timeout_seconds)
    return rescue(config, gateway, time.time, transport(config))


def rescue(config: Config, gateway: Gateway, clock: Callable[[], float], way: Transport | None = None) -> int:
    """As :func:`run`, on any gateway and by any way to the nodes."""
    log = structlog.get_logger("failsafe")
    daemon = config.daemon
    dead_for = age(daemon.heartbeat, clock())
    if dead_for is not None and dead_for < daemon.failsafe_grace_seconds:
        log.info("the daemon was alive a moment ago: nothing is done", seconds=round(dead_for, 1))
        return 0
    if not daemon.state_dir.is_dir():
        log.info("there is no state directory: no daemon ever worked here", directory=str(daemon.state_dir))
        return 0
    try:
        lock = DirectoryLock(daemon.state_dir)
    except LockError:
        log.error("omfsd runs but decides nothing: paused, or blind; see `omfs status`", seconds=dead_for)
        return 1
    try:
        state = _remembered(daemon.state_dir / "journal")
        left = _let_everything_go(gateway, state, clock, _Nodes(config, way))
    finally:
        lock.close()
    return 1 if left else 0


def _remembered(path: Path) -> State:
    try:
        journal = Journal(path)
    except JournalError as error:
        structlog.get_logger("failsafe").warning("goes by the marks in Slurm alone", error=str(error))
        return State()
    journal.close()
    return journal.state


class _Nodes:
    """Has omfs-node bring jobs back, one after the other; there is nothing else to do meanwhile."""

    def __init__(self, config: Config, way: Transport | None) -> None:
        self._way = way
        self._slurm = slurm_on_nodes(config)
        self._options = options(config, installed())

    def bring_in(self, job: Job, method: str, resume: bool) -> bool:
        """Whether all of its nodes have brought the job's memory in, and (``resume``) let its processes go on."""
        traits = installed()[method].traits if method in installed() else None
        if traits is None or not traits.on_nodes:
            return True
        named = self._options.get(method, {})
        work = Work(
            job.ref, job.id, job.uid, job.on_nodes, Do.IN, method, resume=resume, options=named, slurm=self._slurm
        )
        answers = self._way.run(work.nodes, work.request(), work.timeout) if self._way is not None else {}
        bad = {node: answer.message for node, answer in answers.items() if not answer.ok}
        if bad or not answers:
            log = structlog.get_logger("failsafe")
            log.error("a node did not bring a job back", job=job.ref, method=method, nodes=bad)
        return bool(answers) and not bad


def _let_everything_go(gateway: Gateway, state: State, clock: Callable[[], float], nodes: _Nodes) -> int:
    """Give the orders; returns how many jobs must wait: their CPUs are taken, or a node did not bring them back."""
    log = structlog.get_logger("failsafe")
    picture = Picture(Observer(gateway, clock).look())
    jobs = list(picture.snapshot.jobs.values())
    victims = {victim.ref for stop in state.stops.values() for victim in stop.victims}.union(state.stopped)
    held = [job for job in jobs if is_held_by_us(job) or (job.ref in victims and _is_held_by_requeue(job))]
    ranked = [job for job in jobs if job.state is JobState.PENDING and band_of(job) is not Band.NONE]
    suspended = [job for job in jobs if job.state is JobState.SUSPENDED and _is_ours(job, state)]
    fitting = picture.fit_together(suspended)
    in_time = [job for job in suspended if job.ref in fitting]
    stopped = _stopped(state)
    ready = [job for job in in_time if nodes.bring_in(job, _method_of(job, stopped), resume=False)]
    begun = [job for ref in stopped if (job := picture.job(ref)) is not None and job.runs]
    stuck = [job for job in begun if not nodes.bring_in(job, _method_of(job, stopped), resume=True)]
    wanted: list[Order] = [orders.SetNice((job.ref,), own_nice(job)) for job in ranked]
    wanted += [orders.Pin(ref, nodes) for ref, nodes in _pins(state) if _waits(picture, ref)]
    for job in ready:  # before the held ones, which could take the very CPUs
        back = orders.licenses_back(job, _taken_off(job, stopped))
        wanted += [orders.Resume((job.ref,)), *back, orders.Comment((job.ref,), _COMMENT)]
    for job in jobs:
        if job.runs or job.state is JobState.PENDING:
            wanted += orders.licenses_back(job, _taken_off(job, stopped))
    if held:
        refs = tuple(job.ref for job in held)
        wanted += [orders.Release(refs), orders.Comment(refs, _COMMENT)]
    refusals = give(gateway, wanted)
    log.warning(
        "everything is let go",
        released=len(held),
        resumed=len(ready),
        still_suspended=len(suspended) - len(ready),
        still_stopped=[job.ref for job in stuck],
        refused=[f"{refusal.ref}: {refusal.message}" for refusal in refusals],
    )
    return len(suspended) - len(ready) + len(stuck)


def _stopped(state: State) -> dict[str, Stopped]:
    """Jobs that were stopped, and victims of stops under way: these may be stopped too, wholly or in part."""
    under_way = {
        victim.ref: Stopped(
            stop.since, victim.method, stop.beneficiary.ref, victim.licenses if victim.keeps is not None else ()
        )
        for stop in state.stops.values()
        for victim in stop.victims
    }
    return under_way | state.stopped


def _method_of(job: Job, stopped: Mapping[str, Stopped]) -> str:
    """How it was stopped; one that only its mark tells of was stopped in a way that needs nothing of its nodes."""
    return stopped[job.ref].method if job.ref in stopped else SUSPEND.name


def _taken_off(job: Job, stopped: Mapping[str, Stopped]) -> Licences:
    return stopped[job.ref].licenses if job.ref in stopped else ()


def _is_held_by_requeue(job: Job) -> bool:
    """The hold that came with our own requeue, its mark not yet written or lost."""
    return job.hold is not Hold.NONE and job.reason != "JobHeldUser"


def _is_ours(job: Job, state: State) -> bool:
    return job.ref in state.stopped or job.admin_comment.startswith(STOPPED_MARK)


def _pins(state: State) -> Iterable[tuple[str, tuple[str, ...]]]:
    yield from state.pins.items()
    for stop in state.stops.values():
        if not stop.beneficiary.suspended:
            yield stop.beneficiary.ref, stop.beneficiary.required_before


def _waits(picture: Picture, ref: str) -> bool:
    job = picture.job(ref)
    return job is not None and job.state is JobState.PENDING and job.ref == ref
