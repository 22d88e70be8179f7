"""Reclaim by the memory cgroup, for pages that processes share since a fork: MADV_PAGEOUT leaves those alone.

Only cgroups in which nobody but these processes is are told: Slurm's task/cgroup makes such a one per job and step.
cgroup v2: memory.reclaim (Linux 5.19); v1: memory.force_empty. Source: cgroup-v2.rst, cgroup-v1/memory.rst.
"""

import errno
import os
import threading
import time
from typing import Iterator, List, Sequence, Set, Tuple

_PIECE = 256 * 1024 * 1024
_DEPTH = 16


def reclaim(pids: Sequence[int], size: int, deadline: float, mounts: str = "/proc/mounts", proc: str = "/proc") -> None:
    """Have the processes' own cgroups give up ``size`` bytes. Whether it helped is for the caller to look at."""
    for control, is_v2 in own_cgroups(pids, mounts, proc):
        # The write may take long and can be left only by dying; then it ends with this program.
        target, arguments = (_reclaim_v2, (control, size, deadline)) if is_v2 else (_empty_v1, (control,))
        worker = threading.Thread(target=target, args=arguments, daemon=True)
        worker.start()
        worker.join(max(0.0, deadline - time.monotonic()))


def own_cgroups(pids: Sequence[int], mounts: str = "/proc/mounts", proc: str = "/proc") -> List[Tuple[str, bool]]:
    """The control files of the topmost cgroups that hold only these processes, and whether each is of version 2."""
    ours: Set[int] = set(pids)
    found: List[Tuple[str, bool]] = []
    roots = list(_roots(mounts))
    for pid in pids:
        for root, is_v2 in roots:
            control = "memory.reclaim" if is_v2 else "memory.force_empty"
            top = _topmost(root, _path(pid, is_v2, proc), ours)
            entry = (os.path.join(top, control), is_v2)
            if top and entry not in found and os.path.exists(entry[0]):
                found.append(entry)
    return found


def _topmost(root: str, path: str, ours: Set[int]) -> str:
    top = ""
    for _ in range(_DEPTH):
        if path in ("", "/") or ".." in path.split("/"):
            break
        members = _members(root + path)
        if not members or not members <= ours:
            break
        top, path = root + path, os.path.dirname(path)
    return top


def _members(directory: str) -> Set[int]:
    """All processes in a cgroup and those below it."""
    found: Set[int] = set()
    for place, _, _ in os.walk(directory):
        try:
            with open(os.path.join(place, "cgroup.procs"), "rb") as stream:
                found.update(int(line) for line in stream)
        except (OSError, ValueError):
            return set()
    return found


def _path(pid: int, is_v2: bool, proc: str) -> str:
    try:
        with open("{}/{}/cgroup".format(proc, pid), "rb") as stream:
            entries = [line.rstrip(b"\n").split(b":", 2) for line in stream]
    except OSError:
        return ""
    for number, controllers, path in entries:
        if (is_v2 and number == b"0" and not controllers) or (not is_v2 and b"memory" in controllers.split(b",")):
            return os.fsdecode(path)
    return ""


def _roots(mounts: str) -> Iterator[Tuple[str, bool]]:
    try:
        with open(mounts, "rb") as stream:
            lines = [os.fsdecode(line).split() for line in stream]
    except OSError:
        return
    for words in lines:
        if len(words) > 3 and words[2] == "cgroup2":
            yield words[1], True
        elif len(words) > 3 and words[2] == "cgroup" and "memory" in words[3].split(","):
            yield words[1], False


def _reclaim_v2(control: str, size: int, deadline: float) -> None:
    while size > 0 and time.monotonic() < deadline:
        piece = min(size, _PIECE)
        try:
            _write(control, str(piece))
        except OSError as error:
            if error.errno != errno.EINTR:
                return  # EAGAIN: not all of the piece could be had
        size -= piece


def _empty_v1(control: str) -> None:
    try:
        _write(control, "0")
    except OSError:
        return


def _write(path: str, text: str) -> None:
    with open(path, "w") as stream:
        stream.write(text)
