"""The methods that work on a node: omfs-node from its start to its response, beside the bare system call or command."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import methods_common as common
from benchmarks.methods_common import MB, USER, WHERE, Place, Times
from omfs_daemon.daemon.node_client.node_answers import OmfsNodeAnswer
from omfs_daemon.daemon.node_client.transport import Local
from omfs_daemon.omfs_node.movers import system_calls
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.mock_veos import Veos

NODE = "n1"
BLOCK = 16 << 20
MARGIN = 300 * MB
"""Swap beside what is measured: omfs-node leaves 64 MiB free, and others' pages go out too."""
_WRITABLE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw.p")


class OnNodes:
    """The part that both have in common: a job of a private Slurm, and omfs-node called as the daemon calls it."""

    method = ""

    def __init__(self, place: Place, slurm: LocalSlurm) -> None:
        self.place = place
        self._slurm = slurm
        self._transport = Local([str(place.omfs_node)])

    def options(self) -> dict[str, object]:
        """What the site's configuration would have."""
        return {}

    def submit(self, command: Sequence[str], directory: Path) -> int:
        """Start a program as a job; its number."""
        line = " ".join(command)  # made of our own words, which need no quotes
        return self._slurm.submit(f"#!/bin/sh\nexec {line}\n", f"--output={directory}/said", uid=USER)

    def cancel(self, job: int, pid: int) -> None:
        """End a job, stopped as it may be."""
        os.kill(pid, signal.SIGKILL)
        self._slurm.command("scancel", str(job), check=False)
        common.until(lambda: not self._slurm.command("squeue", "-h", "-j", str(job), check=False).stdout, "its end")

    def order(self, job: int, do: str, **more: object) -> tuple[float, OmfsNodeAnswer]:
        """Have omfs-node do it; seconds with all that belongs to it, and its answer."""
        request = {"do": do, "method": self.method, "job": job, "uid": USER, "options": self.options()}
        request |= {"slurm": {"conf": str(self._slurm.conf)}, **more}
        begun = time.perf_counter()
        answer = self._transport.run([NODE], request, common.LIMIT)[NODE]
        seconds = time.perf_counter() - begun
        if not answer.ok:
            raise RuntimeError(f"{self.method} {do}: {answer}")
        return seconds, answer


class Pageout(OnNodes):
    """SIGSTOP and process_madvise, to a swap file of our own on the disk that all else is measured on."""

    method = "pageout"
    tool = f"Linux {os.uname().release}"
    rival = "process_madvise over all mappings; process_vm_readv of every page"

    def __init__(self, place: Place, slurm: LocalSlurm, largest: int) -> None:
        super().__init__(place, slurm)
        self._swap = _file(largest + MARGIN)
        self._twin = _file(largest)
        subprocess.run(["mkswap", "-q", self._swap], check=True, timeout=60)
        # Before all other swap, so that it is this device that is measured.
        subprocess.run(["swapon", "--priority", "32000", self._swap], check=True, timeout=60)

    def close(self) -> None:
        """Take the swap away."""
        subprocess.run(["swapoff", self._swap], check=True, timeout=common.LIMIT)
        self._swap.unlink()
        self._twin.unlink()

    def options(self) -> dict[str, object]:
        return {"prefault": True}

    def ours(self, size: int) -> Times:
        device = self._device(size)
        directory = self.place.new()
        job = self.submit(self.place.program(size, directory), directory)
        pid = common.until_up(directory)
        try:
            out, _ = self.order(job, "out")
            common.require(swapped(pid), size, self.method)
            back, _ = self.order(job, "in", **{"continue": True})
            common.require(size - swapped(pid), size, self.method)
        finally:
            self.cancel(job, pid)
            shutil.rmtree(directory)
        return Times(out, back, more={"device": device})

    def bare(self, size: int) -> Times:
        directory = self.place.new()
        program = common.start(self.place.program(size, directory), directory)
        pid = common.until_up(directory)
        descriptor = system_calls.pidfd_open(pid)
        try:
            ranges = _mappings(pid)
            begun = time.perf_counter()
            system_calls.send_stop(descriptor)
            for start, length in ranges:
                _advise(descriptor, start, length)
            out = time.perf_counter() - begun
            common.require(swapped(pid), size, self.rival)
            begun = time.perf_counter()
            for start, length in ranges:
                system_calls.touch(pid, range(start, start + length, system_calls.PAGE))
            system_calls.send_cont(descriptor)
            back = time.perf_counter() - begun
            common.require(size - swapped(pid), size, self.rival)
        finally:
            os.close(descriptor)
            program.kill()
            program.wait(common.LIMIT)
            shutil.rmtree(directory)
        return Times(out, back)

    def _device(self, size: int) -> float:
        """Seconds that the disk takes for as many bytes, in large blocks past the page cache."""
        descriptor = os.open(self._twin, os.O_WRONLY | os.O_DIRECT)
        with mmap.mmap(-1, BLOCK) as block:
            block[:] = os.urandom(BLOCK)
            begun = time.perf_counter()
            for _ in range(0, size - size % BLOCK, BLOCK):
                os.write(descriptor, block)
            os.fdatasync(descriptor)
            seconds = time.perf_counter() - begun
        os.close(descriptor)
        return seconds * size / max(size - size % BLOCK, BLOCK)


class VeSwap(OnNodes):
    """Mock VEOS: what it takes is its bandwidth's; what is measured is what we add."""

    method = "ve_swap"
    tool = "MOCK veos, 2 GiB/s"
    rival = "the command veswap, its status asked until it is done"

    def __init__(self, place: Place, slurm: LocalSlurm, largest: int) -> None:
        super().__init__(place, slurm)
        self._veos = Veos(ves=1, memory=str(largest * 2), area=str(largest * 2))

    def close(self) -> None:
        """End the service."""
        self._veos.stop()

    def options(self) -> dict[str, object]:
        options = self._veos.options()
        del options["poll_seconds"], options["settle_seconds"], options["call_seconds"]
        return options

    def ours(self, size: int) -> Times:
        directory = self.place.new()
        job = self.submit(self._program(size, directory), directory)
        pid = self._pid()
        try:
            out, _ = self.order(job, "out")
            common.require(self._veos.process(pid)["swapped"], size, self.method)
            back, _ = self.order(job, "in", **{"continue": True})
            common.require(self._veos.process(pid)["resident"], size, self.method)
        finally:
            self.cancel(job, pid)
            shutil.rmtree(directory)
        self._until_gone()
        return Times(out, back)

    def bare(self, size: int) -> Times:
        directory = self.place.new()
        program = common.start(self._program(size, directory), directory)
        pid = self._pid()
        try:
            begun = time.perf_counter()
            os.kill(pid, signal.SIGSTOP)
            common.until(lambda: "T" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0], "a stop")
            self._veswap(f"--out={pid}")
            common.until(lambda: self._sub(pid) == "s", "the swap")
            out = time.perf_counter() - begun
            begun = time.perf_counter()
            self._veswap(f"--in={pid}")
            common.until(lambda: self._sub(pid) == "a", "the swap")
            os.kill(pid, signal.SIGCONT)
            back = time.perf_counter() - begun
        finally:
            program.kill()
            program.wait(common.LIMIT)
            shutil.rmtree(directory)
        self._until_gone()
        return Times(out, back)

    def _program(self, size: int, directory: Path) -> list[str]:
        words = [common.PYTHON, str(self._veos.directory / "ve_program.py"), "--socket", str(self._veos.socket)]
        return [*words, "--size", str(size), "--out", str(directory / "counts")]

    def _processes(self) -> list[str]:
        return list(self._veos.show()["engines"][0]["processes"])

    def _pid(self) -> int:
        common.until(self._processes, "the program to be on the engine")
        return int(self._processes()[0])

    def _until_gone(self) -> None:
        common.until(lambda: not self._processes(), "the engine to be empty")

    def _sub(self, pid: int) -> str:
        return self._veswap(f"--status={pid}").split()[2]

    def _veswap(self, word: str) -> str:
        command = [self._veos.directory / "veswap", "-N", "0", word]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=common.LIMIT).stdout


def swapped(pid: int) -> int:
    """Bytes of a process in swap."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmSwap:")[1].split()[0]) * 1024


def _mappings(pid: int) -> list[tuple[int, int]]:
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    found = [match for match in map(_WRITABLE.match, lines) if match]
    return [(int(match[1], 16), int(match[2], 16) - int(match[1], 16)) for match in found]


def _advise(descriptor: int, start: int, length: int) -> None:
    while length > 0:
        done = system_calls.pageout(descriptor, [(start, length)])
        if done <= 0:
            return
        start, length = start + done, length - done


def _file(size: int) -> Path:
    """A file whose every block was written: what is not is slower to write."""
    descriptor, name = tempfile.mkstemp(prefix="omfs-bench-", dir=WHERE)
    block = os.urandom(BLOCK)
    for _ in range(0, size, BLOCK):
        os.write(descriptor, block)
    os.fsync(descriptor)
    os.close(descriptor)
    return Path(name)
