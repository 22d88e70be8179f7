"""`omfs demo` as a newcomer runs it: it succeeds, and nothing is left of it, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import LIMIT

_ROOT = Path(__file__).parents[2]
# The limits of its expectations are for an idle machine.
_CODE = f"""
from omfs_daemon.cli.main import run
from omfs_daemon.demo import real_cluster, script
for module in (real_cluster, script):
    for name in dir(module):
        if name.endswith("_LIMIT"):
            setattr(module, name, {LIMIT})
run()
"""
_OMFS = (sys.executable, "-c", _CODE, "demo")

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start ``omfs demo``; it is ended when the test is over."""
    started: list[subprocess.Popen[str]] = []

    def run(*options: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*_OMFS, *options],
            cwd=_ROOT,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.terminate()  # takes everything down; it does nothing to one that has ended
        process.communicate(timeout=LIMIT)


@pytest.mark.slurm
def test_the_demo_succeeds_on_real_slurm(start: Start) -> None:
    printed = _assert_succeeded(start())
    assert "the fake" not in printed


def test_the_demo_succeeds_on_the_fake(start: Start) -> None:
    _assert_succeeded(start("--fake"))


def test_without_slurm_it_reports_so_and_runs_on_the_fake(start: Start) -> None:
    demo = start(PATH="/nonexistent")
    lines = _lines_until(demo, "== 1.")
    assert sum("No real Slurm here" in line for line in lines) == 1
    assert any("built-in fake" in line for line in lines)


@pytest.mark.slurm
@pytest.mark.parametrize("moment", ["Starting", "bio-4 (job 4) is suspended"])
def test_a_signal_takes_everything_down(start: Start, moment: str) -> None:
    demo = start()
    before = _lines_until(demo, moment)
    demo.send_signal(signal.SIGINT)
    printed = "".join(before) + demo.communicate(timeout=LIMIT)[0]
    assert demo.returncode == 1
    assert "ended by SIGINT" in printed
    assert re.fullmatch(r"demo: \d+ jobs, \d+ preempted, \d+ lost", printed.splitlines()[-1])
    _assert_nothing_left(printed)


@pytest.mark.slurm
def test_the_demo_fails_without_omfsd(start: Start) -> None:
    demo = start()
    before = _lines_until(demo, "== 2.")
    _omfsd_of("".join(before)).kill()
    printed = "".join(before) + demo.communicate(timeout=LIMIT)[0]
    assert demo.returncode == 1
    assert "the demo was aborted" in printed
    assert re.fullmatch(r"demo: (\d+) jobs, 0 preempted, \1 lost", printed.splitlines()[-1])
    _assert_nothing_left(printed)


def _assert_succeeded(demo: subprocess.Popen[str]) -> str:
    printed = demo.communicate(timeout=LIMIT)[0]
    assert demo.returncode == 0, printed
    assert re.fullmatch(r"demo: [1-9]\d* jobs, [1-9]\d* preempted, 0 lost", printed.splitlines()[-1])
    _assert_nothing_left(printed)
    return printed


def _lines_until(demo: subprocess.Popen[str], text: str) -> list[str]:
    assert demo.stdout is not None
    lines = []
    for line in demo.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"it never said {text!r}: {''.join(lines)}")


def _directory(printed: str) -> Path:
    found = re.search(r"/\S*/omfs-demo-\w+", printed)
    assert found, printed
    return Path(found.group())


def _omfsd_of(printed: str) -> psutil.Process:
    config = f"{_directory(printed)}/omfs.toml"
    return next(process for process in _processes_of(_directory(printed)) if config in process.cmdline())


def _processes_of(directory: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            texts = (*process.cmdline(), process.cwd(), *process.environ().values())
        except psutil.Error:
            continue
        if any(str(directory) in text for text in texts):
            found.append(process)
    return found


def _assert_nothing_left(printed: str) -> None:
    directory = _directory(printed)
    assert not directory.exists()
    assert _processes_of(directory) == []
