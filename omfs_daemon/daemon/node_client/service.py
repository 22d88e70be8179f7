"""The daemon's way to its nodes, as the configuration has it: a desk for work, and probes of what nodes can."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from omfs_daemon.cluster.preempt_methods import VE_SWAP
from omfs_daemon.cluster.snapshot import NodeFacts
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.node_client.work_queue import NodeWorkQueue as Desk
from omfs_daemon.daemon.node_client.work_queue import NoDesk
from omfs_daemon.daemon.node_client.probes import Probed
from omfs_daemon.cluster.snapshot import Facts
from omfs_daemon.preemption.methods.base import StopMethod
from omfs_daemon.daemon.node_client import work_queue as desk
from omfs_daemon.daemon.node_client import probes
from omfs_daemon.daemon.node_client.node_answers import Held
from omfs_daemon.daemon.node_client.node_answers import MethodFacts
from omfs_daemon.daemon.node_client.transport import Local
from omfs_daemon.daemon.node_client.transport import Remote
from omfs_daemon.daemon.node_client.transport import Transport

_WORKERS = 32
"""Jobs that are moved at the same time: a user's slow ones must not keep others' waiting."""


class NodeService(NamedTuple):
    """``facts``: the newest that the probes have found; ``probed``: the same as nodes told it, for people; ``close``
    ends all threads."""

    desk: Desk
    facts: Callable[[], Facts]
    close: Callable[[], None]
    probed: Callable[[], Probed] = Probed


def transport(config: Config) -> Transport | None:
    """None where no way is configured. ConfigError if the command is none that can be used."""
    nodes = config.nodes
    if nodes.worker == "none":
        return None
    if nodes.worker == "local":
        return Local(nodes.command, nodes.fanout)
    return Remote(nodes.command, worker=nodes.worker, fanout=nodes.fanout)


def slurm_on_nodes(config: Config) -> dict[str, str]:
    """What omfs-node must know of Slurm besides what it finds by itself."""
    return {} if config.slurm.conf is None else {"conf": str(config.slurm.conf)}


def options(config: Config, methods: Mapping[str, StopMethod]) -> dict[str, dict[str, object]]:
    """Of each method of the classes that works on nodes."""
    named = {name for section in config.classes for name in section.methods} or set(methods)
    on_nodes = [name for name in named if name in methods and methods[name].traits.on_nodes]
    return {name: dict(config.methods[name].options) if name in config.methods else {} for name in sorted(on_nodes)}


def open_nodes(
    config: Config, methods: Mapping[str, StopMethod], wake: Callable[[], None], nodes: Callable[[], Sequence[str]]
) -> NodeService:
    """``nodes``: the names of those that are up, called in another thread. What it goes by is read once."""
    way = transport(config)
    if way is None:
        return NodeService(NoDesk(), Facts, lambda: None)
    working = desk.Desk(way, time.time, wake, _WORKERS)
    every, asked = config.nodes.probe_seconds, options(config, methods)
    looking = probes.Probes(way, time.monotonic, every, nodes, asked, slurm_on_nodes(config))

    def close() -> None:
        looking.close()
        working.close()

    def probed() -> Probed:
        return Probed(frozenset(asked), looking.facts(), looking.unseen())

    return NodeService(working, lambda: facts(looking.facts()), close, probed)


def facts(found: Mapping[str, probes.NodeFacts]) -> Facts:
    """Probes in the policy's terms. A job's size is that of its largest part on one node."""
    rooms = {
        node: NodeFacts({name: _room(method) for name, method in seen.methods.items() if method.usable})
        for node, seen in found.items()
    }
    sizes: dict[tuple[int, str], int] = {}
    for seen in found.values():
        for job, held in seen.jobs.items():
            for name in seen.methods:
                sizes[job, name] = max(sizes.get((job, name), 0), _held(held, name))
    return Facts(rooms, sizes)


def _room(method: MethodFacts) -> int:
    """Of several vector engines the one with the least: it may be the one that the job is on."""
    return min((ve.swap_free for ve in method.ves), default=method.free)


def _held(held: Held, method: str) -> int:
    return held.ve if method == VE_SWAP.name else held.resident
