"""The library that closes DMTCP's coordinator to other users, tried as another user."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.omfs_run.drivers.dmtcp.own_coordinator import closed_to_others
from tests.support.dmtcp_bench import REAL, STAND_INS, Bench, counted_further, finish, is_gapless, make
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
    targets = [str(build / name) for name in ("omfs_coordinator.so", "omfs_children.so")]
    command = ["make", "-C", str(ROOT / "plugins"), f"BUILD={build}", *targets]
    subprocess.run(command, check=True, timeout=LIMIT, capture_output=True)
    return build


@pytest.fixture(params=STAND_INS + (["real"] if REAL else []))
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
    if closed.is_real:
        attack_with_commands(closed, port)
    else:
        attack_with_messages(port)
    with silent(port):
        counted_further(out, 2)
        assert program.ready()  # its own user's
        assert (program.own.begun, program.own.killed) == (0, False)
        generation, image = closed.stop(program)
    program = closed.restart(generation, image)
    finish(out)
    assert program.wait(LIMIT) == 5
    assert is_gapless(out)


def attack_with_messages(port: str) -> None:
    hostile = [f'{{"command": "{command}"}}\n' for command in ("status", "list", "kcheckpoint", "kill", "quit")]
    hello = '{"hello": 1, "pid": 1, "virtual": 1, "prog": "x", "upid": "x", "state": "WorkerState::RESTARTING"}\n'
    for text in (*hostile, hello, "garbage\n", ""):
        assert answer(port, text, NOBODY) == "b''", text
    assert "peers" in answer(port, hostile[0], os.geteuid())


def attack_with_commands(bench: Bench, port: str) -> None:
    """The real DMTCP's own commands, and what is none."""
    where = ("--coord-host", "127.0.0.1", "--coord-port", port)
    for option in ("-s", "-l", "-c", "-bc", "-kc", "-k", "-q", "-i 5"):
        done = as_nobody(bench.bin / "dmtcp_command", *where, *option.split())
        # Exit codes tell nothing (-q: 0 without an answer): what counts is that the program runs on.
        assert "NUM_PEERS" not in done.stdout and "RUNNING" not in done.stdout, done
    assert as_nobody(bench.bin / "dmtcp_launch", "--join-coordinator", *where, "/bin/true").returncode != 0
    for text in ("garbage\n", "\1\2garbage" * 1000, ""):
        assert answer(port, text, NOBODY) == "b''", text


def as_nobody(*command: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(
        words, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", timeout=LIMIT, capture_output=True, text=True
    )


@contextlib.contextmanager
def silent(port: str) -> Iterator[None]:
    """Connections of another user who says nothing."""
    made = f"kept = [socket.create_connection(('127.0.0.1', {port})) for _ in range(3)]"
    code = f"import socket, sys; {made}; print(flush=True); sys.stdin.read()"
    client = subprocess.Popen(
        ["/usr/bin/python3", "-c", code],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert client.stdout is not None and client.stdout.readline() == b"\n"
        yield
    finally:
        client.communicate(timeout=LIMIT)


def test_a_library_that_is_missing_is_not_preloaded_and_others_are_kept(tmp_path: Path) -> None:
    environment = {"OMFS_LIB": str(tmp_path), "LD_PRELOAD": "/x.so"}
    assert closed_to_others(environment) == environment
    (tmp_path / "omfs_coordinator.so").touch()
    assert closed_to_others(environment)["LD_PRELOAD"] == f"{tmp_path}/omfs_coordinator.so:/x.so"
