"""What of a site decides how a job's request is read, beside its row: sizes of nodes, and defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.gres_nodes import NodeSize, node_sizes
from omfs_daemon.slurm.gateway import SlurmSettings


@dataclass(frozen=True)
class SiteSizes:
    """``memory_counts``: Slurm allocates memory (SelectTypeParameters with MEMORY). ``cpus_per_gpu``: DefCpuPerGPU of
    slurm.conf; ``by_partition``: those of partitions that have their own. ``node_sizes``: as of ``node_sizes``."""

    memory_counts: bool = True
    cpus_per_gpu: int = 0
    by_partition: Mapping[str, int] = field(default_factory=dict)
    node_sizes: Mapping[str, tuple[NodeSize, ...]] = field(default_factory=dict)

    def default_cpus_per_gpu(self, partitions: Iterable[str]) -> int:
        """Of a job that names none itself; which of its partitions counts is not known before it starts."""
        return max((self.by_partition.get(name, self.cpus_per_gpu) for name in partitions), default=self.cpus_per_gpu)

    def sizes_in(self, partitions: Iterable[str]) -> list[NodeSize]:
        return [size for name in partitions for size in self.node_sizes.get(name, ())]


class KnownSizes:
    """The sizes as of the latest answers; the same object while nothing changes."""

    def __init__(self) -> None:
        self.sizes = SiteSizes()

    def note_settings(self, settings: SlurmSettings) -> None:
        counts = "MEMORY" in settings.values.get("SelectTypeParameters", "").upper()
        cpus = values.default_cpus_per_gpu(settings.values.get("JobDefaults", ""))
        self._note(replace(self.sizes, memory_counts=counts, cpus_per_gpu=cpus))

    def note_partitions(self, partitions: Iterable[Partition]) -> None:
        own = {one.name: one.cpus_per_gpu for one in partitions if one.cpus_per_gpu}
        self._note(replace(self.sizes, by_partition=own))

    def note_nodes(self, nodes: Iterable[Node]) -> None:
        """All nodes of the cluster."""
        self._note(replace(self.sizes, node_sizes=node_sizes(nodes)))

    def _note(self, sizes: SiteSizes) -> None:
        if sizes != self.sizes:
            self.sizes = sizes
