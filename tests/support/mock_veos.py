"""Mock VEOS for tests: the service, programs with memory on its engines, and a mover that talks to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from omfs_daemon.omfs_node.movers import system_calls
from omfs_daemon.omfs_node.movers.mover import HeldProcess
from tests.support.waiting import LIMIT, wait_until

SOURCES = Path(__file__).parents[2] / "deploy" / "mock_veos"
MB = 1 << 20


class Veos:
    """A running mock VEOS in a directory of its own, which other users may enter."""

    def __init__(self, ves: int = 2, memory: str = "1G", area: str = "1G", bandwidth: str = "2G") -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="omfs-veos-")
        self.directory = Path(self._directory.name)
        self.directory.chmod(0o755)
        self.socket = self.directory / "veos.sock"
        self.library = self.directory / "libveosinfo.so"
        subprocess.run(["make", "-s", "-C", SOURCES, f"BUILD={self.directory}"], check=True, timeout=LIMIT)
        for source in ("veswap", "ve_program.py", "veos.py", "vector_engine.py"):
            target = self.directory / source
            # Debian's own Python: other users cannot enter every place that has one.
            target.write_text((SOURCES / source).read_text().replace("#!/usr/bin/env python3", "#!/usr/bin/python3"))
            target.chmod(0o755)
        self.ves = ves
        sizes = ["--memory", memory, "--area", area, "--bandwidth", bandwidth]
        self._processes = [
            subprocess.Popen([sys.executable, SOURCES / "veos.py", "--socket", self.socket, "--ves", str(ves), *sizes])
        ]
        wait_until(self._is_up, "mock VEOS")

    def stop(self) -> None:
        """End the service and every program."""
        for process in reversed(self._processes):  # the service last
            if process.poll() is None:
                process.kill()
            process.wait(LIMIT)
        self._directory.cleanup()

    def program(self, ve: int = 0, size: str = "100M", uid: int = 0, fixed: str = "0") -> Program:
        """Start a program and wait until it counts."""
        out = self.directory / f"counts-{len(self._processes)}"
        out.touch()
        os.chown(out, uid, uid)
        words = [self.directory / "ve_program.py", "--socket", self.socket]
        words += ["--ve", str(ve), "--size", size, "--fixed", fixed, "--out", out, "--interval", "0.005"]
        process = subprocess.Popen(words, user=uid, group=uid, extra_groups=[])
        self._processes.append(process)
        program = Program(process, out)
        wait_until(lambda: program.counted() > 0, "the program to count")
        return program

    def options(self, **changes: Any) -> dict[str, Any]:
        """Options of a mover on this VEOS through the library."""
        usual = {"ves": self.ves, "library": str(self.library), "area": self.show()["engines"][0]["area"]}
        return usual | {"poll_seconds": 0.02, "settle_seconds": 0.3, "call_seconds": LIMIT} | changes

    def command_options(self, **changes: Any) -> dict[str, Any]:
        """The same through the command."""
        command = [str(self.directory / "veswap"), "-N", "{ve}"]
        lists = {"out": "--out={pids}", "in": "--in={pids}", "status": "--status={pids}"}
        commands = {name: [*command, word] for name, word in lists.items()}
        commands |= {"memory": [*command, "--memory"], "area": [*command, "--node"]}
        return self.options(driver="command", commands=commands, **changes)

    def ask(self, request: str) -> str:
        """One request to the service as root."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(LIMIT)
            connection.connect(str(self.socket))
            connection.sendall(request.encode() + b"\n")
            with connection.makefile() as answer:
                text = answer.read()
        assert text.startswith("0"), f"{request}: {text}"
        return text

    def show(self) -> Any:
        """Everything that the service knows."""
        return json.loads(self.ask("show").splitlines()[1])

    def process(self, pid: int) -> Any:
        """What the service knows of a process, None if it does not know it."""
        for engine in self.show()["engines"]:
            if str(pid) in engine["processes"]:
                return engine["processes"][str(pid)]
        return None

    def violations(self) -> list[str]:
        """Processes that ran while they were swapped out."""
        return [text for engine in self.show()["engines"] for text in engine["violations"]]

    def _is_up(self) -> bool:
        try:
            return bool(self.show())
        except OSError:
            return False


class Program:
    """A program that counts with memory on an engine."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path) -> None:
        self._process = process
        self.pid = process.pid
        self.out = out

    def numbers(self) -> list[int]:
        """What it has written."""
        return [int(line) for line in self.out.read_text().split()]

    def counted(self) -> int:
        """How far it has counted."""
        return len(self.numbers())

    def stop(self) -> Program:
        """SIGSTOP, and wait until it is stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        wait_until(self.is_stopped, "the program to be stopped")
        return self

    def is_stopped(self) -> bool:
        """Whether it is stopped, by /proc."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def continues(self) -> None:
        """SIGCONT; then it counts on without gap or repeat."""
        before = self.counted()
        os.kill(self.pid, signal.SIGCONT)
        wait_until(lambda: self.counted() > before + 3, "the program to count on")
        numbers = self.numbers()
        assert numbers == list(range(1, len(numbers) + 1))

    def kill(self) -> None:
        """SIGKILL and wait."""
        self._process.kill()
        self._process.wait(LIMIT)

    def wait(self, limit: float) -> int:
        """Its exit code."""
        return self._process.wait(limit)


def processes(*programs: Program) -> list[HeldProcess]:
    """As the core gives them to a mover; the descriptors live as long as the test."""
    return [HeldProcess(program.pid, system_calls.pidfd_open(program.pid)) for program in programs]


def soon(seconds: float = LIMIT) -> float:
    """A deadline."""
    return time.monotonic() + seconds
