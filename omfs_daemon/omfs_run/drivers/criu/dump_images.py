"""CRIU's image files and logs: whether a dump is complete and on disk, and why CRIU failed."""

import os
import re
import stat
from typing import Dict, List, NamedTuple


class IncompleteDump(Exception):
    """The images do not hold all that was dumped; the text says what is missing."""


class CriuFailure(NamedTuple):
    """Why CRIU failed: a reason code, and its own message."""

    why: str
    message: str


def needed_images(tasks: Dict[int, List[int]]) -> List[str]:
    """The files without which a tree of processes (pid: thread IDs) cannot be restored."""
    names = ["inventory.img", "pstree.img", "files.img"]
    for pid in sorted(tasks):
        names += ["mm-%d.img" % pid, "pagemap-%d.img" % pid, "fs-%d.img" % pid]
        names += ["core-%d.img" % thread for thread in sorted(tasks[pid])]
    return names


def verify(directory: str, tasks: Dict[int, List[int]]) -> List[str]:
    """All files of a complete dump of these processes (pid: thread IDs); raises IncompleteDump."""
    files = sorted(os.listdir(directory))
    for name in files:
        info = os.lstat(os.path.join(directory, name))
        if not stat.S_ISREG(info.st_mode):
            raise IncompleteDump("%s is not a file" % name)
    for name in needed_images(tasks):
        if name not in files:
            raise IncompleteDump("%s is missing" % name)
        if os.path.getsize(os.path.join(directory, name)) == 0:
            raise IncompleteDump("%s is empty" % name)
    return files


def to_disk(directory: str, files: List[str]) -> int:
    """Write the files and the directory to disk; returns their bytes. Raises OSError."""
    size = 0
    for name in [*files, ""]:
        descriptor = os.open(os.path.join(directory, name), os.O_RDONLY | os.O_NOFOLLOW)
        try:
            os.fsync(descriptor)
            size += os.fstat(descriptor).st_size if name else 0
        finally:
            os.close(descriptor)
    return size


def remove_dump(directory: str) -> None:
    """Remove what a failed dump left, so that it does not fill the disk."""
    try:
        for name in os.listdir(directory):
            os.unlink(os.path.join(directory, name))
    except OSError:
        pass


def find_failure(log: str, output: str = "") -> CriuFailure:
    """Find the error in CRIU's log and standard error (either may be empty)."""
    errors = [line for line in log.splitlines() if "Error" in line and "RLIMIT_NOFILE" not in line]
    # The first error is the cause, those after it are consequences.
    message = (errors[0] if errors else (output.strip().splitlines() or ["no message"])[-1]).strip()
    message = re.sub(r"^(\([^)]*\)\s*)?(pie: )?(\s*\d+: )?Error\s+\([^)]*\):\s*", "", message)[:300]
    all_errors = "\n".join(errors)
    if "No space left on device" in all_errors or "Disk quota exceeded" in all_errors:
        return CriuFailure("no_space", message)
    if re.search(r"(Can't fork for|Unable to create a thread|clone).*(File exists|-17\b)", all_errors):
        return CriuFailure("pid_taken", message)
    if "Can't bind inet socket" in all_errors and "Address already in use" in all_errors:
        return CriuFailure("address_taken", message)
    if "Read-only file system" in all_errors:
        return CriuFailure("not_writable", message)
    return CriuFailure("tool_failed", message)
