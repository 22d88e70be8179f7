"""The two heads of the container cluster: one that hangs, a shared directory that is read-only, another version."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from omfs_daemon.slurm.commands.parse_ping import active_controller
from tests.support.container_cluster import BACKUP, NETWORK, PRIMARY, PROJECT, SHARED, ContainerCluster, docker
from tests.support.waiting import LIMIT, wait_until

_ADDRESSES = {PRIMARY: f"{NETWORK}.13", BACKUP: f"{NETWORK}.14"}
_NEXT = "/opt/omfs-next"
_SOURCE = "/opt/omfs-source"
_KEPT = "/opt/omfs-kept"


def log_of(cluster: ContainerCluster, host: str) -> str:
    return cluster.bash(f"docker logs {cluster.container(host)} 2>&1")


@contextmanager
def hanging(cluster: ContainerCluster, host: str) -> Iterator[None]:
    """The host's programs stand still, and its kernel answers nobody, as that of a machine that hangs: a paused
    container still takes connections, and Slurm's commands then wait there in vain and never ask the backup.

    In the end all goes on there but slurmctld, which starts anew. One that went on would write its old state over what
    the backup has saved since.
    """
    container = cluster.container(host)
    (slurmctld,) = _host_pids(container, "slurmctld")
    cluster.pause(host)
    docker("network", "disconnect", f"{PROJECT}_cluster", container)
    try:
        yield
    finally:
        os.kill(slurmctld, signal.SIGKILL)
        docker("network", "connect", "--ip", _ADDRESSES[host], f"{PROJECT}_cluster", container)
        cluster.compose("unpause", host)


def _host_pids(container: str, name: str) -> list[int]:
    """Of the programs of this name in a container, as the machine numbers them."""
    rows = [line.split() for line in docker("top", container, "-eo", "pid,comm").splitlines()[1:]]
    return [int(pid) for pid, found in rows if found == name]


@contextmanager
def read_only(cluster: ContainerCluster, host: str) -> Iterator[None]:
    """The shared directory cannot be written on this host."""
    pid = docker("inspect", "--format", "{{.State.Pid}}", cluster.container(host)).strip()
    _in_mounts_of(pid, f"mount --bind {SHARED} {SHARED} && mount -o remount,bind,ro {SHARED}")
    try:
        yield
    finally:
        _in_mounts_of(pid, f"umount {SHARED}")


def _in_mounts_of(pid: str, script: str) -> None:
    subprocess.run(["nsenter", "--target", pid, "--mount", "sh", "-c", script], check=True, timeout=LIMIT)


def controller_is_on(cluster: ContainerCluster, host: str) -> bool:
    """Whether the active slurmctld is there."""
    return active_controller(cluster.on("client", "timeout", "10", "scontrol", "ping", check=False)) == host


def restart_omfsd(cluster: ContainerCluster, host: str) -> None:
    """As a service manager does."""
    before = cluster.pid("omfsd", host)
    cluster.shell(host, f"kill -TERM {before}")
    wait_until(lambda: cluster.pid("omfsd", host) != before, f"omfsd on {host} to be started again")


def lay_out_next(cluster: ContainerCluster, host: str, version: str) -> str:
    """Unpack another version beside the one that runs; what it says of the files."""
    number = f"sed -i 's/^__version__ = .*/__version__ = \"{version}\"/' {_NEXT}/omfs_daemon/__init__.py"
    cluster.shell(host, f"cp -a {_SOURCE} {_NEXT} && {number}")
    return cluster.shell(host, f"PYTHONPATH={_NEXT} omfsd --check-state")


def install_next(cluster: ContainerCluster, host: str) -> None:
    cluster.shell(host, f"mv {_SOURCE} {_KEPT} && mv {_NEXT} {_SOURCE}")
    restart_omfsd(cluster, host)


def reinstall_kept(cluster: ContainerCluster, host: str) -> None:
    """The way back, whatever has been done."""
    kept = cluster.shell(
        host, f"rm -rf {_NEXT}; test -e {_KEPT} && rm -rf {_SOURCE} && mv {_KEPT} {_SOURCE}; ls {_SOURCE}"
    )
    assert kept
    restart_omfsd(cluster, host)
