"""What plans are made from: snapshots with what was learned, and their arrays, kept from poll to poll."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.learning.victim_predictions import Remaining
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.preemption.doubts import DoubtedNodes
from omfs_daemon.preemption.preemptor_backoffs import NodeDoubt


class PlanInput:
    """For one kind of poll; ``remaining``: how long running jobs will run still, as predicted."""

    def __init__(self, remaining: Remaining) -> None:
        self._remaining = remaining
        self._doubted_nodes = DoubtedNodes()
        self._arrays: SnapshotArrays | None = None

    def of(self, snapshot: Snapshot, doubts: Mapping[str, NodeDoubt], now: float) -> tuple[Snapshot, SnapshotArrays]:
        """The snapshot without the nodes that are doubted for a job, and its arrays."""
        snapshot = self._doubted_nodes.avoided(replace(snapshot, remaining=self._remaining(snapshot)), doubts, now)
        self._arrays = SnapshotArrays(snapshot, self._arrays)
        return snapshot, self._arrays
