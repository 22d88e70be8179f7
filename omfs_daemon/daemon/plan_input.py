"""What plans are made from: snapshots with what was learned, and their arrays, kept from poll to poll."""

from __future__ import annotations

from collections.abc import Mapping

from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.preemption.doubts import DoubtedNodes
from omfs_daemon.preemption.preemptor_backoffs import NodeDoubt


class PlanInput:
    """For one kind of poll."""

    def __init__(self) -> None:
        self._doubted_nodes = DoubtedNodes()
        self._arrays: SnapshotArrays | None = None

    def of(self, snapshot: Snapshot, doubts: Mapping[str, NodeDoubt], now: float) -> tuple[Snapshot, SnapshotArrays]:
        """The snapshot without the nodes that are doubted for a job, and its arrays."""
        snapshot = self._doubted_nodes.avoided(snapshot, doubts, now)
        self._arrays = SnapshotArrays(snapshot, self._arrays)
        return snapshot, self._arrays
