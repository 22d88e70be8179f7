"""omfs-run as one file: what is in it, and how it runs programs without Slurm."""

from __future__ import annotations

import os
import signal
import subprocess
import zipfile
from pathlib import Path

import pytest

from deploy.zipapps import build, version
from tests.support.waiting import LIMIT, wait_until

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("omfs-run", tmp_path_factory.mktemp("build"))


def run(program: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMFS_"))}
    return subprocess.run(
        [program, *words], env=clean | environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )


def test_the_file_has_omfs_run_and_nothing_else(program: Path) -> None:
    assert program.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(program) as archive:
        names = archive.namelist()
        assert f'"{version()}"' in archive.read("omfs_daemon/__init__.py").decode()
    folders = {str(Path(name).parent) for name in names if not name.endswith("/")}
    package = "omfs_daemon/omfs_run"
    drivers = {f"{package}/drivers{inner}" for inner in ("", "/criu", "/dmtcp")}
    assert folders == {".", "omfs_daemon", "omfs_daemon/protocol", package, f"{package}/store"} | drivers


def test_it_runs_with_the_interpreter_that_a_package_names(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    done = run(build("omfs-run", tmp_path, "/usr/bin/python3 -I"), "--help", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0 and done.stdout.startswith("usage: omfs-run")


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 9", 9), ("kill -KILL $$", 137)])
def test_outside_slurm_it_runs_the_program_and_reports_it(program: Path, script: str, code: int) -> None:
    done = run(program, "sh", "-c", script)
    assert done.returncode == code and "not in a Slurm job" in done.stderr


def test_wrong_usage_has_its_code_and_no_traceback(program: Path) -> None:
    for words in ([], ["--method", "x", "true"]):
        done = run(program, *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (109, 1)
    assert run(program, str(ROOT / "none")).returncode == 127


def test_root_does_not_run_another_user_s_job(program: Path) -> None:
    for uid in ({"SLURM_JOB_UID": "1000"}, {}):
        done = run(program, "true", SLURM_JOB_ID="9", **uid)
        assert done.returncode == 109 and "runs as root" in done.stderr


def test_signals_reach_the_program_and_the_request_does_not(program: Path, tmp_path: Path) -> None:
    code = "trap 'exit 12' TERM; trap 'exit 13' USR1; touch up; while :; do sleep 0.05; done"
    process = subprocess.Popen([program, "sh", "-c", code], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    wait_until((tmp_path / "up").exists, "the program")
    process.send_signal(signal.SIGUSR1)
    assert process.stderr is not None
    process.stderr.readline()
    assert "without a method" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 12
    process.stderr.close()


def test_requests_up_to_its_last_moment_do_not_change_its_exit_code(program: Path) -> None:
    for _ in range(8):
        process = subprocess.Popen([program, "sh", "-c", "exit 3"], stderr=subprocess.PIPE)
        assert process.stderr is not None
        process.stderr.readline()  # its handlers are installed
        while process.poll() is None:
            process.send_signal(signal.SIGUSR1)
        process.stderr.close()
        assert process.returncode == 3
