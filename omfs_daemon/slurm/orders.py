"""Orders to Slurm as data: decided without I/O, recorded, and safe to send twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.slurm.gateway import ByProcesses, Gateway, Licenses, OrderRefusal


@dataclass(frozen=True, slots=True)
class HoldJobs:
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseJobs:
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetNice:
    refs: tuple[str, ...]
    nice: int


@dataclass(frozen=True, slots=True)
class PinNodes:
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
class SendSignal:
    """A signal by name (``"USR1"``); ``batch_only``: to the batch shell alone."""

    ref: str
    name: str
    batch_only: bool = True


@dataclass(frozen=True, slots=True)
class RequeueHold:
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SuspendJobs:
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResumeJobs:
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetAdminComment:
    """An AdminComment, the line that the owner of a job reads in ``scontrol show job``."""

    refs: tuple[str, ...]
    text: str


Order = (
    HoldJobs
    | ReleaseJobs
    | SetNice
    | PinNodes
    | SetLicenses
    | AllowRequeue
    | SendSignal
    | RequeueHold
    | SuspendJobs
    | ResumeJobs
    | SetAdminComment
)


def return_licenses(job: Job, taken_off: Licenses) -> list[Order]:
    """Return the licenses that were taken off a job before it was suspended; Slurm refuses while it is suspended."""
    if not taken_off or job.licenses == tuple(taken_off):
        return []
    return [SetLicenses((job.ref,), tuple(taken_off))]


def send_orders(gateway: Gateway, orders: Iterable[Order]) -> list[OrderRefusal]:
    """Send the orders in turn; returns what Slurm refused.

    GatewayError when Slurm does not answer: the orders up to there may or may not have taken effect.
    """
    if isinstance(gateway, ByProcesses):
        return _send_by_processes(gateway, list(orders))
    refusals: list[OrderRefusal] = []
    for order in orders:
        refusals += _send(gateway, order)
    return refusals


def _send_by_processes(gateway: Gateway, orders: Sequence[Order]) -> list[OrderRefusal]:
    """A comment is written while the following orders for other jobs are sent."""
    refusals: list[OrderRefusal] = []
    with ThreadPoolExecutor(1) as aside:
        written: list[tuple[frozenset[str], Future[list[OrderRefusal]]]] = []
        for order in orders:
            refs = refs_of(order)
            if isinstance(order, SetAdminComment) and order is not orders[-1]:
                written.append((refs, aside.submit(_send, gateway, order)))
                continue
            for commented, comment in written:
                if not commented.isdisjoint(refs):
                    comment.result()
            refusals += _send(gateway, order)
        for _, comment in written:
            refusals += comment.result()
    return refusals


def refs_of(order: Order) -> frozenset[str]:
    """The jobs that an order is for."""
    return frozenset((order.ref,) if isinstance(order, PinNodes | SendSignal) else order.refs)


def _pin(gateway: Gateway, order: PinNodes) -> list[OrderRefusal]:
    if order.nice is None:
        return gateway.pin(order.ref, order.nodes, order.licenses)
    if isinstance(gateway, ByProcesses):
        return gateway.pin_and_rank(order.ref, order.nodes, order.licenses, order.nice)
    return [*gateway.pin(order.ref, order.nodes, order.licenses), *gateway.set_nice((order.ref,), order.nice)]


def _send(gateway: Gateway, order: Order) -> list[OrderRefusal]:
    match order:
        case HoldJobs(refs):
            return gateway.hold(refs)
        case ReleaseJobs(refs):
            return gateway.release(refs)
        case SetNice(refs, nice):
            return gateway.set_nice(refs, nice)
        case PinNodes():
            return _pin(gateway, order)
        case SetLicenses(refs, licenses):
            return gateway.set_licenses(refs, licenses)
        case AllowRequeue(refs):
            return gateway.allow_requeue(refs)
        case SendSignal(ref, name, batch_only):
            return gateway.signal(ref, name, batch_only)
        case RequeueHold(refs):
            return gateway.requeue_hold(refs)
        case SuspendJobs(refs):
            return gateway.suspend(refs)
        case ResumeJobs(refs):
            return gateway.resume(refs)
        case SetAdminComment(refs, text):
            return gateway.set_admin_comment(refs, text)
