"""What of a site decides how a job's request is read, beside its row: sizes of nodes, and defaults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.gres_nodes import NodeSize
from omfs_daemon.slurm.gateway import SlurmSettings

_SITE = ""  # for what slurm.conf says for all partitions


@dataclass(frozen=True)
class SiteSizes:
    """``memory_counts``: Slurm allocates memory (SelectTypeParameters with MEMORY). ``cpus_per_gpu``: DefCpuPerGPU by
    partition, "" for all. ``node_sizes``: by partition, those of nodes that have generic resources."""

    memory_counts: bool = True
    cpus_per_gpu: Mapping[str, int] = field(default_factory=dict)
    node_sizes: Mapping[str, tuple[NodeSize, ...]] = field(default_factory=dict)

    def default_cpus_per_gpu(self, partitions: Iterable[str]) -> int:
        """Of a job that names none itself; which of its partitions counts is not known before it starts."""
        of_all = self.cpus_per_gpu.get(_SITE, 0)
        return max((self.cpus_per_gpu.get(name, 0) or of_all for name in partitions), default=of_all)

    def sizes_in(self, partitions: Iterable[str]) -> list[NodeSize]:
        return [size for name in partitions for size in self.node_sizes.get(name, ())]


class KnownSizes:
    """The sizes as of the latest answers; the same object while nothing changes."""

    def __init__(self) -> None:
        self.sizes = SiteSizes()

    def note_settings(self, settings: SlurmSettings) -> None:
        counts = "MEMORY" in settings.values.get("SelectTypeParameters", "").upper()
        of_all = {_SITE: values.default_cpus_per_gpu(settings.values.get("JobDefaults", ""))}
        self._note(replace(self.sizes, memory_counts=counts, cpus_per_gpu={**self.sizes.cpus_per_gpu, **of_all}))

    def note_partitions(self, partitions: Iterable[Partition]) -> None:
        of_all = {_SITE: self.sizes.cpus_per_gpu.get(_SITE, 0)}
        self._note(replace(self.sizes, cpus_per_gpu={one.name: one.cpus_per_gpu for one in partitions} | of_all))

    def note_nodes(self, nodes: Iterable[Node]) -> None:
        """All nodes of the cluster."""
        found = defaultdict[str, dict[NodeSize, None]](dict)
        for node in nodes:
            if node.gres:
                for partition in node.partitions:
                    found[partition][NodeSize(node.cpus, node.gres)] = None
        self._note(replace(self.sizes, node_sizes={name: tuple(sizes) for name, sizes in found.items()}))

    def _note(self, sizes: SiteSizes) -> None:
        if sizes != self.sizes:
            self.sizes = sizes
