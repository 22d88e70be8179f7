"""What nodes have room for, and node licenses. Nodes are summed up: a large cluster has thousands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry

from omfs_daemon.cluster.snapshot import NodeRoom
from omfs_daemon.daemon.metric_groups.label_values import GaugeByLabel
from omfs_daemon.slurm.node_licenses import LicenseCount


class NodeMetrics:
    """``method``: pageout, ve_swap; ``license``: kind and name of a ``[[node_license]]``, such as devices/ve."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, label: str) -> GaugeByLabel:
            return GaugeByLabel(name, text, label, registry)

        self._nodes = gauge("nodes_usable", "Nodes on which the method works", "method")
        self._room = gauge("nodes_room_bytes", "Memory that all nodes together can still move out", "method")
        self._least = gauge("node_room_min_bytes", "Memory that the fullest node can still move out", "method")
        self._total = gauge("node_licenses", "Node licenses that exist", "license")
        self._used = gauge("node_licenses_used", "Node licenses that jobs hold", "license")
        self._overdrawn = gauge("node_licenses_overdrawn", "Node licenses that jobs hold beyond what exists", "license")

    def observe(self, facts: Mapping[str, NodeRoom], licenses: Iterable[LicenseCount]) -> None:
        rooms: dict[str, list[int]] = {}
        for fact in facts.values():
            for method, room in fact.room.items():
                rooms.setdefault(method, []).append(room)
        self._nodes.replace({method: len(found) for method, found in rooms.items()})
        self._room.replace({method: sum(found) for method, found in rooms.items()})
        self._least.replace({method: min(found) for method, found in rooms.items()})
        counts = list(licenses)
        self._total.replace({count.resource: count.total for count in counts})
        self._used.replace({count.resource: count.used for count in counts})
        self._overdrawn.replace({count.resource: count.overdrawn for count in counts})
