"""What the root process takes over of whoever started it, and which files it trusts."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

_SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def enter_root_environment() -> None:
    """Leave the directory and the environment of whoever started this process."""
    os.chdir("/")
    environment = _clean_environment()
    os.environ.clear()
    os.environ |= environment


def _clean_environment() -> dict[str, str]:
    """Nothing of whoever started omfsd but where Slurm is, if only root can write there."""
    trusted = [
        place for place in os.environ.get("PATH", "").split(":") if place.startswith("/") and is_roots(Path(place))
    ]
    root = pwd.getpwuid(0)
    kept = {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
    return kept | {
        "PATH": ":".join([*trusted, _SYSTEM_PATH]),
        "LC_ALL": "C",
        "HOME": root.pw_dir,  # ssh finds its keys there
        "USER": root.pw_name,
        "LOGNAME": root.pw_name,
    }


def is_roots(path: Path) -> bool:
    """Whether it is root's, and nobody else can write there."""
    try:
        found = path.stat()
    except OSError:
        return False
    return found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
