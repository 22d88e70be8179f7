"""The books that planner and gate keep: what is free, and who uses how much, after each thing decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.policy.arrays.capacity import Capacity
from omfs_daemon.policy.arrays.capacity import size_of
from omfs_daemon.policy.arrays.job_arrays import Crowd
from omfs_daemon.policy.arrays.job_arrays import cpus_held
from omfs_daemon.policy.arrays.free_resources import parcel_of
from omfs_daemon.policy.rules.job_kinds import Kinds
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.arrays.snapshot_arrays import Scene
from omfs_daemon.policy.arrays.usage import Usage
from omfs_daemon.policy.arrays.usage import count_running
from omfs_daemon.policy.victims.need import Need
from omfs_daemon.policy.victims.method_availability import SETTLES
from omfs_daemon.policy.victims.method_availability import Ways


class Standing:
    """Capacity and usage of a snapshot with the stops under way, to be carried on decision by decision."""

    def __init__(self, scene: Scene, ledger: Ledger, rules: Rules) -> None:
        self.ledger = ledger
        self.crowd = scene.crowd
        self.rules = rules
        self.kinds = Kinds(rules)
        back = {ref for ref, at in ledger.running_since.items() if scene.taken - at < SETTLES}
        self.ways = Ways(rules, scene.facts, scene.sizes, back)
        self.ways.take(_being_moved(self.crowd, ledger))
        self.capacity = Capacity(scene, ledger)
        self.machine = self.capacity.machine
        self.usage = Usage(rules.tree, size_of(self.machine, self.crowd))
        count_running(self.usage, self.crowd, ledger, self.kinds)

    def need_of(self, job: Job) -> Need:
        """What a waiting or suspended job needs to run."""
        kind = self.kinds.of(job)
        suspended = job.state is JobState.SUSPENDED
        stopped = self.ledger.stopped.get(job.ref) if suspended else None
        return Need(
            request=job.request,
            leaf=kind.leaf,
            cpus=cpus_held(job) if suspended else self.capacity.cpus_of(job.request),
            urgent=kind.job_class.urgent,
            fixed=kind.fixed,
            shares=job.shares if suspended else (),
            back=stopped.gres if stopped else (),
        )

    def start(self, need: Need, shares: tuple[Share, ...], add_fixed: bool) -> None:
        """The job starts on idle CPUs."""
        self.capacity.take_now(need.parcel(self.machine, shares))
        self._count(need, shares, add_fixed)

    def promise(self, need: Need, shares: tuple[Share, ...], add_fixed: bool) -> None:
        """The job will start on CPUs that are being freed."""
        self.capacity.take_later(need.parcel(self.machine, shares))
        self._count(need, shares, add_fixed)

    def stop(self, victims: Sequence[tuple[Job, str]]) -> None:
        """These jobs will be gone."""
        self.ways.take(victims)
        for job, method in victims:
            self.usage.remove(self.kinds.of(job).leaf, cpus_held(job))
            self.capacity.give_later(parcel_of(self.machine, job, self.rules.method(method)))

    def _count(self, need: Need, shares: tuple[Share, ...], add_fixed: bool) -> None:
        cpus = sum(share.cpus for share in shares)
        self.usage.add(need.leaf, cpus)
        if need.fixed and add_fixed:
            self.usage.add_fixed(need.leaf, cpus)


def _being_moved(crowd: Crowd, ledger: Ledger) -> Iterator[tuple[Job, str]]:
    """Victims of stops under way that still have all their memory: what they will take is not seen yet."""
    ways = {ref: way.name for commitment in ledger.commitments for ref, way in commitment.ways.items() if way.on_nodes}
    return ((job, ways[ref]) for ref, job in crowd.find(ways).items() if job.runs)
