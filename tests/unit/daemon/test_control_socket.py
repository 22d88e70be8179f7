"""The control socket: who may do what, and what bad clients cannot do."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import structlog

from omfs_daemon.daemon.api import callers
from omfs_daemon.daemon.api.callers import Caller, Peer, Role, operators, peer_of
from omfs_daemon.daemon.api.client import Client
from omfs_daemon.daemon.api.connections import CONNECTIONS_PER_USER, MOST_CONNECTIONS
from omfs_daemon.daemon.api.control_socket import LONGEST_REQUEST, ControlServer
from omfs_daemon.daemon.api.operations import OPERATIONS
from omfs_daemon.errors import ConfigError, ControlError, DeniedError, UnreachableError
from tests.support.waiting import LIMIT, wait_until

ROOT, USER = Peer(0, 0), Peer(12345, 12345)


class Recorder:
    """A handler that answers with what it was asked."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []
        self.wait = threading.Event()
        self.wait.set()

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        def answer(caller: Caller, *arguments: object) -> dict[str, Any]:
            self.callers.append(caller)
            self.wait.wait(LIMIT)
            if arguments == ("none",):
                raise ControlError("no job\nnone")
            if arguments == ("input",):
                raise ConfigError("wrong")
            if arguments == ("bug",):
                raise KeyError("secret")
            return {"op": name, "args": list(arguments)}

        return answer


class Place:
    """A running server whose peers are whoever the test says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.peer = ROOT
        self.peers: list[Peer] = []
        self.handler = Recorder()
        self.server: ControlServer | None = None

    def peer_of(self, connection: socket.socket) -> Peer:
        """``peers`` come first, one after the other."""
        return self.peers.pop(0) if self.peers else self.peer

    @property
    def connections(self) -> int:
        assert self.server is not None
        return self.server.connections

    def ask(self, line: bytes) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(LIMIT)
            connection.connect(str(self.path))
            with suppress(OSError):  # the server may have answered before it has read all
                connection.sendall(line)
            with connection.makefile("rb") as file:
                return json.loads(file.readline())

    def call(self, operation: str, **arguments: object) -> dict[str, Any]:
        return self.ask(json.dumps({"op": operation, "args": arguments}).encode() + b"\n")


@contextmanager
def serving(path: Path, request_seconds: float) -> Iterator[Place]:
    made = Place(path)
    server = ControlServer(
        made.path, made.handler, operators(None, None), peer=made.peer_of, request_seconds=request_seconds
    )
    made.server = server
    with server:
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with serving(tmp_path / "omfs.sock", LIMIT) as made:
        yield made


ARGUMENTS: dict[str, dict[str, object]] = {
    "why": {"job": "7"},
    "when": {"jobs": ["7"]},
    "where": {"words": [["job.sh, line 2", "-n4"]]},
    "bound_chance": {"job_class": "beamline", "cpus": 4, "limit": 60},
    "change_entitlements": {"change": {}},
    "plan_with": {"text": "", "source": "omfs.toml"},
    "release": {"job": "7"},
    "exempt": {"name": "7"},
    "end_exemption": {"name": "7"},
}
FOR_OPERATORS = {
    "change_entitlements", "pause", "resume", "reload", "shadow", "learn", "forget_user", "plan_with", "release",
    "exempt", "end_exemption", "exemptions", "wait_hours",
}  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS)
def test_table_of_roles(place: Place, operation: str) -> None:
    denied = operation in FOR_OPERATORS
    assert place.call(operation, **ARGUMENTS.get(operation, {}))["ok"]["op"] == operation
    place.peer = USER
    answer = place.call(operation, **ARGUMENTS.get(operation, {}))
    if denied:
        assert answer["kind"] == "denied"
        assert answer["error"].endswith("only root, SlurmUser and operators may do this, not 12345")
    else:
        assert answer["ok"]["op"] == operation
    assert [caller.role for caller in place.handler.callers] == [Role.OPERATOR] + [Role.USER] * (not denied)


def test_handler_is_told_who_asks(place: Place) -> None:
    place.peer = USER
    place.call("status")
    assert place.handler.callers == [Caller(12345, 12345, "12345", Role.USER)]


def test_arguments_arrive_with_their_defaults(place: Place) -> None:
    assert place.call("history")["ok"]["args"] == [20, 0.0]
    assert place.call("history", limit=3, since=17)["ok"]["args"] == [3, 17.0]
    assert place.call("pause", reason="x")["ok"]["args"] == ["x"]


@pytest.mark.parametrize(
    ("request_line", "error"),
    [
        (b"nonsense\n", "request: must be JSON"),
        (b"[" * 100_000 + b"\n", "request: must be JSON"),
        (b"\xff\n", "request: must be JSON"),
        (b"[]\n", "request: must be an object"),
        (b'{"op": "statsu"}\n', "op = 'statsu': unknown; did you mean 'status'?"),
        (b'{"op": ["status"]}\n', "op = \"['status']\": unknown"),
        (b'{"op": "__init__"}\n', "op = '__init__': unknown; one of status"),
        (b'{"op": "status", "args": []}\n', "args: status takes no arguments"),
        (b'{"op": "why", "args": {"jbo": "7"}}\n', "args: why takes job"),
        (b'{"op": "why", "args": {"job": 7}}\n', "job: must be text"),
        (b'{"op": "history", "args": {"limit": 0}}\n', "limit = 0: must be a whole number"),
        (b'{"op": "history", "args": {"limit": true}}\n', "limit = True: must be a whole number"),
        (b'{"op": "history", "args": {"since": NaN}}\n', "since = nan: must be seconds"),
        (b'{"op": "change_entitlements", "args": {"change": 1}}\n', "change: must be an object"),
        (b'{"op": "where", "args": {}}\n', "words: must be a list of at most 1000 words"),
        (b'{"op": "where", "args": {"words": [["x"]]}}\n', "words: must be a list of at most 1000 words"),
        (b'{"op": "where", "args": {"words": [["x", 4]]}}\n', "words: must be texts of at most"),
        (b'{"op": "why", "args": {"job": "\\ud800"}}\n', "request: must be JSON"),  # A10
        (b'{"op": "\\udfff"}\n', "request: must be JSON"),
        (b'{"op": "why", "args": {"\\udc00": 1}}\n', "request: must be JSON"),
        (b"x" * (LONGEST_REQUEST + 10), "request: must be one line of at most"),
    ],
)
def test_wrong_requests(place: Place, request_line: bytes, error: str) -> None:
    answer = place.ask(request_line)
    assert answer["kind"] == "input"
    assert answer["error"].startswith(error)
    assert place.handler.callers == []


@pytest.mark.parametrize(
    "line",
    [
        b'{"op": "why", "args": {"job": "\xed\xa0\x80"}}',
        '{"op": "why", "args": {"job": "\\ud800"}}'.encode("utf-16-le"),
        '{"op": "why", "args": {"job": "\\ud800"}}'.encode("utf-32-be"),
    ],
)
def test_k18_no_encoding_hides_half_of_a_surrogate_pair(place: Place, line: bytes) -> None:
    answer = place.ask(line + b"\n")
    assert (answer["kind"], answer["error"].startswith("request: must be JSON")) == ("input", True)
    assert place.handler.callers == []


def test_errors_of_the_handler_become_one_line(place: Place) -> None:
    assert place.call("why", job="none") == {"error": "no job none", "kind": "refused"}
    assert place.call("why", job="input") == {"error": "wrong", "kind": "input"}
    fault = place.call("why", job="bug")
    assert fault["kind"] == "fault" and "secret" not in fault["error"]


def test_slow_client_delays_nobody(place: Place) -> None:
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(str(place.path))
        slow.sendall(b'{"op":')
        assert "ok" in place.call("status")
        slow.setblocking(False)
        with pytest.raises(BlockingIOError):  # it is still connected, without an answer
            slow.recv(10)
        slow.settimeout(LIMIT)
        slow.sendall(b'"status"}\n')
        assert b'"ok"' in slow.recv(1000)


def test_client_that_does_not_finish_its_request_is_cut_off(tmp_path: Path) -> None:
    with serving(tmp_path / "omfs.sock", 0.1) as place, socket.socket(socket.AF_UNIX) as slow:
        slow.settimeout(LIMIT)
        slow.connect(str(place.path))
        slow.sendall(b'{"op":')
        assert slow.recv(10) == b""
        assert place.handler.callers == []


def test_client_that_hangs_up_costs_nothing(place: Place) -> None:
    for _ in range(2 * CONNECTIONS_PER_USER):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(place.path))
    wait_until(lambda: "ok" in place.call("status"), "the server to have noticed")


def test_one_user_cannot_keep_the_others_out(place: Place) -> None:
    place.peer = USER
    place.handler.wait.clear()
    waiting = [threading.Thread(target=place.call, args=("status",)) for _ in range(CONNECTIONS_PER_USER)]
    for thread in waiting:
        thread.start()
    wait_until(lambda: place.connections == CONNECTIONS_PER_USER, "the requests")
    assert place.call("status")["error"] == "too many requests at once: try again"
    place.handler.wait.set()
    place.peer = ROOT
    assert "ok" in place.call("status")
    for thread in waiting:
        thread.join(LIMIT)


def test_a07_many_users_at_once_keep_nobody_out(place: Place) -> None:
    """One person has as many user ids as subuid(5) gives, each with as many idle connections as a user may have."""
    uids = range(100_000, 100_020)
    place.peers = [Peer(uid, uid) for uid in uids for _ in range(CONNECTIONS_PER_USER)]
    with ExitStack() as held:
        idle = [held.enter_context(socket.socket(socket.AF_UNIX)) for _ in place.peers]
        for one in idle:
            one.settimeout(LIMIT)
            one.connect(str(place.path))
        assert idle[0].recv(1) == b"", "the oldest have made room"
        wait_until(lambda: not place.peers, "all to be accepted")
        assert place.connections == MOST_CONNECTIONS
        place.peer = ROOT
        assert "ok" in place.call("status")
        place.peer = USER
        assert "ok" in place.call("status")
    wait_until(lambda: not place.connections, "all to be forgotten")


def test_a11_who_hangs_up_at_once_leaves_no_line_in_the_log(place: Place) -> None:
    with structlog.testing.capture_logs() as lines, ExitStack() as held:
        place.peers, place.peer = [USER] * (CONNECTIONS_PER_USER + 400), ROOT
        for _ in range(CONNECTIONS_PER_USER):
            held.enter_context(socket.socket(socket.AF_UNIX)).connect(str(place.path))
        for _ in range(400):
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(str(place.path))
                with suppress(OSError):
                    one.sendall(b'{"op": "status"}\n')
        wait_until(lambda: not place.peers, "all to be accepted")
        assert "ok" in place.call("status")
    assert lines == []


# -- the socket file ---------------------------------------------------------------------------------


def server_at(path: Path) -> ControlServer:
    return ControlServer(path, Recorder(), operators(None, None))


def test_anybody_may_connect(place: Place) -> None:
    assert place.path.stat().st_mode & 0o777 == 0o666


def test_stale_socket_is_replaced_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "omfs.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with server_at(path):
        assert Client(path).status()
    assert not path.exists()


def test_second_daemon_is_refused(place: Place) -> None:
    with pytest.raises(ControlError, match="another omfsd listens there already"):
        server_at(place.path)
    assert "ok" in place.call("status")


def test_other_file_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "omfs.sock"
    path.write_text("precious")
    with pytest.raises(ControlError, match="not a socket"):
        server_at(path)
    assert path.read_text() == "precious"


def test_unwritable_place(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="cannot listen: No such file"):
        server_at(tmp_path / "none" / "omfs.sock")


# -- callers -----------------------------------------------------------------------------------------


def test_kernel_tells_the_peer() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert peer_of(ours) == Peer(os.getuid(), os.getgid())


def test_operators_are_root_slurm_user_and_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "_group_id", {"hpc": 70}.get)
    monkeypatch.setattr(callers, "_groups_of", lambda peer: {peer.gid, 70} if peer.uid == 1001 else {peer.gid})
    may = operators(64030, "hpc")
    assert may(Peer(0, 0)) and may(Peer(64030, 1)) and may(Peer(1001, 1)) and may(Peer(5, 70))
    assert not may(Peer(1002, 1))
    assert not operators(None, None)(Peer(1001, 1))
    assert not operators(None, "no-such-group")(Peer(1001, 1))


def test_unknown_group_gives_nobody_anything() -> None:
    assert not operators(None, "no-such-group-here")(Peer(54321, 54321))


# -- the client --------------------------------------------------------------------------------------


def test_client_tells_the_kinds_of_failure_apart(place: Place, tmp_path: Path) -> None:
    client = Client(place.path)
    place.peer = USER
    with pytest.raises(DeniedError):
        client.pause("x")
    with pytest.raises(ControlError, match="no job none"):
        client.why("none")
    with pytest.raises(ConfigError):
        client.why("input")
    with pytest.raises(UnreachableError, match="no omfsd listens here"):
        Client(tmp_path / "none.sock").status()


def test_client_does_not_wait_for_ever(place: Place) -> None:
    place.handler.wait.clear()
    try:
        with pytest.raises(UnreachableError, match=r"no answer within 0\.2 s"):
            Client(place.path, timeout=0.2).status()
    finally:
        place.handler.wait.set()
