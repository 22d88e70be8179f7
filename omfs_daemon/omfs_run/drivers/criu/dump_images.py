"""CRIU's image files and logs: is a set of images complete, is it on disk, and what was CRIU's trouble."""

import os
import re
import stat
from typing import Dict, List, NamedTuple


class Incomplete(Exception):
    """The images cannot be what was dumped; the text says why."""


class Trouble(NamedTuple):
    """Why CRIU failed: a code of the job's comment, and its own words."""

    why: str
    words: str


def needed(tasks: Dict[int, List[int]]) -> List[str]:
    """The files without which a tree of processes (pid: thread numbers) cannot come back."""
    names = ["inventory.img", "pstree.img", "files.img"]
    for pid in sorted(tasks):
        names += ["mm-%d.img" % pid, "pagemap-%d.img" % pid, "fs-%d.img" % pid]
        names += ["core-%d.img" % thread for thread in sorted(tasks[pid])]
    return names


def verify(directory: str, tasks: Dict[int, List[int]]) -> List[str]:
    """All files of a complete dump of these processes (pid: thread numbers); raises Incomplete."""
    files = sorted(os.listdir(directory))
    for name in files:
        info = os.lstat(os.path.join(directory, name))
        if not stat.S_ISREG(info.st_mode):
            raise Incomplete("%s is not a file" % name)
    for name in needed(tasks):
        if name not in files:
            raise Incomplete("%s is missing" % name)
        if os.path.getsize(os.path.join(directory, name)) == 0:
            raise Incomplete("%s is empty" % name)
    return files


def to_disk(directory: str, files: List[str]) -> int:
    """Bring the files and the directory to disk; the bytes they have. Raises OSError."""
    size = 0
    for name in [*files, ""]:
        descriptor = os.open(os.path.join(directory, name), os.O_RDONLY | os.O_NOFOLLOW)
        try:
            os.fsync(descriptor)
            size += os.fstat(descriptor).st_size if name else 0
        finally:
            os.close(descriptor)
    return size


def remove(directory: str) -> None:
    """Take away what a failed dump left, so that a full disk is not full because of us."""
    try:
        for name in os.listdir(directory):
            os.unlink(os.path.join(directory, name))
    except OSError:
        pass


def trouble(log: str, said: str = "") -> Trouble:
    """Judge CRIU's log and what came on standard error (either may be empty)."""
    errors = [line for line in log.splitlines() if "Error" in line and "RLIMIT_NOFILE" not in line]
    # The first error is the cause, those after it are consequences.
    words = (errors[0] if errors else (said.strip().splitlines() or ["no message"])[-1]).strip()
    words = re.sub(r"^(\([^)]*\)\s*)?(pie: )?(\s*\d+: )?Error\s+\([^)]*\):\s*", "", words)[:300]
    everything = "\n".join(errors)
    if "No space left on device" in everything or "Disk quota exceeded" in everything:
        return Trouble("no_space", words)
    if re.search(r"(Can't fork for|Unable to create a thread|clone).*(File exists|-17\b)", everything):
        return Trouble("pid_taken", words)
    if "Read-only file system" in everything:
        return Trouble("not_writable", words)
    return Trouble("tool_failed", words)
