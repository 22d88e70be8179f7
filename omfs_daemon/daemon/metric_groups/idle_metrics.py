"""Why CPUs were idle, and how long jobs waited: what ``omfs report`` computes from accounting, as it happens."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram

from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.metric_groups.label_values import LabelValues
from omfs_daemon.daemon.store.wait_hours import StartedJob, WaitShare, wait_shares
from omfs_daemon.policy.idle_causes import CAUSES, idle_causes

LONGEST_GAP = 300.0
"""Seconds between two full polls; of a longer gap it is not known why CPUs were idle."""

_WAITS = (1, 10, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400)
_MOST_ACCOUNTS = 100


KeepIdle = Callable[[float, float, Mapping[str, int]], None]
"""Told so many CPUs by cause from a time to another (``store.idle_hours.IdleHours.add``)."""

KeepWaits = Callable[[Sequence[WaitShare]], None]
"""Told of jobs that have started (``store.history_database.HistoryDatabase.add_waits``)."""


class IdleMetrics:
    """By full polls: a job that starts and ends between two of them is not seen."""

    def __init__(self, registry: CollectorRegistry, keep_idle: KeepIdle, keep_waits: KeepWaits) -> None:
        self._idle = Counter(
            "omfs_idle_cpu_seconds", "CPU time that no job had, by what kept it idle", ["cause"], registry=registry
        )
        for cause in CAUSES:
            self._idle.labels(cause)  # so that a rate sees the first one
        self._waits = Histogram(
            "omfs_wait_seconds",
            "Time from when a job could have started until Slurm started it",
            ["partition", "account"],
            buckets=_WAITS,
            registry=registry,
        )
        self._keep_idle, self._keep_waits = keep_idle, keep_waits
        self._partitions, self._accounts = LabelValues(), LabelValues(_MOST_ACCOUNTS)
        self._before: tuple[float, dict[str, int]] | None = None
        self._running: frozenset[int] | None = None

    def observe(self, snapshot: Snapshot, tree: AccountTree, held: Container[str]) -> None:
        """After a full poll; what it shows holds until the next one. ``held``: see ``idle_causes``."""
        if self._before is not None:
            taken, cpus_by_cause = self._before
            seconds = snapshot.taken - taken
            if 0 < seconds <= LONGEST_GAP:
                for cause, cpus in cpus_by_cause.items():
                    self._idle.labels(cause).inc(cpus * seconds)
                self._keep_idle(taken, snapshot.taken, cpus_by_cause)
        self._before = snapshot.taken, idle_causes(snapshot, held)
        running = frozenset(job.id for job in snapshot.jobs.values() if job.runs)
        if self._running is not None:  # what ran before the daemon has been counted, or was never seen
            started = list(self._started(snapshot, tree, running - self._running))
            for job in started:
                self._waits.labels(job.partition, job.account).observe(job.wait)
            if started:
                self._keep_waits(wait_shares(started))
        self._running = running

    def _started(self, snapshot: Snapshot, tree: AccountTree, numbers: frozenset[int]) -> Iterator[StartedJob]:
        for number in numbers:
            job = snapshot.jobs[number]
            if job.start is None:
                continue
            # A partition that Slurm does not list is no name that a site has given.
            partition = self._partitions.bounded(job.partition if job.partition in snapshot.partitions else "")
            account = self._accounts.bounded(tree.leaf(job.account).name)
            wait = job.start - max(job.submit, job.eligible or job.submit)
            yield StartedJob(job.start, partition, account, max(0.0, wait))
