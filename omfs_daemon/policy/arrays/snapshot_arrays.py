"""A snapshot laid out in arrays, for planner and gate alike."""

from __future__ import annotations

from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.policy.arrays.job_arrays import Crowd
from omfs_daemon.policy.arrays.node_arrays import Machine


class Scene:
    """``machine``: the nodes; ``crowd``: the jobs; ``taken``, ``facts`` and ``sizes``: the snapshot's own.

    Made from the scene ``before``, it costs only what has changed since: nodes and jobs that are the very same objects
    are not looked at again. Scenes in a row belong to one thread.
    """

    def __init__(self, snapshot: Snapshot, before: Scene | None = None) -> None:
        self.taken, self.facts, self.sizes = snapshot.taken, snapshot.facts, snapshot.sizes
        same = before is not None and before.machine.is_of(snapshot.nodes, snapshot.partitions)
        self.machine: Machine = before.machine if before and same else Machine(snapshot.nodes, snapshot.partitions)
        # Once most patterns have no jobs any more, it is time to begin anew.
        keeps = before is not None and len(before.crowd.patterns.first) <= 2 * len(snapshot.jobs)
        self.crowd: Crowd = Crowd(snapshot.jobs, before.crowd if before and keeps else None)
