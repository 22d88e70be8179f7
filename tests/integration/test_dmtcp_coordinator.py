"""The library that closes DMTCP's coordinator to other users, tried as another user."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.omfs_run.drivers.dmtcp.own_coordinator import closed_to_others
from tests.support.dmtcp_bench import STAND_INS, Bench, counted_further, finish, is_gapless, make
from tests.support.waiting import LIMIT

ROOT = Path(__file__).parents[2]
NOBODY = 65534
# Sends argument 2 to the port in argument 1 and prints what comes back until the connection is closed.
CLIENT = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as channel:
    try:
        channel.sendall(sys.argv[2].encode())
        sys.stdout.write(repr(channel.recv(100)))
    except ConnectionError:
        sys.stdout.write(repr(b""))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp("build")
    target = build / "omfs_coordinator.so"
    command = ["make", "-C", str(ROOT / "plugins"), f"BUILD={build}", str(target)]
    subprocess.run(command, check=True, timeout=LIMIT, capture_output=True)
    return build


@pytest.fixture(params=STAND_INS)
def closed(
    request: pytest.FixtureRequest, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    monkeypatch.setenv("OMFS_LIB", str(library))
    monkeypatch.chdir(tmp_path)
    bench = make(tmp_path, request.param)
    yield bench
    for program in bench.started:
        program.kill()


def answer(port: str, text: str, uid: int) -> str:
    client = ["/usr/bin/python3", "-c", CLIENT, port, text]
    return subprocess.run(
        client, user=uid, group=uid, extra_groups=[], cwd="/", check=True, timeout=LIMIT, capture_output=True, text=True
    ).stdout


def test_only_its_own_user_reaches_the_coordinator(closed: Bench, tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = closed.running("count", out, 0, 0.02, 5)
    port = Path(program.scratch.port_file).read_text()
    listening = f":{int(port):04X} 00000000:0000 0A"
    assert [line for line in Path("/proc/net/tcp").read_text().splitlines() if f" 0100007F{listening}" in line]
    hostile = [f'{{"command": "{command}"}}\n' for command in ("status", "list", "kcheckpoint", "kill", "quit")]
    hello = '{"hello": 1, "pid": 1, "virtual": 1, "prog": "x", "upid": "x", "state": "WorkerState::RESTARTING"}\n'
    for text in (*hostile, hello, "garbage\n", ""):
        assert answer(port, text, NOBODY) == "b''", text
    assert "peers" in answer(port, hostile[0], os.geteuid())
    counted_further(out, 2)
    program = closed.restart(*closed.stop(program))
    finish(out)
    assert program.wait(LIMIT) == 5
    assert is_gapless(out)


def test_a_library_that_is_missing_is_not_preloaded_and_others_are_kept(tmp_path: Path) -> None:
    environment = {"OMFS_LIB": str(tmp_path), "LD_PRELOAD": "/x.so"}
    assert closed_to_others(environment) == environment
    (tmp_path / "omfs_coordinator.so").touch()
    assert closed_to_others(environment)["LD_PRELOAD"] == f"{tmp_path}/omfs_coordinator.so:/x.so"
