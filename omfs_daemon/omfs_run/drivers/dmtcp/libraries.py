"""Our libraries for DMTCP (``make -C plugins install``): where they are, and whether a process has loaded one."""

import os
from typing import Iterable, Mapping, Optional

COORDINATOR = "omfs_coordinator.so"
CHILDREN = "omfs_children.so"
_DIRECTORIES = ("/usr/local/lib/omfs", "/usr/lib/omfs")  # where ``make install`` and the package put them

MISSING = {
    COORDINATOR: "other users of this node can kill the program through DMTCP's coordinator",
    CHILDREN: "a program of several processes or with duplicated descriptors cannot be checkpointed, and repeating"
    " interval timers fire once",
}


def library(name: str, environment: Mapping[str, str]) -> Optional[str]:
    """The path of one of our libraries, in $OMFS_LIB if that is set; None if it is not installed."""
    given = environment.get("OMFS_LIB")
    for directory in [given] if given else _DIRECTORIES:
        path = os.path.join(directory, name)
        if os.path.isfile(path):
            return path
    return None


def has_loaded(maps: Iterable[str], name: str) -> bool:
    """Whether a process with these lines of /proc/PID/maps has loaded the library; also after a restart."""
    return any(line.rstrip("\n").endswith("/" + name) for line in maps)


def inherits_children(maps: Iterable[str]) -> bool:
    """Whether the process is a child subreaper (prctl(2)): omfs_children.so then maps itself without access."""
    return has_loaded((line for line in maps if line.split(" ", 2)[1].startswith("---s")), CHILDREN)
