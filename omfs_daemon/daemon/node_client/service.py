"""The daemon's access to its nodes, from the configuration: work queue and probes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from omfs_daemon.cluster.snapshot import NodeObservations, NodeRoom
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.node_client.node_answers import Held, MethodFacts
from omfs_daemon.daemon.node_client.probes import Probed, ProbedNode, Probes
from omfs_daemon.daemon.node_client.transport import Local, Transport
from omfs_daemon.daemon.node_client.work_queue import NodeWorkQueue, NoNodeWorkQueue, ThreadedWorkQueue
from omfs_daemon.preemption.methods.base import PreemptMethod
from omfs_daemon.preemption.methods.swap_out import VE_SWAP

_WORKERS = 32
"""Jobs moved at the same time: one user's slow ones must not delay others."""


class NodeService(NamedTuple):
    """``facts``: the latest, for the policy; ``probed``: the same in detail, for views; ``close`` ends all threads."""

    work_queue: NodeWorkQueue
    facts: Callable[[], NodeObservations]
    close: Callable[[], None]
    probed: Callable[[], Probed] = Probed


def transport(config: Config) -> Transport | None:
    """None where no worker is configured. ConfigError if the command cannot be used."""
    nodes = config.nodes
    if nodes.worker == "none":
        return None
    if nodes.worker == "local":
        return Local(nodes.command, nodes.fanout)
    # Imported here: ClusterShell's workers are slow to import, and most sites have no node-level methods.
    from omfs_daemon.daemon.node_client.remote_transport import Remote

    return Remote(nodes.command, worker=nodes.worker, fanout=nodes.fanout)


def slurm_on_nodes(config: Config) -> dict[str, str]:
    """What omfs-node must know of Slurm besides what it finds itself."""
    return {} if config.slurm.conf is None else {"conf": str(config.slurm.conf)}


def options(config: Config, methods: Mapping[str, PreemptMethod]) -> dict[str, dict[str, object]]:
    """The options of each node-level method that a class names."""
    named = {
        name for section in config.classes for name in (methods if section.methods is None else section.methods)
    } or set(methods)
    on_nodes = [name for name in named if name in methods and methods[name].traits.on_nodes]
    return {name: dict(config.methods[name].options) if name in config.methods else {} for name in sorted(on_nodes)}


def open_nodes(
    connection: Transport | None,
    config: Config,
    methods: Mapping[str, PreemptMethod],
    wake: Callable[[], None],
    nodes: Callable[[], Sequence[str]],
) -> NodeService:
    """``nodes`` returns the names of nodes that are up; called in another thread. The configuration is read once.

    ``connection``: None where no worker is configured.
    """
    if connection is None:
        return NodeService(NoNodeWorkQueue(), NodeObservations, lambda: None)
    work_queue = ThreadedWorkQueue(connection, time.time, wake, _WORKERS)
    interval, probed_methods = config.nodes.probe_seconds, options(config, methods)
    probes = Probes(connection, time.monotonic, interval, nodes, probed_methods, slurm_on_nodes(config))

    def close() -> None:
        probes.close()
        work_queue.close()

    def probed() -> Probed:
        return Probed(frozenset(probed_methods), probes.facts(), probes.unseen())

    return NodeService(work_queue, lambda: facts(probes.facts()), close, probed)


def facts(found: Mapping[str, ProbedNode]) -> NodeObservations:
    """Probes in the policy's terms. A job's size is that of its largest part on one node."""
    rooms = {
        node: NodeRoom({name: _room(method) for name, method in probed.methods.items() if method.usable})
        for node, probed in found.items()
    }
    sizes: dict[tuple[int, str], int] = {}
    for probed in found.values():
        for job, held in probed.jobs.items():
            for name in probed.methods:
                sizes[job, name] = max(sizes.get((job, name), 0), _held(held, name))
    return NodeObservations(rooms, sizes)


def _room(method: MethodFacts) -> int:
    """The least of several vector engines: the job may be on that one."""
    return min((ve.swap_free for ve in method.ves), default=method.free)


def _held(held: Held, method: str) -> int:
    return held.ve if method == VE_SWAP.traits.name else held.resident
