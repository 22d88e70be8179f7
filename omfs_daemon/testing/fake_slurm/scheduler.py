"""Which waiting job the fake starts when: Slurm's main scheduler and a plain model of its backfill.

Main (slurmctld, job_scheduler.c): in order of priority; a job that does not fit closes its partition with all its
nodes, one with required nodes only those nodes. Backfill (sched/backfill): a lower job may start on nodes that no
blocked higher one will need, or if it ends before that one can start.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from omfs_daemon.cluster.jobs import JobRequest
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.testing.fake_slurm.events import Timing
from omfs_daemon.testing.fake_slurm.fake_jobs import Record
from omfs_daemon.testing.fake_slurm.fake_licenses import LicenseCounts
from omfs_daemon.testing.fake_slurm.fake_limits import FakeLimits, partition_refuses
from omfs_daemon.testing.fake_slurm.fake_nodes import FakeNode, Placement, place_job

UNLIMITED = 365 * 86400.0
"""Slurm takes a job without a time limit to run a year."""

QUEUE_DEPTH = 100
"""Jobs that a pass looks at when nothing more can start (default_queue_depth)."""

RESERVED = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
"""Slurm's text for a job behind another one on its nodes, whatever else it lacks."""

UNAVAILABLE = "ReqNodeNotAvail, UnavailableNodes:"
"""Before the names of the nodes, which are down, or in a partition whose first job waits."""

RESOURCES = "Resources"
RESERVED_FOR_OTHERS = "ReqNodeNotAvail, May be reserved for other job"

Start = Callable[[Record, str, list[Placement]], None]
Key = tuple[int, int, float, int]


class PendingQueue:
    """The jobs that may start, best first: tier, priority, then the order of submission (job id)."""

    def __init__(self, partitions: Mapping[str, Partition]) -> None:
        self._partitions = partitions
        self._order: list[Key] = []
        self._keys: dict[int, Key] = {}
        self._records: dict[int, Record] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, record: Record) -> bool:
        return record.id in self._keys

    def __iter__(self) -> Iterator[Record]:
        return (self._records[key[-1]] for key in tuple(self._order))

    def put(self, record: Record) -> None:
        """Add a job, or put it where its priority now says."""
        self.drop(record)
        tier = max(self._partitions[name].priority_tier for name in record.partitions)
        key = (-tier, -record.priority, record.submitted, record.id)
        self._keys[record.id], self._records[record.id] = key, record
        insort(self._order, key)

    def drop(self, record: Record) -> None:
        key = self._keys.pop(record.id, None)
        if key is not None:
            del self._order[bisect_left(self._order, key)]
            del self._records[record.id]


class Reservation(NamedTuple):
    """When a blocked job can start at the latest, and on which nodes."""

    at: float
    nodes: frozenset[str]


class Scheduler:
    """Starts jobs of the queue on the nodes; ``start`` does it and takes the job, or its first task, off the queue."""

    def __init__(
        self,
        fake_nodes: Mapping[str, FakeNode],
        partitions: Mapping[str, Partition],
        start: Start,
        timing: Timing,
        licenses: LicenseCounts,
        limits: FakeLimits,
    ) -> None:
        self.queue = PendingQueue(partitions)
        self._partitions = partitions
        self._start = start
        self._timing = timing
        self._licenses = licenses
        self.lacks: Callable[[Record], str] = lambda _: ""
        self.unfit: Callable[[Record], Collection[str]] = lambda _: ()
        self.says_unfit = False
        self._limits = limits
        self._nodes = fake_nodes
        self._nodes_of = {
            name: [node for node in fake_nodes.values() if node.name in partition.nodes]
            for name, partition in partitions.items()
        }

    def main_pass(self) -> None:
        """Start jobs in order of priority until every partition is closed."""
        if not self.queue:
            return
        free = self._free_nodes()
        closed = {name for name, partition in self._partitions.items() if not partition.up}
        kept: set[str] = set()
        closed_nodes: set[str] = set()
        for tested, record in enumerate(self.queue):
            if len(closed) == len(self._partitions) and tested >= QUEUE_DEPTH:
                return
            allowed = self._open_partitions(record)
            open_ones = [name for name in allowed if name not in closed]
            required = record.request.required_nodes
            if allowed and not open_ones:
                _wait(record, "Priority")
            if not open_ones or not self._may_start(record):
                continue
            # It starts no heterogeneous job, nor anything behind one in its partition.
            is_single = not record.request.parts
            if is_single and self._all_started(record, open_ones, free, kept | closed_nodes):
                continue
            if not self._may_start(record):
                continue
            if unavailable := sorted(required & closed_nodes):
                _wait(record, f"{UNAVAILABLE}{','.join(unavailable)}")
            else:
                _wait(record, RESERVED if required & kept else RESOURCES)
            if len(required) >= max(1, record.request.nodes):
                kept |= required
            else:
                closed.update(open_ones)
                closed_nodes = closed_nodes.union(*(self._partitions[name].nodes for name in open_ones))

    def backfill_pass(self, now: float, running: Iterable[Record]) -> None:
        """Start lower jobs that delay no blocked higher one."""
        free = self._free_nodes()
        if not any(free.values()):
            return
        ends = _ends(now, running)
        blocked: dict[JobRequest, Record] = {}
        refused: set[tuple[JobRequest, float]] = set()
        reserved: dict[JobRequest, Reservation | None] = {}
        for record in islice(self.queue, self._timing.bf_max_tested):
            if not self._may_start(record):
                continue
            names = self._open_partitions(record)
            if not names:
                continue
            trial = (record.request, record.what.time_limit)
            if record.request in blocked or trial in refused:
                continue
            if not self._fits(record, names, free):
                blocked[record.request] = record
                continue
            # Reservations are dear, so they are made only now that they matter.
            for request, other in blocked.items():
                if request not in reserved:
                    reserved[request] = self._reserve(other, now, ends)
            if len(blocked) >= self._timing.bf_max_blocked:
                return
            done_by = now + min(record.what.time_limit, UNLIMITED)
            kept = {node for one in reserved.values() if one and one.at < done_by for node in one.nodes}
            if not self._all_started(record, names, free, kept):
                refused.add(trial)

    def can_ever_run(self, record: Record) -> bool:
        """Whether its required nodes are in a partition of its and no more than it may have."""
        required = record.request.required_nodes
        most = record.request.max_nodes
        if self.says_unfit and not required.isdisjoint(self.unfit(record)):
            return False
        return (not most or len(required) <= most) and any(
            required <= self._partitions[name].nodes for name in record.partitions
        )

    def _free_nodes(self) -> dict[str, list[FakeNode]]:
        """By partition, the nodes on which anything could start; within a pass they only get fewer."""
        return {name: [node for node in nodes if node.has_free_cpus] for name, nodes in self._nodes_of.items()}

    def _all_started(
        self, record: Record, names: Iterable[str], free: Mapping[str, list[FakeNode]], kept: Collection[str]
    ) -> bool:
        """Start a job, or as many tasks of an array as fit; whether nothing of it is left."""
        for name in names:
            nodes = [node for node in free[name] if node.name not in kept] if kept else free[name]
            while record in self.queue and self._may_start(record):
                placements = self._place(record, nodes, name)
                if placements is None:
                    break
                self._start(record, name, placements)
        return record not in self.queue

    def _place(self, record: Record, nodes: Sequence[FakeNode], name: str) -> list[Placement] | None:
        """Where the job fits now; one that leaves its tasks open gets as many nodes as it may have."""
        if record.request.parts:
            return self._place_parts(record, nodes, name)
        request, exclusive = record.request, self._exclusive(record, name)
        if reserved := self._limits.reserved_nodes(record):
            nodes = [node for node in nodes if node.name not in reserved]
        if unfit := self.unfit(record):
            nodes = [node for node in nodes if node.name not in unfit]
        if not record.what.open_tasks:
            return place_job(request, nodes, exclusive)
        counts = range(request.max_nodes, request.nodes - 1, -1)
        tries = (replace(request, nodes=count, cpus=count * request.min_cpus_per_node) for count in counts)
        return next(filter(None, (place_job(wider, nodes, exclusive) for wider in tries)), None)

    def _place_parts(self, record: Record, nodes: Sequence[FakeNode], name: str) -> list[Placement] | None:
        """Where all parts of a heterogeneous job fit now, each on nodes that no other part is on."""
        found: list[Placement] = []
        for at, part in enumerate(record.request.parts):
            mine = nodes if name in part.partitions else self._nodes_of[part.partitions[0]]
            used = {placement.node.name for placement in found}
            exclusive = part.exclusive or self._partitions[part.partitions[0]].exclusive
            placed = place_job(part, [node for node in mine if node.name not in used], exclusive)
            if placed is None:
                return None
            found += [placement._replace(part=at) for placement in placed]
        return found

    def _exclusive(self, record: Record, name: str) -> bool:
        return record.request.exclusive or self._partitions[name].exclusive

    def _may_start(self, record: Record) -> bool:
        """A job that lacks something else than resources waits and blocks nobody."""
        if lacking := self.lacking(record):
            _wait(record, lacking)
        return not lacking

    def lacking(self, record: Record) -> str:
        """Slurm's word for what a job lacks besides resources, "" for nothing; partitions are not looked at. Slurm
        looks at it before it looks for nodes."""
        if record.licenses and not self._licenses.free(record.licenses):
            return "Licenses"
        required = record.request.required_nodes
        down = [name for name in sorted(required) if not self._nodes[name].starts_jobs]
        return (
            self.lacks(record)
            or self._limits.reached(record)
            or (f"{UNAVAILABLE}{','.join(down)}" if down else "")
            or (RESERVED_FOR_OTHERS if not required.isdisjoint(self._limits.reserved_nodes(record)) else "")
        )

    def _open_partitions(self, record: Record) -> list[str]:
        """Those that let it start. A job without any waits and blocks nobody."""
        refusals = {name: partition_refuses(record, self._partitions[name]) for name in record.partitions}
        found = [name for name, refusal in refusals.items() if not refusal]
        if not found:
            _wait(record, next(iter(refusals.values())))
        return found

    def _fits(self, record: Record, names: Iterable[str], free: Mapping[str, list[FakeNode]]) -> bool:
        return any(self._place(record, free[name], name) for name in names)

    def _reserve(self, record: Record, now: float, ends: Sequence[tuple[float, Record]]) -> Reservation | None:
        """The earliest start if all running jobs use their time limits; None if that is beyond bf_window.

        Equal requests share one reservation, where Slurm would find each a place of its own.
        """
        ends = [end for end in ends if end[0] < now + self._timing.bf_window]
        for name in self._open_partitions(record):
            best = self._fits_after(record, name, ends)
            if best is None:
                continue
            low, high = 0, len(ends)
            while low < high:
                middle = (low + high) // 2
                found = self._fits_after(record, name, ends[:middle])
                if found is None:
                    low = middle + 1
                else:
                    high, best = middle, found
            return Reservation(ends[low - 1][0] if low else now, frozenset(one.node.name for one in best))
        return None

    def _fits_after(self, record: Record, name: str, ended: Sequence[tuple[float, Record]]) -> list[Placement] | None:
        """Where the job fits once these have ended."""
        freed: dict[str, FakeNode] = {}
        for _, one in ended:
            for taken in one.taken:
                node = freed.get(taken.node)
                if node is None:
                    node = freed[taken.node] = self._nodes[taken.node].copy()
                node.give_back(taken)
        nodes = [freed.get(node.name, node) for node in self._nodes_of[name]]
        return self._place(record, nodes, name)


def _wait(record: Record, reason: str) -> None:
    if record.reason != reason:
        record.reason, record.shown = reason, None


def _ends(now: float, running: Iterable[Record]) -> list[tuple[float, Record]]:
    """The running jobs with the times at which their limits end them, first end first."""
    ends = [(now + min(one.what.time_limit, UNLIMITED) - one.ran_until(now), one) for one in running]
    return sorted(ends, key=lambda end: (end[0], end[1].id))
