"""Observes Slurm and the nodes: takes snapshots."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.cluster.reserved_nodes import ReservedNodes
from omfs_daemon.cluster.scope import Scope, ScopedJobs
from omfs_daemon.cluster.snapshot import NodeObservations, Snapshot, with_whole_nodes
from omfs_daemon.daemon.blocked_nodes import BlockedNodes
from omfs_daemon.daemon.limits_reader import LimitsReader
from omfs_daemon.daemon.new_jobs import NewJobs
from omfs_daemon.daemon.rest import Rest
from omfs_daemon.daemon.unit_reader import UnitReader
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.node_licenses import NodeLicenses
from omfs_daemon.slurm.scheduler_pass import scheduler_pass

NODES_SHARE_OF_TIME = 0.02
"""Nodes change seldom: polling them may take at most this part of the time."""

NODES_SECONDS = 10.0
"""Between two polls of the nodes at least: each is five calls, however quick."""

REGISTERS_WITHIN = 10.0
"""Seconds after a restart of slurmctld in which nodes that do not respond may only not have answered yet."""


class _Sources(NamedTuple):
    """What counts besides what Slurm shows."""

    node_licenses: Callable[[], NodeLicenses]
    facts: Callable[[], NodeObservations]
    scoped_jobs: ScopedJobs


class Observer:
    """Takes snapshots. Raises GatewayError if Slurm does not answer in full; then there is no snapshot at all."""

    def __init__(
        self,
        gateway: Gateway,
        clock: Callable[[], float],
        node_licenses: Callable[[], NodeLicenses] = lambda: NodeLicenses(()),
        facts: Callable[[], NodeObservations] = NodeObservations,
        scope: Callable[[], Scope] = Scope,
    ) -> None:
        self._gateway = gateway
        self._clock = clock
        self._sources = _Sources(node_licenses, facts, ScopedJobs(scope))
        self._nodes: Mapping[str, Node] = {}
        self._shown: Mapping[str, Node] = {}
        self._partitions: Mapping[str, Partition] = {}
        self._nodes_rest = Rest()
        self._boot_of_nodes = ""
        self.slurm_settings: Mapping[str, str] = {}
        """Slurm's, as of the last poll of the nodes."""
        self._registered_at = float("-inf")
        self._odd: frozenset[tuple[str, bool]] = frozenset()
        self._blocked_nodes = BlockedNodes()
        self._unit_reader = UnitReader(gateway, clock)
        self._limits_reader = LimitsReader(gateway, clock)
        single_jobs = ScopedJobs(scope), ReservedNodes()
        """They remember others than those of all jobs."""
        self.new_jobs = NewJobs(gateway, clock, lambda jobs, taken: self._as_observed(jobs, taken, *single_jobs))

    def poll(self, resumed: Collection[str] = ()) -> Snapshot:
        """Everything, as of the time when Slurm was *asked*. ``resumed``: jobs that may share CPUs with others."""
        if not self._nodes:
            self._gateway.nodes()  # by the sizes of these, and by the defaults of partitions, jobs are read
            self._gateway.partitions()
        taken = self._clock()
        jobs = self._gateway.jobs()
        if self._nodes_rest.is_over(taken) or self._is_registering(taken):
            began = self._clock()
            self._ask_settings()
            self._boot_of_nodes = self._boot
            self._nodes = {node.name: self._if_registered(node, taken) for node in self._gateway.nodes()}
            self._partitions = {partition.name: partition for partition in self._gateway.partitions()}
            now = self._clock()
            self._nodes_rest.begin(now, max(NODES_SECONDS, (now - began) * (1 / NODES_SHARE_OF_TIME - 1)))
        elif any(node.cpus_taken for node in self._nodes.values()):
            # Slurm's counts of the nodes are as old as their poll: the jobs just polled are newer.
            self._nodes = {name: replace(node, cpus_taken=0, memory_taken=0) for name, node in self._nodes.items()}
        self._limits_reader.ask_if_due(taken)
        snapshot = self._snapshot(taken, jobs)
        return replace(snapshot, units=self._unit_reader.near(snapshot.jobs.values(), resumed))

    def ended(self, observation: Observation, named: Mapping[str, int | str]) -> dict[str, Job]:
        """Those of these jobs (by reference: as ``Gateway.find`` takes them) that Slurm lists no longer and still
        remembers (MinJobAge)."""
        gone = [ref for ref in sorted(named) if observation.job(ref) is None]
        found = {ref: self._gateway.find(named[ref]) for ref in gone}
        return {ref: job for ref, job in found.items() if job is not None}

    def boot(self, odd: frozenset[tuple[str, bool]]) -> str:
        """When slurmctld has started, as it says itself. It is asked with each poll of the nodes, and at once if jobs
        look as if it had forgotten an order (``odd``, as ``odd_jobs`` gives it), once for each: the question delays an
        urgent job."""
        if not self._boot or not odd <= self._odd:
            self._ask_settings()
        self._odd = odd
        return self._boot

    @property
    def _boot(self) -> str:
        return self.slurm_settings.get("BOOT_TIME", "")

    @property
    def scheduler_pass(self) -> float:
        """As in ``Settings``."""
        return scheduler_pass(self.slurm_settings.get("SchedulerParameters", ""))

    def _ask_settings(self) -> None:
        before, self.slurm_settings = self._boot, self._gateway.settings().values
        if before not in ("", self._boot):
            self._registered_at = self._clock() + REGISTERS_WITHIN

    def _if_registered(self, node: Node, taken: float) -> Node:
        """Nodes that do not respond to a slurmctld that has just started count as up, so that no preemption is undone
        for them."""
        return replace(node, up=True, works=True) if node.silent and self._is_registering(taken) else node

    def _is_registering(self, taken: float) -> bool:
        return taken < self._registered_at <= taken + REGISTERS_WITHIN

    @property
    def unregistered(self) -> frozenset[str]:
        """Nodes that have not answered the present slurmctld yet, as far as is known."""
        is_old = self._boot_of_nodes != self._boot
        return frozenset(name for name, node in self._nodes.items() if is_old or node.silent)

    def has_urgent_polls(self, rules: Rules) -> bool:
        """Whether polls for new jobs alone are possible and useful: only urgent jobs preempt others on them. Node
        licenses are counted with all jobs."""
        return not self._sources.node_licenses().node_licenses and any(rule.urgent for rule in rules.classes)

    def _as_observed(
        self, jobs: Sequence[Job], taken: float, scoped_jobs: ScopedJobs, reserved_nodes: ReservedNodes
    ) -> Sequence[Job]:
        """Single jobs as they are in snapshots."""
        whole = [with_whole_nodes(job, self._nodes) if job.set_aside else job for job in jobs]
        return reserved_nodes.kept_free(scoped_jobs.mark(whole), self._limits_reader.latest.reservations or (), taken)

    def _snapshot(self, taken: float, jobs: list[Job]) -> Snapshot:
        jobs = [with_whole_nodes(job, self._nodes) if job.set_aside else job for job in jobs]
        jobs = self._sources.scoped_jobs.mark(jobs)
        jobs, nodes = self._with_node_licenses(jobs, self._blocked_nodes.with_blocked_down(taken, jobs, self._nodes))
        limits = self._limits_reader.latest.without_licenses(self._sources.node_licenses().names(nodes))
        facts = self._sources.facts()
        found = {job.id: job for job in self._limits_reader.off_reserved_nodes(jobs, taken)}
        return Snapshot(taken, found, nodes, self._partitions, facts.nodes, facts.sizes, units={}, limits=limits)

    def _with_node_licenses(self, jobs: list[Job], known: Mapping[str, Node]) -> tuple[list[Job], Mapping[str, Node]]:
        """The mapping is the same object while no node changes, so that arrays made from it are kept."""
        node_licenses = self._sources.node_licenses()
        if not node_licenses.node_licenses:
            return jobs, known
        jobs, nodes = node_licenses.with_node_licenses(jobs, list(known.values()), self._gateway.licenses())
        if len(nodes) != len(self._shown) or any(self._shown.get(node.name) is not node for node in nodes):
            self._shown = {node.name: node for node in nodes}
        return jobs, self._shown
