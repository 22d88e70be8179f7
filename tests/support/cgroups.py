"""Jobs in cgroups: Slurm's own groups below version 1 of cgroups, where this machine lets root make them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
CGROUP_CONF = f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={MOUNT}\nConstrainRAMSpace=yes\nConstrainSwapSpace=no\n"
WITHOUT = f"tests of jobs in cgroups are left out: root can make no groups in {MOUNT}/freezer and {MOUNT}/memory"

_HIERARCHIES = ("freezer", "memory")


def can_be_made() -> bool:
    """As root; version 2 alone needs systemd, which the machines of these tests do not run."""
    probe = "omfs-probe"
    try:
        for hierarchy in _HIERARCHIES:
            (MOUNT / hierarchy / probe).mkdir(exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # another worker asks, too
                (MOUNT / hierarchy / probe).rmdir()
    except OSError:
        return False
    return True


def groups_of(pid: int) -> dict[str, str]:
    """The group of a process by hierarchy."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return {hierarchy: group for _, hierarchy, group in (line.split(":", 2) for line in lines)}


def memory_limit(group: str) -> int:
    """Bytes: the least limit from this group of the memory hierarchy up to Slurm's own."""
    parts = Path(group.lstrip("/")).parts
    paths = [MOUNT.joinpath("memory", *parts[:depth]) for depth in range(1, len(parts) + 1)]
    return min(int((path / "memory.limit_in_bytes").read_text()) for path in paths)


def remove_groups(nodes: Iterable[str]) -> None:
    """Those that the slurmd of these nodes have left."""
    for path in _left_by(nodes):
        with contextlib.suppress(OSError):
            path.rmdir()


def _left_by(nodes: Iterable[str]) -> Iterator[Path]:
    for node in nodes:
        for top in MOUNT.glob(f"*/slurm_{node}"):
            yield from sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True)
            yield top
