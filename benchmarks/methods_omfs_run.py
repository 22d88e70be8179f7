"""The methods that work from inside a job: omfs-run's own steps, beside the bare tool driven by hand."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks import methods_common as common
from benchmarks.methods_common import USER, Place, Times
from tests.support.dmtcp_stand_in import install

CRIU = Path("/opt/omfs-criu/sbin/criu")  # where deploy/criu.sh puts it
# What the helper omfs-criu gives CRIU, too.
CRIU_OPTIONS = ("--unprivileged", "--no-default-config", "--file-locks", "--file-validation", "filesize", "-v2")
WITH_CAPABILITY = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs")
WITH_CAPABILITY += ("--inh-caps=+checkpoint_restore", "--ambient-caps=+checkpoint_restore")


class InJob:
    """The part that all have in common: ours."""

    method = ""
    tool = ""
    rival = ""

    def __init__(self, place: Place) -> None:
        self.place = place

    def environment(self, size: int) -> dict[str, str]:
        """What the program has in its environment, beside the usual."""
        return {}

    def settings(self) -> dict[str, str]:
        """What the worker needs to know, beside the usual."""
        return {}

    def ours(self, size: int) -> Times:
        directory = self.place.new()
        settings = {"method": self.method, "command": self.place.program(size, directory)}
        settings |= {"directory": str(directory / "checkpoints"), "up": str(directory / "up"), **self.settings()}
        words = [common.PYTHON, str(self.place.path / "methods_worker.py"), str(self.place.omfs_run)]
        worker = common.start([*words, json.dumps(settings)], directory, self.environment(size), quiet=False)
        try:
            _order(worker, directory, "start")
            out = _order(worker, directory, "out")
            common.require(self.moved(directory, int(out["bytes"])), size, self.method)
            self.place.forget(directory)
            back = _order(worker, directory, "back")
            _order(worker, directory, "end")
            worker.communicate(timeout=common.LIMIT)
        finally:
            _end(worker)
            _end_program(directory)
            shutil.rmtree(directory)
        return Times(out["seconds"], back["seconds"], out["cpu"] + back["cpu"])

    def moved(self, directory: Path, sealed: int) -> int:
        """Bytes that were written."""
        return sealed


class Criu(InJob):
    """Real CRIU, without and with omfs-run around it."""

    method = "criu"
    rival = "criu dump, fsync; criu restore"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        if not CRIU.exists():
            raise RuntimeError(f"no {CRIU}: deploy/criu.sh puts it there")
        said = subprocess.run([CRIU, "--version"], check=True, stdout=subprocess.PIPE, text=True, timeout=30).stdout
        self.tool = "criu " + said.split()[1]

    def bare(self, size: int) -> Times:
        directory, images = self.place.new(), self.place.new()
        # With no_new_privs, as under omfs-run: a restore without all capabilities needs it.
        program = common.start(["setpriv", "--no-new-privs", *self.place.program(size, directory)], directory)
        pid = 0
        try:
            pid = common.until_up(directory)
            where = ["--images-dir", str(images), "--work-dir", str(images), *CRIU_OPTIONS]
            begun, used = time.perf_counter(), common.cpu()
            self._criu("dump", "--tree", str(pid), "--ghost-limit", "4G", "--log-file", "dump.log", *where)
            program.wait(common.LIMIT)
            written = common.fsync_all(images)
            out = time.perf_counter() - begun
            common.require(written, size, self.rival)
            self.place.forget(images)
            begun = time.perf_counter()
            self._criu("restore", "--restore-detached", "--pidfile", "pid", "--log-file", "restore.log", *where)
            back = time.perf_counter() - begun
            return Times(out, back, common.cpu() - used)
        finally:
            with contextlib.suppress(ProcessLookupError):
                if pid:
                    os.kill(pid, signal.SIGKILL)
            _end(program)
            common.until(lambda: not Path(f"/proc/{pid}/fd/0").exists(), "the program to end")
            shutil.rmtree(directory)
            shutil.rmtree(images)

    def _criu(self, *words: str) -> None:
        done = subprocess.run(
            [*WITH_CAPABILITY, CRIU, *words],
            cwd=words[words.index("--work-dir") + 1],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=common.clean_environment(),
            check=False,
            timeout=common.LIMIT,
        )
        if done.returncode:
            log = Path(words[words.index("--work-dir") + 1]) / f"{words[0]}.log"
            said = [line for line in log.read_text(errors="replace").splitlines() if "Error" in line]
            raise RuntimeError(f"criu {words[0]}: exit {done.returncode}: {' | '.join(said)}")


FIXED = ("setarch", "--addr-no-randomize")
"""Programs whose heap grows do not restart under DMTCP without it."""


class Dmtcp(InJob):
    """DMTCP where it is installed, else the stand-in that the tests use, which writes images of the same size."""

    method = "dmtcp"
    rival = "dmtcp_command --kcheckpoint, fsync; dmtcp_restart"

    def __init__(self, place: Place, prefix: str) -> None:
        super().__init__(place)
        found = shutil.which("dmtcp_launch", path=str(Path(prefix) / "bin") if prefix else None)
        if prefix and not found:
            raise RuntimeError(f"no dmtcp_launch in {prefix}/bin")
        self._is_real = found is not None
        self._bin = Path(found).parent if found else install(place.path / "stand-in")
        said = subprocess.run(
            [self._bin / "dmtcp_launch", "--version"], check=True, stdout=subprocess.PIPE, text=True, timeout=30
        )
        words = said.stdout.split("(DMTCP)")[1].split() if "(DMTCP)" in said.stdout else ["?"]
        self.tool = f"dmtcp {words[0]}" + ("" if self._is_real else ", the STAND-IN")

    def environment(self, size: int) -> dict[str, str]:
        if self._is_real:
            return {}
        return {"STAND_IN_IMAGE_MB": str(size / (1 << 20)), "PYTHONPATH": str(self._bin.parent / "programs")}

    def settings(self) -> dict[str, str]:
        return {"bin": str(self._bin)}

    def bare(self, size: int) -> Times:
        directory, images = self.place.new(), self.place.new()
        variables = self.environment(size) | {"DMTCP_GZIP": "0", "DMTCP_TMPDIR": str(directory)}
        variables["DMTCP_CHECKPOINT_DIR"] = str(images)
        common_words = ["--new-coordinator", "--port-file", str(directory / "port"), "--ckptdir", str(images)]
        common_words += ["-i", "0", "-q"]
        tool = self._bin / "dmtcp_launch"
        words = [*FIXED, str(tool), "--coord-port", "0", *common_words, *self.place.program(size, directory)]
        program = common.start(words, directory, variables)
        try:
            common.until_up(directory)
            common.until(lambda: self._is_running(directory, variables), "DMTCP")
            begun, used = time.perf_counter(), common.cpu()
            self._ask(directory, variables, "--kcheckpoint")
            program.wait(common.LIMIT)
            common.until((images / "dmtcp_restart_script.sh").exists, "the restart script")
            written = common.fsync_all(images)
            out = time.perf_counter() - begun
            common.require(written, size, self.rival)
            self.place.forget(images)
            (directory / "port").unlink()
            begun = time.perf_counter()
            paths = [str(path) for path in images.glob("*.dmtcp")]
            program = common.start(
                [*FIXED, str(self._bin / "dmtcp_restart"), "-p", "0", *common_words, *paths], directory, variables
            )
            common.until(lambda: self._is_running(directory, variables), "the restart")
            back = time.perf_counter() - begun
            self._ask(directory, variables, "--quit")
            program.wait(common.LIMIT)
            return Times(out, back, common.cpu() - used)
        finally:
            _end(program)
            shutil.rmtree(directory)
            shutil.rmtree(images)

    def _is_running(self, directory: Path, variables: Mapping[str, str]) -> bool:
        return "RUNNING=yes" in self._ask(directory, variables, "-s")

    def _ask(self, directory: Path, variables: Mapping[str, str], word: str) -> str:
        port = directory / "port"
        if not port.exists() or not port.read_text().strip():
            return ""
        words = [self._bin / "dmtcp_command", "--coord-host", "127.0.0.1", "--coord-port", port.read_text().strip()]
        done = subprocess.run(
            [*words, word],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=common.clean_environment() | dict(variables),
            user=USER,
            group=USER,
            extra_groups=[],
            text=True,
            check=False,
            timeout=common.LIMIT,
        )
        return done.stdout


class Application(InJob):
    """A program that writes its own state file."""

    method = "application"
    tool = "the program itself"
    rival = "the signal, until the program's mark; the program started again"

    def moved(self, directory: Path, sealed: int) -> int:
        return (directory / "state").stat().st_size

    def bare(self, size: int) -> Times:
        directory = self.place.new()
        mark = directory / "mark"
        command, variables = self.place.program(size, directory), {"OMFS_MARK": str(mark)}
        program = common.start(command, directory, variables)
        try:
            common.until_up(directory)
            begun, used = time.perf_counter(), common.cpu()
            program.send_signal(signal.SIGUSR1)
            common.until(mark.exists, "the mark")
            program.wait(common.LIMIT)
            out = time.perf_counter() - begun
            common.require(self.moved(directory, 0), size, self.rival)
            self.place.forget(directory)
            (directory / "up").unlink()
            begun = time.perf_counter()
            program = common.start(command, directory, variables | {"OMFS_RESTARTED": "1"})
            common.until_up(directory)
            back = time.perf_counter() - begun
            program.kill()
            program.wait(common.LIMIT)
            return Times(out, back, common.cpu() - used)
        finally:
            _end(program)
            shutil.rmtree(directory)


def _order(worker: subprocess.Popen[bytes], directory: Path, order: str) -> dict[str, float]:
    assert worker.stdin is not None and worker.stdout is not None  # noqa: S101
    worker.stdin.write(order.encode() + b"\n")
    worker.stdin.flush()
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError(f"{order}: {(directory / 'said').read_text(errors='replace')[-2000:]}")
    answer: dict[str, float] = json.loads(line)
    return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait(common.LIMIT)


def _end_program(directory: Path) -> None:
    """After a worker that failed the program may live on, in a session of its own."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((directory / "up").read_text())
        if str(directory).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
