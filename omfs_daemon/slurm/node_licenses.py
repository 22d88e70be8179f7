"""Our own books of what Slurm would keep for a suspended job: licences of slurm.conf that name a node (docs/books.md).

Slurm counts a suspended job's memory and devices as taken for as long as it lives, but lets a running job give up
licences. So a site may count them as licences, ``Licenses=ve_n1:2,ve_n2:2``. To the policy such a licence is a generic
resource of the node that it names: here licences become that, and back. No I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.slurm.gateway import LicenceRow

Pairs = tuple[tuple[str, int], ...]

NODE = "{node}"
_SHORT = "Licenses"  # Slurm's reason for a job that waits for any of its licences
_BETWEEN = "_-.@"  # between a resource's name and a node's


@dataclass(frozen=True, slots=True)
class Book:
    """One resource that is counted.

    licence  how its licences are called, with ``{node}`` for the node's name: ``ve_{node}``
    kind     what a way of stopping must free so that others get it: ``devices`` or ``memory``
    any      a licence for this resource on any node ("" if there is none), of which there must always be enough: who
             asks for it waits until the daemon has chosen a node
    """

    licence: str
    kind: str
    any: str = ""

    def __post_init__(self) -> None:
        if self.licence.count(NODE) != 1 or not self.name:
            raise ValueError(f"a book's licence is a name with {NODE} in it, as in ve_{NODE}: not {self.licence!r}")

    @property
    def name(self) -> str:
        return self.licence.replace(NODE, "").strip(_BETWEEN)

    @property
    def resource(self) -> str:
        """The generic resource that the policy sees: ``devices/ve``."""
        return f"{self.kind}/{self.name}"

    def on(self, node: str) -> str:
        """The licence for it on one node."""
        return self.licence.replace(NODE, node)


class Entry(NamedTuple):
    """What one licence stands for; ``node`` is "" for any."""

    book: Book
    node: str


class Books:
    """The books of a site. Remembers what it gave for which job and node: the same one gives the same object again."""

    def __init__(self, books: Iterable[Book]) -> None:
        self.books = tuple(books)
        twice = [name for name, count in Counter(book.resource for book in self.books).items() if count > 1]
        if twice:
            raise ValueError(f"two books for {', '.join(twice)}")
        self._entries: dict[str, Entry] = {}
        self._nodes_seen: tuple[str, ...] = ()
        self._jobs: dict[int, tuple[Job, Job]] = {}
        self._nodes: dict[str, tuple[Node, Pairs, Node]] = {}

    def with_books(
        self, jobs: Sequence[Job], nodes: Sequence[Node], licences: Sequence[LicenceRow]
    ) -> tuple[list[Job], list[Node]]:
        """The jobs and nodes with the licences among their generic resources.

        A job that waits also gets the nodes that its licences name as required ones; what it asks for on any node it
        asks for on each of its nodes, in equal parts, and is marked as unplaced. What jobs hold of a node on which they
        are not, and what is held without a job that we see, is taken off what the node has.
        """
        if not self.books:
            return list(jobs), list(nodes)
        self._know(nodes)
        licensed = [job for job in jobs if job.licenses]
        translated = {job.id: self._job(job) for job in licensed}
        self._jobs = {job.id: (job, translated[job.id]) for job in licensed}
        rows = self._totals(licensed, licences)
        return (
            [translated[job.id] if job.licenses else job for job in jobs] if licensed else list(jobs),
            [self._node(node, rows.get(node.name, ())) for node in nodes],
        )

    def placed(self, licences: Pairs, nodes: Sequence[str]) -> Pairs:
        """What a job must ask for that may use any node, once these are chosen for it."""
        counts: Counter[str] = Counter()
        for name, count in licences:
            book = next((book for book in self.books if book.any == name), None)
            if book is None or not nodes:
                counts[name] += count
                continue
            for node in nodes:
                counts[book.on(node)] += ceil(count / len(nodes))
        return tuple(sorted(counts.items()))

    def without(self, licences: Pairs, kinds: Collection[str], nodes: Collection[str]) -> Pairs:
        """What is left to a job on these nodes that gives up its resources of these kinds."""
        given = {book.on(node) for book in self.books if book.kind in kinds for node in nodes}
        given |= {book.any for book in self.books if book.kind in kinds}
        return tuple((name, count) for name, count in licences if name not in given)

    # -- inside ------------------------------------------------------------------------------------
    def _know(self, nodes: Sequence[Node]) -> None:
        names = tuple(node.name for node in nodes)
        if names == self._nodes_seen:
            return
        self._nodes_seen, self._jobs, self._nodes = names, {}, {}
        self._entries = {book.any: Entry(book, "") for book in self.books if book.any}
        self._entries |= {book.on(name): Entry(book, name) for book in self.books for name in names}

    def _job(self, job: Job) -> Job:
        known = self._jobs.get(job.id)
        if known is not None and known[0] is job:
            return known[1]
        asked = self._asked(job)
        if not asked:
            return job
        waits = job.state is JobState.PENDING
        counts: dict[str, int] = {}
        for entry, count in asked:
            counts[entry.book.resource] = max(counts.get(entry.book.resource, 0), count)
        required = job.request.required_nodes | {entry.node for entry, _ in asked if entry.node and waits}
        gres = tuple(sorted((*job.request.gres, *counts.items())))
        unplaced = waits and any(not entry.node for entry, _ in asked)
        request = replace(job.request, gres=gres, required_nodes=required, unplaced=unplaced)
        # Short of licences that are all of the books it waits for resources of nodes, as the policy knows them.
        short = job.reason == _SHORT and all(name in self._entries for name, _ in job.licenses)
        return replace(job, request=request, reason="Resources" if short else job.reason)

    def _asked(self, job: Job) -> list[tuple[Entry, int]]:
        """What each of its nodes gives to the job; of what differs between them, the most counts everywhere."""
        here, waits = set(job.on_nodes), job.state is JobState.PENDING
        found = []
        for name, count in job.licenses:
            entry = self._entries.get(name)
            if entry is None:
                continue
            if not entry.node:
                found.append((entry, ceil(count / max(1, len(here) or job.request.nodes))))
            elif waits or entry.node in here:
                found.append((entry, count))
        return found

    def _totals(self, jobs: Iterable[Job], licences: Iterable[LicenceRow]) -> Mapping[str, Pairs]:
        """By node, what there is of each resource for jobs on it."""
        held: Counter[str] = Counter()
        for job in jobs:
            if job.state is not JobState.PENDING:
                here = set(job.on_nodes)
                for name, count in job.licenses:
                    if name in self._entries and self._entries[name].node in here:
                        held[name] += count
        found: dict[str, list[tuple[str, int]]] = {}
        for name, total, used in licences:
            entry = self._entries.get(name)
            if entry is not None and entry.node:
                elsewhere = max(0, used - held[name])
                found.setdefault(entry.node, []).append((entry.book.resource, max(0, total - elsewhere)))
        return {node: tuple(rows) for node, rows in found.items()}

    def _node(self, node: Node, resources: Pairs) -> Node:
        if not resources:
            return node
        known = self._nodes.get(node.name)
        if known is not None and known[0] is node and known[1] == resources:
            return known[2]
        changed = replace(node, gres=tuple(sorted((*node.gres, *resources))))
        self._nodes[node.name] = (node, resources, changed)
        return changed
