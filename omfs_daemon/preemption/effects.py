"""What a cycle brings about, as data: what to record, what to order, what to tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.preemption.methods.base import Action, NodeOrder
from omfs_daemon.preemption.preemption import Preemption, VictimState
from omfs_daemon.preemption.records import JobEvent, PaidCost
from omfs_daemon.preemption.state import JobPreempted, Record
from omfs_daemon.slurm.orders import Order, parts_of, refs_of


@dataclass(frozen=True, slots=True)
class Chain:
    """Orders that belong together. ``transitions`` (requeue, suspend, resume, signals, work on nodes) are sent after
    ``fields``, and only if none of these was refused. ``preemption``: whose they are, 0 for none."""

    fields: tuple[Order, ...] = ()
    transitions: tuple[Action, ...] = ()
    preemption: int = 0

    @property
    def refs(self) -> set[str]:
        """The jobs that they are for."""
        return {ref for order in (*self.fields, *self.transitions) for ref in _refs(order)}


class PreemptionEnd(NamedTuple):
    """A preemption that is over, and those of its victims that it has preempted."""

    preemption: Preemption
    preempted: frozenset[str]


@dataclass(slots=True)
class Effects:
    """``records`` are written and synced before any order of ``chains`` is sent.

    events           what has happened; events_if_taken: what happens with an order that Slurm takes, by its job
    sentences        for the owners of jobs, by job: they go into AdminComment
    begun, ended     preemptions, for log and metrics
    """

    records: list[Record] = field(default_factory=list)
    chains: list[Chain] = field(default_factory=list)
    events: list[JobEvent] = field(default_factory=list)
    events_if_taken: list[JobEvent] = field(default_factory=list)
    costs: list[PaidCost] = field(default_factory=list)
    sentences: dict[str, str] = field(default_factory=dict)
    begun: list[Preemption] = field(default_factory=list)
    ended: list[PreemptionEnd] = field(default_factory=list)

    def add(self, other: Effects) -> None:
        self.records += other.records
        self.chains += other.chains
        self.events += other.events
        self.events_if_taken += other.events_if_taken
        self.costs += other.costs
        self.sentences |= other.sentences
        self.begun += other.begun
        self.ended += other.ended


def in_order(chains: Iterable[Chain], missing: Mapping[Preemption, Sequence[Action]]) -> list[Chain]:
    """The chains with the transitions of their preemptions: urgent ones first, then by age; what no preemption wants
    comes last."""
    fields = {chain.preemption: chain.fields for chain in chains if chain.preemption}
    first = sorted(missing, key=lambda preemption: (not preemption.preemptor.urgent, preemption.id))
    found = [Chain(fields.pop(each.id, ()), tuple(missing[each]), each.id) for each in first]
    rest = [Chain(orders, preemption=number) for number, orders in fields.items()]
    return [*found, *rest, *(chain for chain in chains if not chain.preemption)]


def order_batches(chains: Sequence[Chain], most: int) -> list[list[Chain]]:
    """First what belongs to preemptions and what has transitions, with all else about the same jobs; then the other
    orders, for at most ``most`` jobs in a batch."""
    urgent = {ref for chain in chains if chain.preemption or chain.transitions for ref in chain.refs}
    found: list[list[Chain]] = [[]]
    others: list[Order] = []
    for chain in chains:
        if chain.preemption or chain.transitions or not urgent.isdisjoint(chain.refs):
            found[0].append(chain)
        else:
            others += chain.fields
    jobs = most
    for part in (part for order in others for part in parts_of(order, most)):
        jobs += len(refs_of(part))
        if jobs > most:
            found.append([])
            jobs = len(refs_of(part))
        found[-1].append(Chain((part,)))
    return found


def _refs(order: Action) -> frozenset[str]:
    return frozenset((order.ref,)) if isinstance(order, NodeOrder) else refs_of(order)


def preempted_record(preemption: Preemption, victim: VictimState, job: Job, now: float) -> JobPreempted:
    """It gives up only what was really taken off it."""
    gres = victim.gres if job.licenses == victim.keeps else ()
    return JobPreempted(victim.ref, now, victim.method, preemption.preemptor.ref, gres, victim.waits_since)


def with_clock_moved(preemption: Preemption, seconds: float) -> Preemption:
    """As if the step had begun later: time in which Slurm did not answer does not count."""
    return replace(preemption, since=preemption.since + seconds)
