"""Orders to Slurm as data: decided without I/O, recorded, and safe to send twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeGuard

from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.slurm.gateway import Gateway, OrderRefusal, runs_processes


@dataclass(frozen=True, slots=True)
class HoldJobs:
    """An administrator's hold with our mark. ``sentence``: why, for the owner; "" keeps what is written there."""

    refs: tuple[str, ...]
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class ReleaseJobs:
    """End our hold; a job that is not held is left out, because Slurm would reset its nice."""

    refs: tuple[str, ...]
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class MarkJobs:
    """Write a mark and a sentence for the owner, "[omfs] runs again" for instance; holds stay as they are."""

    refs: tuple[str, ...]
    word: MarkWord
    sentence: str = ""


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
class RequeueJobs:
    """End running jobs and put them back into the queue: held, if they were held while they ran."""

    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RequeueEndedJobs:
    """Put jobs that have ended back into the queue, while Slurm remembers them (MinJobAge)."""

    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SuspendJobs:
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResumeJobs:
    refs: tuple[str, ...]


Order = (
    HoldJobs
    | ReleaseJobs
    | MarkJobs
    | SetNice
    | PinNodes
    | SetLicenses
    | AllowRequeue
    | SendSignal
    | RequeueJobs
    | RequeueEndedJobs
    | SuspendJobs
    | ResumeJobs
)

MarkingOrder = HoldJobs | ReleaseJobs | MarkJobs


class MarkedOrder(NamedTuple):
    """An order with the AdminComment that goes with it; all its jobs have the same mark and the same foreign text."""

    order: MarkingOrder
    comment: str


class _Placed(NamedTuple):
    """Two orders for one job that are sent in one."""

    pin: PinNodes
    release: MarkedOrder


_Sent = Order | MarkedOrder | _Placed

_MARKS_AT_ONCE = 4


def send_orders(gateway: Gateway, orders: Iterable[Order | MarkedOrder]) -> list[OrderRefusal]:
    """Send the orders in turn; returns what Slurm refused. Those that write a mark must be ``MarkedOrder``.

    Where each call starts a process, holds and marks come first, and are written while the orders for other jobs are
    sent: victims are held while the preemptor is ranked and pinned. Its mark goes with the pin, before its release.

    GatewayError when Slurm does not answer: the orders up to there may or may not have taken effect.
    """
    refusals = list[OrderRefusal]()
    by_processes = runs_processes(gateway)
    listed: list[_Sent] = [*orders]
    if by_processes:
        listed = _placed(sorted(listed, key=lambda order: not _is_update(order)))
    with ThreadPoolExecutor(_MARKS_AT_ONCE) as aside:
        written: list[tuple[frozenset[str], Future[list[OrderRefusal]]]] = []
        for order in listed:
            refs = _refs(order)
            if by_processes and _is_update(order) and order is not listed[-1]:
                written.append((refs, aside.submit(_send, gateway, order)))
                continue
            for marked, comment in written:
                if not marked.isdisjoint(refs):
                    comment.result()
            refusals += _send(gateway, order)
        for _, comment in written:
            refusals += comment.result()
    return refusals


def _is_update(order: _Sent) -> bool:
    return isinstance(order, MarkedOrder) and isinstance(order.order, HoldJobs | MarkJobs)


def _placed(orders: Sequence[_Sent]) -> list[_Sent]:
    """The same orders; a job that is ranked and pinned, and released next, is so in one."""
    found: list[_Sent] = []
    for order in orders:
        before = found[-1] if found else None
        if isinstance(before, PinNodes) and before.nice is not None and _releases(order, before.ref):
            found[-1] = _Placed(before, order)
        else:
            found.append(order)
    return found


def _releases(order: _Sent, ref: str) -> TypeGuard[MarkedOrder]:
    """Whether this job, and no other, is released."""
    return isinstance(order, MarkedOrder) and isinstance(order.order, ReleaseJobs) and order.order.refs == (ref,)


def by_job(order: Order) -> list[tuple[Order, str]]:
    """What is ordered, without its jobs, for each of its jobs."""
    if isinstance(order, PinNodes | SendSignal):
        return [(order, order.ref)]
    bare = replace(order, refs=())
    return [(bare, ref) for ref in order.refs]


def for_jobs(bare: Order, refs: Sequence[str]) -> Order:
    """The reverse of ``by_job``."""
    return bare if isinstance(bare, PinNodes | SendSignal) else replace(bare, refs=tuple(refs))


def parts_of(order: Order, most: int) -> list[Order]:
    """The same for at most ``most`` jobs each."""
    listed = by_job(order)
    refs = [ref for _, ref in listed]
    return [for_jobs(listed[0][0], refs[start : start + most]) for start in range(0, len(refs), most)]


def merge_orders(listed: Iterable[Order]) -> list[Order]:
    """Orders that say the same for several jobs become one, in the place of the first."""
    merged: dict[Order, list[str]] = {}
    for order in listed:
        for bare, ref in by_job(order):
            merged.setdefault(bare, []).append(ref)
    return [for_jobs(bare, refs) for bare, refs in merged.items()]


def refs_of(order: Order | MarkedOrder) -> frozenset[str]:
    """The jobs that an order is for."""
    if isinstance(order, MarkedOrder):
        return frozenset(order.order.refs)
    return frozenset((order.ref,) if isinstance(order, PinNodes | SendSignal) else order.refs)


def _refs(order: _Sent) -> frozenset[str]:
    return refs_of(order.pin if isinstance(order, _Placed) else order)


def _pin(gateway: Gateway, order: PinNodes) -> list[OrderRefusal]:
    if order.nice is None:
        return gateway.pin(order.ref, order.nodes, order.licenses)
    if runs_processes(gateway):
        return gateway.pin_and_rank(order.ref, order.nodes, order.licenses, order.nice)
    return [*gateway.pin(order.ref, order.nodes, order.licenses), *gateway.set_nice((order.ref,), order.nice)]


def _send(gateway: Gateway, order: _Sent) -> list[OrderRefusal]:
    match order:
        case _Placed(pin, release) if runs_processes(gateway) and pin.nice is not None:
            return gateway.place_and_release(pin.ref, pin.nodes, pin.licenses, pin.nice, release.comment)
        case MarkedOrder(HoldJobs(refs), comment):
            return gateway.hold(refs, comment)
        case MarkedOrder(ReleaseJobs(refs), comment):
            return gateway.release(refs, comment)
        case MarkedOrder(MarkJobs(refs), comment):
            return gateway.set_admin_comment(refs, comment)
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
        case RequeueJobs(refs):
            return gateway.requeue(refs)
        case RequeueEndedJobs(refs):
            return gateway.requeue_ended(refs)
        case SuspendJobs(refs):
            return gateway.suspend(refs)
        case ResumeJobs(refs):
            return gateway.resume(refs)
    raise TypeError(f"an order without its mark: {order!r}")
