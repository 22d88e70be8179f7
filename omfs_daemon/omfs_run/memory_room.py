"""How much more memory the processes of a job may use on this node."""

import os
from typing import Iterator, List, Mapping, Tuple

_MB = 1 << 20
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")


def memory_room(environment: Mapping[str, str], used: int, proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int:
    """Bytes: the least of what the node has available, cgroups of ours permit, and Slurm has allotted to the job.

    used: bytes that the job's processes use now. Where nothing tells a limit, it does not count.
    """
    rooms = [_available(proc)]
    rooms += [limit - usage for limit, usage in _groups(proc, groups)]
    allotted = _allotted(environment)
    if allotted:
        rooms.append(allotted - used)
    return max(0, min(rooms))


def _available(proc: str) -> int:
    with open(os.path.join(proc, "meminfo")) as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))


def _allotted(environment: Mapping[str, str]) -> int:
    """What Slurm has allotted on this node; 0 where it counts no memory (or gave all, which it tells as 0)."""
    whole = environment.get("SLURM_MEM_PER_NODE", "")
    if whole.isdigit():
        return int(whole) * _MB
    each, cpus = environment.get("SLURM_MEM_PER_CPU", ""), environment.get("SLURM_CPUS_ON_NODE", "")
    return int(each) * int(cpus) * _MB if each.isdigit() and cpus.isdigit() else 0


def _groups(proc: str, groups: str) -> Iterator[Tuple[int, int]]:
    """Limit and use of each memory cgroup above us. Files that the kernel can drop are not used."""
    try:
        with open(os.path.join(proc, "self", "cgroup")) as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if not controllers:
            yield from _above(groups, path, _V2)
        elif "memory" in controllers.split(","):
            yield from _above(os.path.join(groups, "memory"), path, _V1)


def _above(root: str, path: str, names: Tuple[str, str, str]) -> Iterator[Tuple[int, int]]:
    parts: List[str] = [part for part in path.split("/") if part]
    for count in range(len(parts) + 1):
        directory = os.path.join(root, *parts[:count])
        limit = _number(os.path.join(directory, names[0]))
        usage = _number(os.path.join(directory, names[1]))
        if limit >= 0 and usage >= 0:
            yield limit, usage - _droppable(directory, names[2])


def _number(path: str) -> int:
    """-1 if there is none: no such file, or ``max``."""
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return -1


def _droppable(directory: str, name: str) -> int:
    try:
        with open(os.path.join(directory, "memory.stat")) as file:
            return next((int(line.split()[1]) for line in file if line.startswith(name + " ")), 0)
    except OSError:
        return 0
