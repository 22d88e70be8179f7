"""Pages of docs/ whose commands a test carries out on a private real Slurm."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.daemons import OMFS, OMFSD, ROOT, Daemon
from tests.support.waiting import LIMIT


class Block(NamedTuple):
    kind: str
    text: str


def blocks(page: str) -> list[Block]:
    """Those of a page of docs/, in its order."""
    text = (ROOT / "docs" / page).read_text()
    return [Block(kind, text.strip()) for kind, text in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)]


def code_of(directory: Path, code: str) -> str:
    """The code with the package in a directory."""
    return f"import sys; sys.path.insert(0, {str(directory)!r}); {code}"


class Host:
    """A head node whose directories lie elsewhere."""

    def __init__(self, slurm: LocalSlurm, directory: Path) -> None:
        self.daemon = Daemon(slurm, directory)
        self._commands = directory / "bin"
        self._commands.mkdir()
        self.install(ROOT)
        self.directory = directory
        self.places = {
            "/etc/slurm": str(slurm.directory),
            "/etc/omfs": str(directory),
            "/var/lib/omfs": str(directory / "state"),
            "/run/omfs": str(directory / "run"),
            "/usr/share/omfs/plugins": str(ROOT / "plugins"),
        }
        variables = {"PATH": f"{self._commands}:/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": str(slurm.conf)}
        self.variables = variables | {"OMFS_CONFIG": str(self.daemon.config), **self.daemon.program.variables}

    def install(self, directory: Path) -> None:
        """Let omfs and omfsd be those of the package in a directory."""
        for name, code in (("omfs", OMFS), ("omfsd", OMFSD)):
            python = shlex.join([self.daemon.program.python, "-c", code_of(directory, code)])
            (self._commands / name).write_text(f'#!/bin/sh\nexec {python} "$@"\n')
            (self._commands / name).chmod(0o755)

    def here(self, text: str) -> str:
        for path, place in self.places.items():
            text = text.replace(path, place)
        return text

    def add_to_slurm_conf(self, lines: str) -> None:
        """In place of what is there; AuthInfo names this cluster's munge, too."""
        conf = self.daemon.slurm.conf
        new = [line for line in lines.splitlines() if not line.startswith("AuthInfo=")]
        keys = {line.partition("=")[0].lower() for line in new}
        kept = [line for line in conf.read_text().splitlines() if line.partition("=")[0].lower() not in keys]
        conf.write_text("\n".join([*kept, *new, ""]))

    def run(self, text: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = ["/bin/sh", "-euxc", self.here(text)]
        done = subprocess.run(
            command, cwd=ROOT, env=self.variables, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert not check or done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done


@contextmanager
def guide_host(slurm: LocalSlurm) -> Iterator[Host]:
    directory = slurm.directory / "omfs"
    directory.mkdir()
    made = Host(slurm, directory)
    try:
        yield made
    finally:
        made.daemon.kill()
