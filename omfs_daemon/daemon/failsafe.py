"""What is done once the daemon has been dead for its grace time: nothing that it held or stopped stays so.

Needs neither the daemon nor its journal: holds carry a mark in Slurm. The journal, if it can be read, adds which
jobs were suspended and which were pinned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.config import Config
from omfs_daemon.daemon.heartbeat import age
from omfs_daemon.daemon.journal import Journal
from omfs_daemon.daemon.lock import DirectoryLock, LockError
from omfs_daemon.daemon.picture import Observer, Picture
from omfs_daemon.daemon.state import State
from omfs_daemon.errors import JournalError
from omfs_daemon.policy.plan import Band
from omfs_daemon.policy.queue import STOPPED_MARK, band_of, is_held_by_us, own_nice
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.orders import Order, give

_COMMENT = "[omfs] let go by the failsafe: the daemon was away"


def run(config: Config) -> int:
    """Release everything if the daemon is dead for its grace time. Exit code 0: done, or nothing to do; 1: something
    could not be brought back yet, so run it again; or a daemon runs that decides nothing."""
    from omfs_daemon.slurm.commands import CommandGateway

    gateway = CommandGateway(config.slurm.conf, config.slurm.timeout_seconds)
    return rescue(config, gateway, time.time)


def rescue(config: Config, gateway: Gateway, clock: Callable[[], float]) -> int:
    """As :func:`run`, on any gateway."""
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
        left = _let_everything_go(gateway, _remembered(daemon.state_dir / "journal"), clock)
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


def _let_everything_go(gateway: Gateway, state: State, clock: Callable[[], float]) -> int:
    """Give the orders; returns how many suspended jobs must wait, for their CPUs are taken."""
    log = structlog.get_logger("failsafe")
    picture = Picture(Observer(gateway, clock).look())
    jobs = list(picture.snapshot.jobs.values())
    victims = {victim.ref for stop in state.stops.values() for victim in stop.victims}.union(state.stopped)
    held = [job for job in jobs if is_held_by_us(job) or (job.ref in victims and _is_held_by_requeue(job))]
    ranked = [job for job in jobs if job.state is JobState.PENDING and band_of(job) is not Band.NONE]
    suspended = [job for job in jobs if job.state is JobState.SUSPENDED and _is_ours(job, state)]
    fitting = picture.fit_together(suspended)
    ready = [job for job in suspended if job.ref in fitting]
    wanted: list[Order] = [orders.SetNice((job.ref,), own_nice(job)) for job in ranked]
    wanted += [orders.Pin(ref, nodes) for ref, nodes in _pins(state) if _waits(picture, ref)]
    for job in ready:  # before the held ones, which could take the very CPUs
        wanted += [orders.Resume((job.ref,)), orders.Comment((job.ref,), _COMMENT)]
    if held:
        refs = tuple(job.ref for job in held)
        wanted += [orders.Release(refs), orders.Comment(refs, _COMMENT)]
    refusals = give(gateway, wanted)
    log.warning(
        "everything is let go",
        released=len(held),
        resumed=len(ready),
        still_suspended=len(suspended) - len(ready),
        refused=[f"{refusal.ref}: {refusal.message}" for refusal in refusals],
    )
    return len(suspended) - len(ready)


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
