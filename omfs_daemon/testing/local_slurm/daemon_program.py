"""How to start omfsd beside a private Slurm, so that it can become SlurmUser."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import omfs_daemon
from omfs_daemon.testing.local_slurm.local_slurm import as_user

_SYSTEM_PYTHON = "/usr/bin/python3"
_LIMIT = 60.0


@dataclass(frozen=True)
class DaemonProgram:
    """``user``: for ``daemon.user``; ``python`` with these ``variables`` can run this package as that user."""

    user: str
    python: str = sys.executable
    variables: Mapping[str, str] = field(default_factory=dict)

    def start(self, code: str, *arguments: str, **options: object) -> subprocess.Popen[bytes]:
        """Python code as a process of root's; ``options`` are those of Popen."""
        command = [self.python, "-c", code, *arguments]
        return subprocess.Popen(command, env=os.environ | self.variables, **options)  # type: ignore[call-overload, no-any-return]


@cache
def daemon_program(user: str) -> DaemonProgram:
    """As this user, with this interpreter or, if only root may use it, with the system's; else as root."""
    # A virtual environment's .pth files are not read for the system's interpreter.
    packages = [str(Path(omfs_daemon.__file__).parents[1]), *(path for path in sys.path if "-packages" in path)]
    programs = (
        DaemonProgram(user),
        DaemonProgram(user, _SYSTEM_PYTHON, {"PYTHONPATH": ":".join(packages)}),
    )
    return next((program for program in programs if _runs(program)), DaemonProgram("root"))


def _runs(program: DaemonProgram) -> bool:
    # Through sh: setpriv itself still has root's capabilities when it starts a program.
    code = "import omfs_daemon.daemon.process"
    environment = os.environ | program.variables
    try:
        command = [*as_user(program.user), "sh", "-c", 'exec "$0" -c "$1"', program.python, code]
        subprocess.run(command, cwd="/", env=environment, capture_output=True, timeout=_LIMIT, check=True)
    except (KeyError, OSError, subprocess.SubprocessError):  # no such user, no setpriv: LocalSlurm says so
        return False
    return True
