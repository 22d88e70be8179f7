"""A driver for DMTCP and what is started with it.

The stand-in imitates two releases; the real DMTCP is used as well where the environment's OMFS_DMTCP is its prefix, or
when it is on the PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from omfs_daemon.omfs_run.drivers.dmtcp import dmtcp_processes
from omfs_daemon.omfs_run.drivers.dmtcp.dmtcp_driver import Dmtcp
from omfs_daemon.omfs_run.drivers.dmtcp.program import DmtcpProgram
from omfs_daemon.omfs_run.drivers.driver import Image
from tests.support.dmtcp_stand_in import PROGRAMS, install
from tests.support.waiting import LIMIT, wait_until

_PREFIX = os.environ.get("OMFS_DMTCP")
REAL = shutil.which("dmtcp_launch", path=f"{_PREFIX}/bin" if _PREFIX else None)
STAND_INS = ["4.2.0", "5.0"]
# The interpreter itself: a wrapper script in front of it would be checkpointed too.
PYTHON = os.path.realpath(sys.executable)


class Bench:
    """A driver, a directory to run in, and what was started with it."""

    def __init__(self, place: Path, bin_directory: Path, environment: dict[str, str]) -> None:
        self.place = place
        self.bin = bin_directory
        self.is_real = not (bin_directory / "stand_in.py").exists()
        self.driver = Dmtcp(str(bin_directory), environment, stall_limit=LIMIT)
        self.started: list[DmtcpProgram] = []
        self.made = 0

    def new(self, name: str) -> Path:
        self.made += 1
        path = self.place / f"{name} {self.made}"
        path.mkdir(mode=0o700)
        return path

    def program(self, name: str, *arguments: object) -> DmtcpProgram:
        return self.command(PYTHON, str(PROGRAMS / f"{name}.py"), *arguments)

    def command(self, *command: object) -> DmtcpProgram:
        program = self.driver.start([str(word) for word in command], str(self.new("scratch")))
        return self.watched(program)

    def watched(self, program: object) -> DmtcpProgram:
        assert isinstance(program, DmtcpProgram)
        self.started.append(program)
        return program

    def running(self, name: str, *arguments: object) -> DmtcpProgram:
        program = self.program(name, *arguments)
        until(program.ready)
        return program

    def stop(self, program: DmtcpProgram, timeout: float = LIMIT) -> tuple[Path, Image]:
        generation = self.new("generation")
        return generation, program.checkpoint(str(generation), timeout)

    def restart(self, generation: Path, image: Image, timeout: float = LIMIT) -> DmtcpProgram:
        for scratch in self.place.glob("scratch *"):
            shutil.rmtree(scratch)  # as at the end of a run
        return self.watched(self.driver.restart(str(generation), image, str(self.new("scratch")), timeout))

    def left(self) -> list[int]:
        """Processes started here that still run: each has its scratch directory in its environment."""
        mark = os.fsencode(f"DMTCP_TMPDIR={self.place}")
        found = []
        for pid in dmtcp_processes.all_processes_now():
            try:
                if mark in Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(pid)
            except OSError:
                continue
        return found


def until(condition: Callable[[], object]) -> None:
    wait_until(condition, "the program")


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def numbers(path: Path) -> list[int]:
    return [int(line.split()[0]) for line in lines(path)]


def is_gapless(path: Path) -> bool:
    return numbers(path) == list(range(len(numbers(path))))


def finish(path: Path) -> None:
    """Let the program that counts into it, whose last number is 0, come to its end."""
    Path(f"{path}.finish").touch()


def counted_further(path: Path, by: int) -> None:
    seen = len(numbers(path))
    until(lambda: len(numbers(path)) >= seen + by)


def make(place: Path, version: str, fault: str = "") -> Bench:
    environment = dict(os.environ, STAND_IN_IMAGE_MB="2")
    for name in ("STAND_IN_DMTCP", "STAND_IN_FAULT"):
        environment.pop(name, None)
    if version == "real":
        assert REAL is not None
        return Bench(place, Path(REAL).parent, environment)
    bin_directory = install(place / "dmtcp", version, fault)
    environment.setdefault("OMFS_LIB", str(bin_directory.parent / "lib"))
    return Bench(place, bin_directory, environment)


def send_to_coordinator(bench: Bench, program: DmtcpProgram, option: str) -> None:
    """What any user who has found the port can do."""
    port = Path(program.scratch.port_file).read_text()
    where = [str(bench.bin / "dmtcp_command"), "--coord-host", "127.0.0.1", "--coord-port", port]
    subprocess.run([*where, option], check=False, timeout=LIMIT, env=program.scratch.environment, capture_output=True)
