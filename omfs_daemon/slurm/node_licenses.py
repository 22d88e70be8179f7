"""Node licenses: licenses of slurm.conf that count a resource of one node (docs/node-licenses.md).

Slurm counts a suspended job's memory and devices as taken for as long as it lives, but lets a running job give up
licenses. So a site may count them as licenses, ``Licenses=ve_n1:2,ve_n2:2``. To the policy such a license is a generic
resource of the node that it names; this module translates in both directions. No I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from omfs_daemon.cluster.het_jobs import with_gres_everywhere
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.slurm.gateway import LicenseRow

Pairs = tuple[tuple[str, int], ...]

NODE = "{node}"
_SHORT = "Licenses"  # Slurm's reason for a job that waits for any of its licenses
_BETWEEN = "_-.@"  # between a resource's name and a node's


@dataclass(frozen=True, slots=True)
class NodeLicense:
    """One resource that is counted.

    license  the name of its licenses, with ``{node}`` for the node's name: ``ve_{node}``
    kind     what a preemption method must free so that others get it: ``devices`` or ``memory``
    any      a license for this resource on any node ("" if there is none), of which there must always be enough: a
             job that asks for it waits until the daemon has chosen a node
    """

    license: str
    kind: str
    any: str = ""

    def __post_init__(self) -> None:
        if self.license.count(NODE) != 1 or not self.name:
            raise ValueError(f"a node license is a name with {NODE} in it, as in ve_{NODE}: not {self.license!r}")

    @property
    def name(self) -> str:
        return self.license.replace(NODE, "").strip(_BETWEEN)

    @property
    def resource(self) -> str:
        """The generic resource that the policy sees: ``devices/ve``."""
        return f"{self.kind}/{self.name}"

    def on(self, node: str) -> str:
        """The license for it on one node."""
        return self.license.replace(NODE, node)


class LicenseCount(NamedTuple):
    """Licenses of one ``NodeLicense.resource`` on all nodes; ``overdrawn``: those that jobs hold beyond what their node
    has."""

    resource: str
    total: int
    used: int
    overdrawn: int


class LicenseEntry(NamedTuple):
    """What a license counts; ``node`` is "" for any node."""

    node_license: NodeLicense
    node: str


class NodeLicenses:
    """The node licenses of a site. Jobs and nodes that have not changed are translated to the same objects again."""

    def __init__(self, node_licenses: Iterable[NodeLicense]) -> None:
        self.node_licenses = tuple(node_licenses)
        twice = [
            name
            for name, count in Counter(node_license.resource for node_license in self.node_licenses).items()
            if count > 1
        ]
        if twice:
            raise ValueError(f"two node licenses for {', '.join(twice)}")
        self.counts: tuple[LicenseCount, ...] = ()
        """As Slurm last showed them, by resource."""
        self._entries: dict[str, LicenseEntry] = {}
        self._nodes_seen: tuple[str, ...] = ()
        self._jobs: dict[int, tuple[Job, Job]] = {}
        self._nodes: dict[str, tuple[Node, Pairs, Node]] = {}

    def with_node_licenses(
        self, jobs: Sequence[Job], nodes: Sequence[Node], licenses: Sequence[LicenseRow]
    ) -> tuple[list[Job], list[Node]]:
        """The jobs and nodes with the licenses among their generic resources.

        A pending job also requires the nodes that its licenses name; what it asks for on any node it asks for on each
        of its nodes, in equal parts, and it is marked as unplaced. What jobs hold of a node on which they do not run,
        and what is held without a job that we see, is subtracted from what the node has.
        """
        if not self.node_licenses:
            return list(jobs), list(nodes)
        self._know(nodes)
        licensed = [job for job in jobs if job.licenses]
        translated = {job.id: self._job(job) for job in licensed}
        self._jobs = {job.id: (job, translated[job.id]) for job in licensed}
        rows = self._totals(licensed, licenses)
        self.counts = self._counts(licenses)
        return (
            [translated[job.id] if job.licenses else job for job in jobs] if licensed else list(jobs),
            [self._node(node, rows.get(node.name, ())) for node in nodes],
        )

    def names(self, nodes: Iterable[str]) -> frozenset[str]:
        """The licenses that stand for resources of these nodes."""
        any_node = {node_license.any for node_license in self.node_licenses if node_license.any}
        return frozenset(any_node).union(node_license.on(node) for node_license in self.node_licenses for node in nodes)

    def placed(self, licenses: Pairs, nodes: Sequence[str]) -> Pairs:
        """What a job that may use any node must ask for once these are chosen."""
        counts: Counter[str] = Counter()
        for name, count in licenses:
            node_license = next((node_license for node_license in self.node_licenses if node_license.any == name), None)
            if node_license is None or not nodes:
                counts[name] += count
                continue
            for node in nodes:
                counts[node_license.on(node)] += ceil(count / len(nodes))
        return tuple(sorted(counts.items()))

    def are_of_any(self, licenses: Pairs) -> bool:
        """Whether some of these licenses leave the node open."""
        return any(name == node_license.any for name, _ in licenses for node_license in self.node_licenses)

    def without(self, licenses: Pairs, kinds: Collection[str], nodes: Collection[str]) -> Pairs:
        """What a job on these nodes keeps when it gives up its resources of these kinds."""
        given = {
            node_license.on(node) for node_license in self.node_licenses if node_license.kind in kinds for node in nodes
        }
        given |= {node_license.any for node_license in self.node_licenses if node_license.kind in kinds}
        return tuple((name, count) for name, count in licenses if name not in given)

    # -- inside ------------------------------------------------------------------------------------
    def _know(self, nodes: Sequence[Node]) -> None:
        names = tuple(node.name for node in nodes)
        if names == self._nodes_seen:
            return
        self._nodes_seen, self._jobs, self._nodes = names, {}, {}
        self._entries = {
            node_license.any: LicenseEntry(node_license, "") for node_license in self.node_licenses if node_license.any
        }
        self._entries |= {
            node_license.on(name): LicenseEntry(node_license, name)
            for node_license in self.node_licenses
            for name in names
        }

    def _job(self, job: Job) -> Job:
        known = self._jobs.get(job.id)
        if known is not None and known[0] is job:
            return known[1]
        asked = self._asked(job)
        if not asked:
            return job
        if job.parts:
            job = replace(with_gres_everywhere(job), set_aside="it is a heterogeneous job that uses node licenses")
        waits = job.state is JobState.PENDING
        counts: dict[str, int] = {}
        for entry, count in asked:
            counts[entry.node_license.resource] = max(counts.get(entry.node_license.resource, 0), count)
        required = job.request.required_nodes | {entry.node for entry, _ in asked if entry.node and waits}
        gres = tuple(sorted((*job.request.gres, *counts.items())))
        unplaced = waits and any(not entry.node for entry, _ in asked)
        request = replace(job.request, gres=gres, required_nodes=required, unplaced=unplaced)
        # If all of its licenses are node licenses, it waits for resources of nodes.
        short = job.reason == _SHORT and all(name in self._entries for name, _ in job.licenses)
        return replace(job, request=request, reason="Resources" if short else job.reason)

    def _asked(self, job: Job) -> list[tuple[LicenseEntry, int]]:
        """What the job asks for on each of its nodes; where nodes differ, the most counts for all."""
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

    def _totals(self, jobs: Iterable[Job], licenses: Iterable[LicenseRow]) -> Mapping[str, Pairs]:
        """By node, how much of each resource exists for jobs on it."""
        held: Counter[str] = Counter()
        for job in jobs:
            if job.state is not JobState.PENDING:
                here = set(job.on_nodes)
                for name, count in job.licenses:
                    if name in self._entries and self._entries[name].node in here:
                        held[name] += count
        found: dict[str, list[tuple[str, int]]] = {}
        for name, total, used in licenses:
            entry = self._entries.get(name)
            if entry is not None and entry.node:
                elsewhere = max(0, used - held[name])
                found.setdefault(entry.node, []).append((entry.node_license.resource, max(0, total - elsewhere)))
        return {node: tuple(rows) for node, rows in found.items()}

    def _counts(self, licenses: Iterable[LicenseRow]) -> tuple[LicenseCount, ...]:
        counts: dict[str, LicenseCount] = {}
        for name, total, used in licenses:
            entry = self._entries.get(name)
            if entry is not None and entry.node:
                _, *sums = counts.get(resource := entry.node_license.resource, LicenseCount("", 0, 0, 0))
                more = (total, used, max(0, used - total))
                counts[resource] = LicenseCount(resource, *(old + new for old, new in zip(sums, more, strict=True)))
        return tuple(counts.values())

    def _node(self, node: Node, resources: Pairs) -> Node:
        if not resources:
            return node
        known = self._nodes.get(node.name)
        if known is not None and known[0] is node and known[1] == resources:
            return known[2]
        changed = replace(node, gres=tuple(sorted((*node.gres, *resources))))
        self._nodes[node.name] = (node, resources, changed)
        return changed
