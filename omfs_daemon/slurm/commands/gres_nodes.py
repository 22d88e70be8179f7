"""On how many nodes the generic resources are that a job asks for by job or by task (sbatch(1), --gpus and
--gpus-per-task).

Of a job that waits Slurm shows the nodes that its CPUs take, but not those that its GPUs do. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import ceil
from typing import NamedTuple

from omfs_daemon.cluster.nodes import Node
from omfs_daemon.slurm.commands.values import MOST_COUNT


class NodeSize(NamedTuple):
    """What a node has, which others may have, too; ``gres`` by name, as ``gpu:a100`` and as ``gpu``."""

    cpus: int
    gres: tuple[tuple[str, int], ...]


def node_sizes(nodes: Iterable[Node]) -> dict[str, tuple[NodeSize, ...]]:
    """By partition, the sizes of its nodes that have generic resources."""
    found = defaultdict[str, dict[NodeSize, None]](dict)
    for node in nodes:
        if node.gres:
            for partition in node.partitions:
                found[partition][NodeSize(node.cpus, node.gres)] = None
    return {name: tuple(sizes) for name, sizes in found.items()}


class SpreadGres(NamedTuple):
    """What may be spread over nodes: so many of each name in all (``by_job``) and of each task (``by_task``).

    ``cpus_each``: CPUs that come with one of each name (--cpus-per-gpu).
    """

    by_job: Mapping[str, int]
    by_task: Mapping[str, int]
    tasks: int = 1
    cpus_per_task: int = 1
    cpus_each: Mapping[str, int] = {}

    def least_nodes(self, sizes: Iterable[NodeSize]) -> int:
        """The least number of empty nodes of one size that hold it; 1 if no size does, for then something else is wrong
        with it, and if there is nothing to spread."""
        if not self.by_job and not self.by_task:
            return 1
        return min((count for size in sizes if (count := self._nodes_of(size))), default=1)

    def of_each(self, nodes: int) -> dict[str, int]:
        """By name, the most on any node if it is spread evenly over so many."""
        by_task = {name: min(count * ceil(self.tasks / nodes), MOST_COUNT) for name, count in self.by_task.items()}
        return by_task | {name: ceil(count / nodes) for name, count in self.by_job.items()}

    def _nodes_of(self, size: NodeSize) -> int:
        """0: one of them is too small for anything."""
        has, least = dict(size.gres), 1
        for name, count in self.by_job.items():
            fit = min(has.get(name, 0), self._fit(size.cpus, name, 1, 0))
            if not fit:
                return 0
            least = max(least, ceil(count / fit))
        for name, count in self.by_task.items():
            fit = min(has.get(name, 0) // max(1, count), self._fit(size.cpus, name, count, self.cpus_per_task))
            if not fit:
                return 0
            least = max(least, ceil(self.tasks / fit))
        return least

    def _fit(self, cpus: int, name: str, count: int, at_least: int) -> int:
        """How often so many of a name fit with their CPUs."""
        return cpus // max(1, at_least, count * self.cpus_each.get(name, 0))
