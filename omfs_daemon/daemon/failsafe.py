"""The failsafe: once the daemon has been dead for its grace time, releases and resumes all that it held or preempted.

Needs neither the daemon nor its configuration, socket, or journal: holds carry a mark in Slurm, and its orders are
numbered on from the highest number of these marks. The journal, if it can be read, adds which jobs were preempted, by
which method, and which were pinned. Nothing is written into it, so it says the same in every run: what the failsafe has
done since is read from the marks, which have higher numbers then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import structlog

from omfs_daemon.cluster.holds import admin_comment_of, is_held_by_us, is_kept_by_administrator, is_let_go
from omfs_daemon.cluster.job_refs import brief_ref
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.cluster.run_report import RunState, run_report
from omfs_daemon.cluster.scope import is_out_of_scope
from omfs_daemon.config.build import preempt_timeouts, scope_of
from omfs_daemon.config.daemon_user import daemon_user
from omfs_daemon.config.schema import Config, DaemonSection
from omfs_daemon.daemon.failsafe_nodes import FailsafeNodes
from omfs_daemon.daemon.heartbeat import age
from omfs_daemon.daemon.leadership.failsafe_lease import an_omfsd_acts, failsafe_lease
from omfs_daemon.daemon.leadership.fence import fenced_gateway
from omfs_daemon.daemon.leadership.shared_state import decided_state_dir
from omfs_daemon.daemon.node_client.transport import Transport
from omfs_daemon.daemon.observer import Observer
from omfs_daemon.daemon.root_process.own_user import make_directories, own_user
from omfs_daemon.daemon.root_process.root_client import node_transport
from omfs_daemon.daemon.store.directory_lock import LockError, OrdersLock
from omfs_daemon.daemon.store.file_format import JOURNAL
from omfs_daemon.daemon.store.journal import refuse_other_cluster, replay
from omfs_daemon.errors import ConfigError, GatewayError, JournalError
from omfs_daemon.policy.rules.queue_order import Band, band_of, own_nice
from omfs_daemon.preemption.desired import RANK, Desired, WantedField, WantedHold
from omfs_daemon.preemption.effects import Chain, Effects
from omfs_daemon.preemption.follow_up import found_in_slurm, waits_after_checkpoint
from omfs_daemon.preemption.left_behind import is_on_nodes, may_stand_still, with_touched_alone
from omfs_daemon.preemption.methods.base import NodeOrder
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.ownership import JobField, licenses_of
from omfs_daemon.preemption.reconcile import reconcile
from omfs_daemon.preemption.restart import Forgotten, after_restart, of_other_boots
from omfs_daemon.preemption.state import State
from omfs_daemon.preemption.state_fold import state_after
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.gateway import Gateway, OrderRefusal
from omfs_daemon.slurm.order_marks import StoredMarks, with_marks
from omfs_daemon.slurm.orders import MarkedOrder, Order, by_job, for_jobs, refs_of, send_orders

_COMMENT = "[omfs] released by the failsafe: the daemon was away"
_REPEATED = "[omfs] suspended again by the failsafe, to be resumed: slurmctld had forgotten an order"


def run_failsafe(config: Config, path: Path) -> int:
    """Release everything if the daemon has been dead for its grace time. ``path``: of the configuration file.

    Exit code 0: done, nothing to do, or the daemon was alive within its grace time; 1: the last line of the log names
    the jobs that are still held or suspended, so run it again, or a daemon runs that decides nothing.
    """
    from omfs_daemon.slurm.commands.command_gateway import CommandGateway

    config = _with_known_user(config)
    gateway = CommandGateway(config.slurm.conf, config.slurm.timeout_seconds)
    with own_user(config, path, make=True) as root:
        return rescue(config, gateway, time.time, node_transport(config, root))


def _with_known_user(config: Config) -> Config:
    """The same, but as whoever runs the failsafe if this host does not know ``daemon.user`` now (LDAP is down)."""
    try:
        daemon_user(config.daemon)
    except ConfigError as error:
        text = f"the failsafe works as uid {os.geteuid()}"
        structlog.get_logger("failsafe").warning("user_unknown", error=str(error), message=text)
        return config.model_copy(update={"daemon": config.daemon.model_copy(update={"user": None})})
    return config


def rescue(config: Config, gateway: Gateway, clock: Callable[[], float], nodes: Transport | None = None) -> int:
    """As :func:`run_failsafe`, on any gateway; ``nodes``: None where no transport to them is configured."""
    log, daemon = structlog.get_logger("failsafe"), config.daemon
    beaten = age(daemon.heartbeat, clock())
    if beaten is not None and beaten < daemon.failsafe_grace_seconds:
        log.info("failsafe_not_needed", seconds=round(beaten, 1), message="the daemon was alive a moment ago")
        return 0
    lock = OrdersLock(daemon.state_dir)
    if daemon.shared_directory is not None and an_omfsd_acts(daemon.shared_directory):
        with suppress(LockError):  # omfsd on this host acts
            make_directories(daemon)
            lock.take()
            lock.show_life(clock())  # of the other one; the grace time begins when that ends
            lock.leave()
        log.info("failsafe_stands_back", message="an omfsd has the lease and renews it")
        return 0
    is_new = lock.unused_for(clock()) is None
    if is_new and beaten is None and not _Failsafe(config, gateway, clock, nodes, 0.0).observe().is_anything_left:
        text = "no daemon ever ran here, and no job is held or suspended by one"
        log.info("state_directory_missing", directory=str(daemon.state_dir), message=text)
        return 0
    if is_new:
        make_directories(daemon)
    try:
        lock.take()
    except LockError:
        text = "omfsd runs but decides nothing: paused, or Slurm does not answer; see `omfs status`"
        log.error("daemon_not_deciding", seconds=beaten, message=text)
        return 1
    try:
        if is_new:
            lock.show_life(clock() - (beaten or 0.0))  # without a heartbeat, the grace time begins now
        return _once_dead(config, gateway, clock, nodes, beaten, lock)
    finally:
        lock.leave()


def _once_dead(
    config: Config,
    gateway: Gateway,
    clock: Callable[[], float],
    nodes: Transport | None,
    beaten: float | None,
    lock: OrdersLock,
) -> int:
    log, daemon = structlog.get_logger("failsafe"), config.daemon
    signs = (beaten, lock.unused_for(clock()))
    dead_for = min(seconds for seconds in signs if seconds is not None)
    failsafe = _Failsafe(config, gateway, clock, nodes, dead_for)
    waits = daemon.failsafe_grace_seconds - dead_for
    if waits > 0 and beaten is not None:
        log.info("failsafe_not_needed", seconds=round(dead_for, 1), message="the daemon was alive a moment ago")
        return 0
    if waits > 0:
        left = failsafe.observe()
        text = f"there is no heartbeat file: nothing is released for another {waits:.0f} s, the daemon may come back"
        suspended = [job.ref for job in left.suspended]
        log.warning("failsafe_waits", message=text, still_held=left.held, still_suspended=suspended)
        return int(left.is_anything_left)
    if daemon.shared_directory is None:
        return failsafe.release_everything()
    with failsafe_lease(config, daemon.shared_directory) as lease:
        failsafe = _Failsafe(config, fenced_gateway(gateway, lease.renew), clock, nodes, dead_for, lease.first_number)
        return failsafe.release_everything()


class _Left(NamedTuple):
    """What is left to be done, as observed, and what is to be waited for.

    fields      orders of all kinds but releases
    releases    orders
    suspended   jobs that we have suspended
    stopped     jobs that run as far as Slurm knows, but whose processes a node may have stopped
    forgotten   likewise, or may have ended: slurmctld has forgotten our order
    repeated    these orders, for jobs whose nodes have answered slurmctld
    writing     jobs that write a checkpoint, and have time for it
    others      suspended jobs that an administrator has held
    """

    observation: Observation
    state: State
    fields: Sequence[Order]
    releases: Sequence[Order]
    suspended: list[Job]
    stopped: list[Job]
    forgotten: list[Job]
    repeated: list[Order]
    writing: list[Job]
    others: list[Job]

    @property
    def is_anything_left(self) -> bool:
        jobs = (self.suspended, self.stopped, self.forgotten, self.repeated, self.writing)
        return any((self.fields, self.releases, *jobs))

    @property
    def held(self) -> list[str]:
        return _brief(self.releases)


class _Failsafe:
    """``dead_for``: seconds since the daemon gave its last orders, at least. ``first_number``: its marks have higher
    ones."""

    def __init__(
        self,
        config: Config,
        gateway: Gateway,
        clock: Callable[[], float],
        nodes: Transport | None,
        dead_for: float,
        first_number: int = 0,
    ) -> None:
        self._config = config
        self._gateway = gateway
        self._clock = clock
        self._nodes = FailsafeNodes(config, nodes)
        self._dead_for = dead_for
        self._first_number = first_number
        self._log = structlog.get_logger("failsafe")
        self._state = self._remembered(config.daemon)
        self._scope = scope_of(config)

    def _remembered(self, daemon: DaemonSection) -> State:
        """Nothing is changed in the journal."""
        try:
            path = decided_state_dir(daemon) / JOURNAL.name
            state = replay(path).state
            refuse_other_cluster(path, state, self._gateway.settings().values.get("ClusterName", ""))
        except (JournalError, OSError) as error:
            text = "only jobs marked in Slurm are released and resumed"
            self._log.warning("journal_not_read", error=str(error), message=text)
            return State()
        return with_touched_alone(state)

    def release_everything(self) -> int:
        """The exit code."""
        first = self.observe()
        not_repeated = self._repeat(first)
        if first.repeated:
            first = self.observe()
        continued = [job for job in first.stopped if self._nodes.bring_in(job, _method(first, job), resume=True)]
        fitting = first.observation.fit_together(first.suspended)
        in_time = [job for job in first.suspended if job.ref in fitting]
        ready = [job for job in in_time if self._nodes.bring_in(job, _method(first, job), resume=False)]
        refusals = self._carry_out(first, ready, continued)
        again = self.observe()
        if again.fields or again.releases:  # refused or unanswered, or a hold that has just got its mark again
            refusals = self._carry_out(again, (), ())
        left = self.observe()
        still = {job.ref for job in left.suspended}
        held = {ref for each in (first, again) for order in each.releases for ref in refs_of(order)}
        self._log.warning(
            "failsafe_released",
            released=len(held.difference(*(refs_of(order) for order in left.releases))),
            resumed=sum(job.ref not in still for job in first.suspended),
            still_held=left.held,
            still_suspended=[job.ref for job in left.suspended],
            still_stopped_on_nodes=[job.ref for job in (*left.stopped, *left.forgotten)],
            still_writing_checkpoints=[job.ref for job in left.writing],
            still_changed=_brief(left.fields),
            left_to_administrators=[job.ref for job in left.others],
            refused=[f"{brief_ref(refusal.ref)}: {refusal.message}" for refusal in (*not_repeated, *refusals)],
        )
        return int(left.is_anything_left)

    def _repeat(self, left: _Left) -> list[OrderRefusal]:
        """What slurmctld has forgotten. Only a job that can be marked is suspended again: by that mark any later run
        resumes it, and by the next one none suspends it once more."""
        stored, number = self._marks(left)
        refusals: list[OrderRefusal] = []
        for order in left.repeated:
            refused: list[OrderRefusal] = []
            if isinstance(order, orders.SuspendJobs):
                mark = orders.MarkJobs(order.refs, MarkWord.STOPPING, _REPEATED)
                refused = self._send(with_marks([mark], stored, number))
            refusals += refused or self._send([order])
        return refusals

    def observe(self) -> _Left:
        """Nothing is wanted any more: what is missing for that."""
        now, observer = self._clock(), self._observer()
        observed = Observation(observer.poll())
        forgotten = self._forgotten(observer, observed, now)
        observation = forgotten.observation
        found = found_in_slurm(self._state, observation, now, installed())
        state = state_after(self._state, [*forgotten.effects.records, *found])
        jobs, preempted = list(observation.snapshot.jobs.values()), may_stand_still(state)
        ours = [job for job in jobs if job.ref in preempted and not is_let_go(job, self._state.sequence)]
        stopped = [job for job in ours if job.runs and is_on_nodes(preempted[job.ref].method)]
        suspended = [job for job in ours if job.state is JobState.SUSPENDED]
        others = [job for job in suspended if is_kept_by_administrator(job)]
        writing = [job for job in jobs if self._is_writing(job)]
        waiting = [job for job in jobs if job.state is JobState.PENDING]
        ranked = [job for job in waiting if band_of(job) is not Band.NONE and self._is_ours(job)]
        desired = Desired(
            fields={(job.ref, JobField.NICE): WantedField(own_nice(job), RANK) for job in ranked},
            sentences={job.ref: _COMMENT for job in jobs if is_held_by_us(job)},
        )
        for job in (*writing, *stopped):
            desired.hold(job, job.ref, WantedHold(MarkWord.STOPPING, ""))
        chains = reconcile(desired, state, observation, now).chains
        fields = [order for chain in chains for order in chain.fields if not isinstance(order, orders.ReleaseJobs)]
        releases = [order for chain in chains for order in chain.fields if isinstance(order, orders.ReleaseJobs)]
        checkpointed = [job for job in waiting if waits_after_checkpoint(job) and self._is_ours(job)]
        releases += [orders.ReleaseJobs((job.ref,), _COMMENT) for job in checkpointed]
        return _Left(
            observation,
            state,
            fields,
            releases,
            suspended=[job for job in suspended if job not in others],
            stopped=stopped,
            forgotten=[job for job in jobs if observed.snapshot.jobs.get(job.id) is not job],
            repeated=[order for chain in forgotten.effects.chains for order in _orders_of(chain)],
            writing=writing,
            others=others,
        )

    def _forgotten(self, observer: Observer, observation: Observation, now: float) -> Forgotten:
        """What slurmctld has forgotten since the daemon died: a job whose processes have stopped or ended is shown as
        running, for ever. Nobody wants these jobs to stay preempted, so they go on or wait."""
        boot = observer.boot(frozenset())
        if not (asked_for := of_other_boots(self._state, boot)):
            return Forgotten(Effects(), observation)
        observation = observation.with_ended(observer.ended(observation, asked_for))
        unwanted = replace(self._state, preempted={}, preemptions={})
        return after_restart(unwanted, observation, boot, now, observer.unregistered)

    def _observer(self) -> Observer:
        return Observer(self._gateway, self._clock, scope=lambda: self._scope)

    def _is_ours(self, job: Job) -> bool:
        """Of jobs out of scope only those that the daemon knows are given anything back."""
        return not is_out_of_scope(job) or job.ref in self._state.known_refs()

    def _is_writing(self, job: Job) -> bool:
        """Its checkpoint was requested before the daemon died, and may take as long as under the daemon."""
        run = run_report(job) if job.runs and admin_comment_of(job).word is MarkWord.STOPPING else None
        if run is None or run.state is not RunState.STOPPING:
            return False
        limits = preempt_timeouts(self._config)
        return self._dead_for < limits.get(run.method, self._config.policy.preempt_timeout_seconds)

    def _carry_out(self, left: _Left, ready: Sequence[Job], continued: Sequence[Job]) -> list[OrderRefusal]:
        """``ready``: suspended jobs that are resumed, before the held ones, which could take the very CPUs;
        ``continued``: those that nodes have let run on."""
        stored, number = self._marks(left)
        first = [*left.fields]
        for job in ready:
            first += [orders.ResumeJobs((job.ref,)), *_returned_licenses(job, left.state)]
        refusals = self._send(with_marks(first, stored, number))
        refused = {refusal.ref for refusal in refusals}
        let_go = tuple(job.ref for job in (*ready, *continued) if job.ref not in refused)
        marks = with_marks([orders.MarkJobs(let_go, MarkWord.RELEASED, _COMMENT)], stored, number, self._state.sequence)
        return refusals + self._send([*marks, *with_marks(left.releases, stored, number)])

    def _marks(self, left: _Left) -> tuple[StoredMarks, int]:
        """Those that are stored, and the number of the next ones."""
        return StoredMarks(left.observation.job), max(left.state.sequence, self._first_number) + 1

    def _send(self, listed: Iterable[Order | MarkedOrder]) -> list[OrderRefusal]:
        """GatewayError if Slurm answers nothing at all; an order that it does not answer is sent for each job alone."""
        refusals: list[OrderRefusal] = []
        for order in listed:
            try:
                refusals += send_orders(self._gateway, [order])
            except GatewayError:
                for single in _singly(order):
                    refusals += self._send_single(single)
        return refusals

    def _send_single(self, order: Order | MarkedOrder) -> list[OrderRefusal]:
        try:
            return send_orders(self._gateway, [order])
        except GatewayError as error:
            self._gateway.settings()
            return [OrderRefusal(ref, str(error)) for ref in refs_of(order)]


def _singly(order: Order | MarkedOrder) -> list[Order | MarkedOrder]:
    """The same for each of its jobs."""
    if isinstance(order, MarkedOrder):
        return [MarkedOrder(replace(order.order, refs=(ref,)), order.comment) for ref in order.order.refs]
    return [for_jobs(bare, [ref]) for bare, ref in by_job(order)]


def _brief(listed: Iterable[Order]) -> list[str]:
    return [brief_ref(ref) for order in listed for _, ref in by_job(order)]


def _method(left: _Left, job: Job) -> str:
    return may_stand_still(left.state)[job.ref].method


def _returned_licenses(job: Job, state: State) -> list[Order]:
    """What was taken off it before it was suspended; Slurm refuses that while it is suspended."""
    owned = state.owned.get(job.ref, {}).get(JobField.KEPT_LICENSES)
    return [] if owned is None else [orders.SetLicenses((job.ref,), licenses_of(owned.baseline))]


def _orders_of(chain: Chain) -> list[Order]:
    return [*chain.fields, *(order for order in chain.transitions if not isinstance(order, NodeOrder))]
