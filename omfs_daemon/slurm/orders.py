"""Orders to Slurm as data, so that they can be decided without I/O, recorded, and given twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.slurm.gateway import ByProcesses
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.gateway import Licences
from omfs_daemon.slurm.gateway import Refusal


@dataclass(frozen=True, slots=True)
class Hold:
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Release:
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetNice:
    refs: tuple[str, ...]
    nice: int


@dataclass(frozen=True, slots=True)
class Pin:
    """``licenses`` and ``nice`` (as in ``SetNice``): set together with the nodes, None leaves them as they are."""

    ref: str
    nodes: tuple[str, ...]
    licenses: tuple[tuple[str, int], ...] | None = None
    nice: int | None = None


@dataclass(frozen=True, slots=True)
class SetLicenses:
    """What the jobs ask for (waiting) or hold (running) from now on; () for none."""

    refs: tuple[str, ...]
    licenses: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class AllowRequeue:
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal by name (``"USR1"``); ``batch_only``: to the batch shell alone."""

    ref: str
    name: str
    batch_only: bool = True


@dataclass(frozen=True, slots=True)
class RequeueHold:
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Suspend:
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comment:
    """An AdminComment, the line that the owner of a job reads in ``scontrol show job``."""

    refs: tuple[str, ...]
    text: str


Order = Hold | Release | SetNice | Pin | SetLicenses | AllowRequeue | Signal | RequeueHold | Suspend | Resume | Comment


def licenses_back(job: Job, taken_off: Licences) -> list[Order]:
    """What was taken off a job before it was suspended; Slurm gives it back only while the job runs or waits."""
    if not taken_off or job.licenses == tuple(taken_off):
        return []
    return [SetLicenses((job.ref,), tuple(taken_off))]


def give(gateway: Gateway, orders: Iterable[Order]) -> list[Refusal]:
    """Give the orders in turn; returns what Slurm refused.

    Raises GatewayError when Slurm cannot be told: the orders up to there may or may not have taken effect.
    """
    if isinstance(gateway, ByProcesses):
        return _give_by_processes(gateway, list(orders))
    refusals: list[Refusal] = []
    for order in orders:
        refusals += _give(gateway, order)
    return refusals


def _give_by_processes(gateway: Gateway, orders: Sequence[Order]) -> list[Refusal]:
    """A comment is on its way while what follows it for other jobs is ordered."""
    refusals: list[Refusal] = []
    with ThreadPoolExecutor(1) as aside:
        written: list[tuple[frozenset[str], Future[list[Refusal]]]] = []
        for order in orders:
            refs = refs_of(order)
            if isinstance(order, Comment) and order is not orders[-1]:
                written.append((refs, aside.submit(_give, gateway, order)))
                continue
            for commented, comment in written:
                if not commented.isdisjoint(refs):
                    comment.result()
            refusals += _give(gateway, order)
        for _, comment in written:
            refusals += comment.result()
    return refusals


def refs_of(order: Order) -> frozenset[str]:
    """The jobs that it is about."""
    return frozenset((order.ref,) if isinstance(order, Pin | Signal) else order.refs)


def _pin(gateway: Gateway, order: Pin) -> list[Refusal]:
    if order.nice is None:
        return gateway.pin(order.ref, order.nodes, order.licenses)
    if isinstance(gateway, ByProcesses):
        return gateway.pin_and_rank(order.ref, order.nodes, order.licenses, order.nice)
    return [*gateway.pin(order.ref, order.nodes, order.licenses), *gateway.set_nice((order.ref,), order.nice)]


def _give(gateway: Gateway, order: Order) -> list[Refusal]:
    match order:
        case Hold(refs):
            return gateway.hold(refs)
        case Release(refs):
            return gateway.release(refs)
        case SetNice(refs, nice):
            return gateway.set_nice(refs, nice)
        case Pin():
            return _pin(gateway, order)
        case SetLicenses(refs, licenses):
            return gateway.set_licenses(refs, licenses)
        case AllowRequeue(refs):
            return gateway.allow_requeue(refs)
        case Signal(ref, name, batch_only):
            return gateway.signal(ref, name, batch_only)
        case RequeueHold(refs):
            return gateway.requeue_hold(refs)
        case Suspend(refs):
            return gateway.suspend(refs)
        case Resume(refs):
            return gateway.resume(refs)
        case Comment(refs, text):
            return gateway.set_admin_comment(refs, text)
