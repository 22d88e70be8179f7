"""Faults of a cluster of several hosts: each begins, is noticed, and ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.container_cluster import NETWORK, NODES, PROJECT, SHARED, TOLERANT, ContainerCluster, docker
from tests.support.waiting import wait_until

_ADDRESSES = {name: f"{NETWORK}.{number}" for number, name in enumerate(NODES, start=21)}


@dataclass(frozen=True)
class Fault:
    """``begin`` and ``end`` on a node (for those of the head: any); ``noticed``: when the fault has lasted long enough,
    None: at once."""

    begin: Callable[[ContainerCluster, str], object]
    end: Callable[[ContainerCluster, str], object]
    noticed: Callable[[ContainerCluster, str], bool] | None = None


def _node_is_away(cluster: ContainerCluster, node: str) -> bool:
    state = cluster.node_state(node)
    return state.endswith("*") or state.startswith("down")


def _kill_node(cluster: ContainerCluster, node: str) -> None:
    cluster.compose("kill", node)


def _start_node(cluster: ContainerCluster, node: str) -> None:
    cluster.compose("start", node)


def _cut_off(_: ContainerCluster, node: str) -> None:
    docker("network", "disconnect", f"{PROJECT}_cluster", f"{PROJECT}-{node}-1")


def _connect(_: ContainerCluster, node: str) -> None:
    docker("network", "connect", "--ip", _ADDRESSES[node], f"{PROJECT}_cluster", f"{PROJECT}-{node}-1")


def _omfsd_is_blind(cluster: ContainerCluster, _: str) -> bool:
    status = cluster.omfs("status")
    return bool(status) and (status["last_error"] is not None or not status["pair"]["active"])


def _fill_state_directory(cluster: ContainerCluster, _: str) -> None:
    cluster.shell(
        "head", f"for place in /var/lib/omfs {SHARED}; do cat /dev/zero >$place/filler; done; true", check=False
    )


def _empty_state_directory(cluster: ContainerCluster, _: str) -> None:
    cluster.shell("head", f"rm -f /var/lib/omfs/filler {SHARED}/filler")


def _move_clock(cluster: ContainerCluster, _: str) -> None:
    """omfsd is killed, and comes back with a clock that is a minute ahead."""
    library = cluster.shell("head", "echo /usr/lib/*/faketime/libfaketimeMT.so.1").strip()
    text = f"LD_PRELOAD={library}\\nFAKETIME=+60s\\nFAKETIME_DONT_FAKE_MONOTONIC=1\\n"
    cluster.shell("head", f"printf '{text}' >/run/cluster/omfsd.env")
    cluster.stop_service("omfsd")
    cluster.start_service("omfsd")


def _put_clock_right(cluster: ContainerCluster, _: str) -> None:
    cluster.shell("head", "rm -f /run/cluster/omfsd.env")
    cluster.stop_service("omfsd")
    cluster.start_service("omfsd")


def _cannot_write(cluster: ContainerCluster, node: str) -> bool:
    return _omfsd_is_blind(cluster, node) or _urgent_has_started(cluster, node)


def _urgent_has_started(cluster: ContainerCluster, _: str) -> bool:
    """Accounting is no part of a preemption."""
    return cluster.on("head", "squeue", "-h", "--name=urgent", "--states=PD", check=False) == ""


def _polls(cluster: ContainerCluster, _: str) -> bool:
    return cluster.polls()


FAULTS = {
    "node killed": Fault(_kill_node, _start_node, _node_is_away),
    "node paused": Fault(
        lambda cluster, node: cluster.pause(node),
        lambda cluster, node: cluster.compose("unpause", node),
        _node_is_away,
    ),
    "node cut off": Fault(_cut_off, _connect, _node_is_away),
    "slurmctld killed": Fault(
        lambda cluster, _: cluster.stop_service("slurmctld"),
        lambda cluster, _: cluster.start_service("slurmctld"),
        _omfsd_is_blind,
    ),
    "slurmdbd away": Fault(
        lambda cluster, _: cluster.compose("kill", "slurmdbd"),
        lambda cluster, _: cluster.compose("start", "slurmdbd"),
        _urgent_has_started,
    ),
    "MariaDB away": Fault(
        lambda cluster, _: cluster.pause("mariadb"),
        lambda cluster, _: cluster.compose("unpause", "mariadb"),
        _urgent_has_started,
    ),
    "state directory full": Fault(_fill_state_directory, _empty_state_directory, _cannot_write),
    "clock off by a minute": Fault(_move_clock, _put_clock_right, _polls),
    "omfsd killed": Fault(
        lambda cluster, _: cluster.stop_service("omfsd"), lambda cluster, _: cluster.start_service("omfsd")
    ),
}


def last(fault: Fault, cluster: ContainerCluster, node: str) -> None:
    """Wait until the fault, which has begun, has been noticed."""
    if fault.noticed is not None:
        noticed = fault.noticed
        wait_until(lambda: noticed(cluster, node), "the fault to be noticed", TOLERANT)
