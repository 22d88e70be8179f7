"""The failsafe: once the daemon has been dead for its grace time, releases and resumes all that it held or preempted.

Needs neither the daemon nor its journal: holds carry a mark in Slurm, and its orders are numbered on from the highest
number of these marks. The journal, if it can be read, adds which jobs were preempted, by which method, and which were
pinned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from omfs_daemon.cluster.holds import is_held_by_us
from omfs_daemon.cluster.job_refs import brief_ref
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.cluster.snapshot import PreemptedJob
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.heartbeat import age
from omfs_daemon.daemon.node_client.service import options, slurm_on_nodes
from omfs_daemon.daemon.node_client.transport import Transport
from omfs_daemon.daemon.observer import Observer
from omfs_daemon.daemon.root_process.own_user import own_user
from omfs_daemon.daemon.root_process.root_client import node_transport
from omfs_daemon.daemon.store.directory_lock import DirectoryLock, LockError
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.errors import JournalError
from omfs_daemon.policy.rules.queue_order import Band, band_of, own_nice
from omfs_daemon.preemption.desired import RANK, Desired, WantedField
from omfs_daemon.preemption.effects import state_after
from omfs_daemon.preemption.follow_up import found_in_slurm
from omfs_daemon.preemption.methods.node_work import NodeAction, NodeWork
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.ownership import JobField, licenses_of
from omfs_daemon.preemption.reconcile import reconcile
from omfs_daemon.preemption.state import State
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.gateway import Gateway, OrderRefusal
from omfs_daemon.slurm.order_marks import StoredMarks, with_marks
from omfs_daemon.slurm.orders import Order, send_orders

_COMMENT = "[omfs] released by the failsafe: the daemon was away"


def run_failsafe(config: Config, path: Path) -> int:
    """Release everything if the daemon has been dead for its grace time. ``path``: of the configuration file.

    Exit code 0: done, or nothing to do; 1: some jobs could not be released or resumed yet, so run it again, or a daemon
    runs that decides nothing.
    """
    from omfs_daemon.slurm.commands.command_gateway import CommandGateway

    gateway = CommandGateway(config.slurm.conf, config.slurm.timeout_seconds)
    with own_user(config, path) as root:
        return rescue(config, gateway, time.time, node_transport(config, root))


def rescue(config: Config, gateway: Gateway, clock: Callable[[], float], nodes: Transport | None = None) -> int:
    """As :func:`run_failsafe`, on any gateway; ``nodes``: None where no transport to them is configured."""
    log = structlog.get_logger("failsafe")
    daemon = config.daemon
    dead_for = age(daemon.heartbeat, clock())
    if dead_for is not None and dead_for < daemon.failsafe_grace_seconds:
        log.info("failsafe_not_needed", seconds=round(dead_for, 1), message="the daemon was alive a moment ago")
        return 0
    if not daemon.state_dir.is_dir():
        log.info("state_directory_missing", directory=str(daemon.state_dir), message="no daemon ever ran here")
        return 0
    try:
        lock = DirectoryLock(daemon.state_dir)
    except LockError:
        text = "omfsd runs but decides nothing: paused, or Slurm does not answer; see `omfs status`"
        log.error("daemon_not_deciding", seconds=dead_for, message=text)
        return 1
    try:
        state = _remembered(daemon.state_dir / "journal")
        waiting = _release_everything(gateway, state, clock, _Nodes(config, nodes))
    finally:
        lock.close()
    return 1 if waiting else 0


def _remembered(path: Path) -> State:
    try:
        journal = Journal(path)
    except JournalError as error:
        log = structlog.get_logger("failsafe")
        log.warning("journal_not_read", error=str(error), message="only jobs marked in Slurm are released and resumed")
        return State()
    journal.close()
    return journal.state


class _Nodes:
    """Has omfs-node resume jobs, one after the other."""

    def __init__(self, config: Config, transport: Transport | None) -> None:
        self._transport = transport
        self._slurm = slurm_on_nodes(config)
        self._options = options(config, installed())

    def bring_in(self, job: Job, method: str, resume: bool) -> bool:
        """Whether all of its nodes have moved the job's memory in, and (``resume``) continued its processes."""
        traits = installed()[method].traits if method in installed() else None
        if traits is None or not traits.on_nodes:
            return True
        named = self._options.get(method, {})
        work = NodeWork(
            job.ref,
            job.id,
            job.uid,
            job.on_nodes,
            NodeAction.IN,
            method,
            resume=resume,
            options=named,
            slurm=self._slurm,
        )
        answers = self._transport.run(work.nodes, work.request(), work.timeout) if self._transport is not None else {}
        bad = {node: answer.message for node, answer in answers.items() if not answer.ok}
        if bad or not answers:
            log = structlog.get_logger("failsafe")
            log.error("node_resume_failed", job=job.ref, method=method, nodes=bad)
        return bool(answers) and not bad


def _release_everything(gateway: Gateway, state: State, clock: Callable[[], float], nodes: _Nodes) -> int:
    """Wants nothing any more; returns how many jobs must wait: Slurm refuses an order, their CPUs are taken, or a node
    did not resume them."""
    log = structlog.get_logger("failsafe")
    observation = Observation(Observer(gateway, clock).poll())
    jobs = list(observation.snapshot.jobs.values())
    state = state_after(state, found_in_slurm(state, observation, clock()))
    preempted = _preempted(state)
    suspended = [job for job in jobs if job.state is JobState.SUSPENDED and job.ref in preempted]
    fitting = observation.fit_together(suspended)
    in_time = [job for job in suspended if job.ref in fitting]
    ready = [job for job in in_time if nodes.bring_in(job, preempted[job.ref].method, resume=False)]
    running = [job for ref in preempted if (job := observation.job(ref)) is not None and job.runs]
    stuck = [job for job in running if not nodes.bring_in(job, preempted[job.ref].method, resume=True)]
    ranked = [job for job in jobs if job.state is JobState.PENDING and band_of(job) is not Band.NONE]
    unranked = {(job.ref, JobField.NICE): WantedField(own_nice(job), RANK) for job in ranked}
    sentences = {job.ref: _COMMENT for job in jobs if is_held_by_us(job)}
    desired = Desired(fields=unranked, sentences=sentences)
    fields = [order for chain in reconcile(desired, state, observation, clock()).chains for order in chain.fields]
    held = [order for order in fields if isinstance(order, orders.ReleaseJobs)]
    stored, number = StoredMarks(observation.job), state.sequence + 1
    # Suspended jobs before the held ones, which could take the very CPUs.
    first: list[Order] = [order for order in fields if not isinstance(order, orders.ReleaseJobs)]
    for job in ready:
        first += [orders.ResumeJobs((job.ref,)), *_returned_licenses(job, state)]
    refusals = send_orders(gateway, with_marks(first, stored, number))
    resumed = _without((job.ref for job in ready), refusals)
    last: list[Order] = [orders.MarkJobs(tuple(resumed), MarkWord.RELEASED, _COMMENT), *held]
    refusals_to_release = send_orders(gateway, with_marks(last, stored, number))
    to_release = [ref for order in held for ref in order.refs]
    released = _without(to_release, refusals_to_release)
    refusals += refusals_to_release
    left = {*(job.ref for job in suspended), *to_release}.difference(resumed, released) | {job.ref for job in stuck}
    log.warning(
        "failsafe_released",
        released=len(released),
        resumed=len(resumed),
        still_held=[brief_ref(ref) for ref in to_release if ref in left],
        still_suspended=len(suspended) - len(resumed),
        still_stopped_on_nodes=[job.ref for job in stuck],
        refused=[f"{brief_ref(refusal.ref)}: {refusal.message}" for refusal in refusals],
    )
    return len(left.union(refusal.ref for refusal in refusals))


def _without(refs: Iterable[str], refusals: Iterable[OrderRefusal]) -> list[str]:
    """The jobs of which Slurm refused nothing."""
    refused = {refusal.ref for refusal in refusals}
    return [ref for ref in refs if ref not in refused]


def _returned_licenses(job: Job, state: State) -> list[Order]:
    """What was taken off it before it was suspended; Slurm refuses that while it is suspended."""
    owned = state.owned.get(job.ref, {}).get(JobField.KEPT_LICENSES)
    return [] if owned is None else [orders.SetLicenses((job.ref,), licenses_of(owned.baseline))]


def _preempted(state: State) -> dict[str, PreemptedJob]:
    """Preempted jobs, and victims of preemptions under way, which may be preempted too, wholly or in part."""
    under_way = {
        victim.ref: PreemptedJob(preemption.since, victim.method, preemption.preemptor.ref)
        for preemption in state.preemptions.values()
        for victim in preemption.victims
    }
    return under_way | state.preempted
