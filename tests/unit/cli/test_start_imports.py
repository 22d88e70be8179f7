"""Commands that people wait for import nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from omfs_daemon.cli.lazy_command import LazyCommand
from omfs_daemon.cli.main import COMMANDS, app
from omfs_daemon.daemon.api.callers import Peer, operators
from omfs_daemon.daemon.api.control_socket import ControlServer
from omfs_daemon.daemon.store.audit_log import AuditLog
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore
from tests.support.waiting import LIMIT
from tests.unit.cli.test_cli import Stub

HEAVY = {
    "ClusterShell", "matplotlib", "numba", "numpy", "pandas", "polars", "prometheus_client", "psutil", "pydantic",
    "scipy", "structlog", "submitit", "tomlkit",
}  # fmt: skip
OWN_HEAVY = (
    "omfs_daemon.config.load",
    "omfs_daemon.daemon.process",
    "omfs_daemon.policy",
    "omfs_daemon.preemption",
    "omfs_daemon.simulate",
    "omfs_daemon.slurm",
)

_PROGRAM = """\
import json, sys
from omfs_daemon.cli.main import run
try:
    run()
finally:
    print(json.dumps([*sys.modules]), file=sys.stderr)
"""


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """Of a daemon without Slurm that answers."""
    path = tmp_path / "omfs.toml"
    path.write_text(f'[daemon]\nrun_dir = "{tmp_path}"\n')
    stub = Stub(EntitlementStore(tmp_path, (), AuditLog(tmp_path, lambda: 1000.0)))
    with ControlServer(tmp_path / "omfs.sock", stub, operators(None, None), peer=lambda _: Peer(0, 0)):
        yield path


def heavy_modules(code: int, *words: str) -> set[str]:
    """What a command imports that it need not."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM, *words], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == code, done.stderr
    modules = json.loads(done.stderr.splitlines()[-1])
    return {
        name
        for name in modules
        if name.partition(".")[0] in HEAVY or any(name == own or name.startswith(f"{own}.") for own in OWN_HEAVY)
    }


@pytest.mark.parametrize("words", [("status",), ("plan",), ("why", "7"), ("history",), ("history", "--since", "2d")])
def test_a_question_to_the_daemon_imports_nothing_heavy(config: Path, words: tuple[str, ...]) -> None:
    assert heavy_modules(0, "--config", str(config), *words) == set()


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("status", "--help"), ("why", "--help")])
def test_help_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    assert heavy_modules(0, *words) == set()


def test_neither_does_a_question_that_nobody_answers(tmp_path: Path) -> None:
    assert heavy_modules(3, "--socket", str(tmp_path / "none.sock"), "status") == set()


def test_json_imports_no_tables(config: Path) -> None:
    program = _PROGRAM.replace("[*sys.modules]", "[name for name in sys.modules if name == 'rich']")
    command = [sys.executable, "-c", program, "--config", str(config), "status", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    assert json.loads(done.stderr.splitlines()[-1]) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_lists_what_each_command_says_of_itself(name: str) -> None:
    stand_in = typer.main.get_group(app).commands[name]
    assert isinstance(stand_in, LazyCommand)
    command = stand_in.load()
    assert stand_in.get_short_help_str(200) == command.get_short_help_str(200)
    assert [stand_in.name, stand_in.hidden] == [command.name, command.hidden]


@pytest.mark.parametrize("fault", ["run_dir = 7", 'run_dir = "relative"', "run_dir ="])
def test_a_file_that_does_not_tell_the_socket_is_explained(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "omfs.toml"
    path.write_text(f"[daemon]\n{fault}\n")
    command = [sys.executable, "-c", "from omfs_daemon.cli.main import run; run()", "-c", str(path), "status"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 2
    assert done.stderr.startswith(f"omfs: {path}: ") and done.stderr.count("\n") == 1
