"""Requests from login nodes, by credentials of a real munged: who is answered what, and what nobody can do."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import structlog

from omfs_daemon.cli.check_site import host_findings
from omfs_daemon.config.load import parse_config
from omfs_daemon.config.login_place import HostPort
from omfs_daemon.daemon.api import munge as munge_module
from omfs_daemon.daemon.api.callers import Caller, Peer, Role
from omfs_daemon.daemon.api.login_client import LoginClient
from omfs_daemon.daemon.api.login_messages import LONGEST_REQUEST, opened_answer, sealed_answer, sealed_request
from omfs_daemon.daemon.api.login_messages import LoginRequest as Request
from omfs_daemon.daemon.api.login_server import CONNECTIONS_PER_HOST, CONNECTIONS_PER_USER, LoginServer
from omfs_daemon.daemon.api.munge import LONGEST_PAYLOAD, Munge, MungeError, MungeFault
from omfs_daemon.daemon.api.operations import OPERATIONS
from omfs_daemon.daemon.api.requests import Requests
from omfs_daemon.errors import ConfigError, ControlError, DeniedError, UnreachableError
from omfs_daemon.slurm.settings_check import Level
from tests.support.munged import MungeOf, running_munged
from tests.support.waiting import LIMIT, wait_until

ANY = "0.0.0.0"  # noqa: S104
DAEMON, ALICE, BOB = 0, 12345, 12346
NONCE = b"0123456789abcdef" * 2
STATUS = b'{"op": "status"}'


class Recorder:
    """Answers with what it was asked."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []
        self.wait = threading.Event()
        self.wait.set()

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        def answer(caller: Caller, *arguments: object) -> dict[str, Any]:
            self.callers.append(caller)
            self.wait.wait(LIMIT)
            if arguments == ("none",):
                raise ControlError("no job none")
            if arguments == ("long",):
                return {"text": "x" * LONGEST_PAYLOAD}
            return {"op": name}

        return answer


class Stand:
    """A server that runs as root, and munged, which it shares with its clients."""

    def __init__(
        self,
        munged: str,
        server_munged: str = "",
        request_seconds: float = LIMIT,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.munged = munged
        self.handler = Recorder()
        requests = Requests(self.handler)
        munge = Munge(server_munged or munged)
        self.server = LoginServer(HostPort("127.0.0.1", 0), requests, munge, request_seconds, monotonic)
        self.address = HostPort("127.0.0.1", self.server.port)

    def client(self, uid: int = ALICE, daemon: int = DAEMON, munged: str = "") -> LoginClient:
        return LoginClient(self.address, daemon, MungeOf(munged or self.munged, uid), LIMIT)

    def send(self, line: bytes) -> bytes:
        with socket.create_connection(self.address, LIMIT) as connection:
            connection.sendall(line)
            with connection.makefile("rb") as file:
                return file.readline()


@pytest.fixture(scope="module")
def munged() -> Iterator[str]:
    with running_munged() as found:
        yield found


@pytest.fixture
def stand(munged: str) -> Iterator[Stand]:
    made = Stand(munged)
    with made.server:
        yield made


# -- who is answered what --------------------------------------------------------------------------------------------


def test_the_daemon_is_told_who_asks_and_only_they_read_the_answer(stand: Stand) -> None:
    assert stand.client().status() == {"op": "status"}
    assert stand.handler.callers == [Caller(ALICE, 0, "12345", Role.USER, is_remote=True)]
    line = stand.send(sealed_request(MungeOf(stand.munged, ALICE), DAEMON, NONCE, STATUS))
    with pytest.raises(MungeError) as refused:
        MungeOf(stand.munged, BOB).decode(line.strip())
    assert refused.value.fault is MungeFault.UNAUTHORIZED
    answer = opened_answer(MungeOf(stand.munged, ALICE), DAEMON, NONCE, line.strip())
    assert json.loads(answer) == {"ok": {"op": "status"}}


def test_nobody_is_an_operator_on_a_login_node(stand: Stand) -> None:
    arguments = {
        "why": {"job": "7"},
        "when": {"jobs": ["7"]},
        "where": {"words": [["job.sh, line 2", "-n4"]]},
        "bound_chance": {"job_class": "beamline", "cpus": 4, "limit": 60},
    }
    for name, operation in OPERATIONS.items():
        client = stand.client(uid=0)
        ask = lambda client=client, name=name: client._request(name, **arguments.get(name, {}))  # noqa: E731
        if operation.role is Role.OPERATOR:
            with pytest.raises(DeniedError, match=f"{name}: only on omfsd's own host"):
                ask()
        else:
            assert ask() == {"op": name}
    assert {caller.role for caller in stand.handler.callers} == {Role.USER}


def test_kinds_of_failure_are_told_apart(stand: Stand) -> None:
    with pytest.raises(ControlError, match="no job none"):
        stand.client().why("none")
    with pytest.raises(ConfigError, match="job: must be text"):
        stand.client().why("7" * 2000)
    with pytest.raises(ControlError, match="too long for a login node"):
        stand.client().why("long")
    with pytest.raises(ConfigError, match="longer than 64 KiB"):
        stand.client().where([("word", "x" * LONGEST_REQUEST)])


# -- what nobody can do ----------------------------------------------------------------------------------------------


def test_no_request_counts_twice(stand: Stand) -> None:
    line = sealed_request(MungeOf(stand.munged, ALICE), DAEMON, NONCE, STATUS)
    assert stand.send(line).startswith(b"MUNGE:")
    assert stand.send(line) == b"omfs-refusal replayed\n"
    assert len(stand.handler.callers) == 1


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"\n", b"invalid"),
        (b'{"op": "status"}\n', b"invalid"),
        (b"GET / HTTP/1.1\r\n", b"invalid"),
        (b"MUNGE:AAAA:\n", b"invalid"),
        (b"MUNGE:AwQFAAAn1RPqyR+fAGADM5Hb:\n", b"invalid"),
        (b"MUNGE:\0AAAA:\n", b"invalid"),
        (b"MUNGE:" + b"A" * LONGEST_REQUEST + b":\n", b"too_long"),
    ],
)
def test_what_is_no_credential_is_refused(stand: Stand, line: bytes, word: bytes) -> None:
    with structlog.testing.capture_logs() as log:
        try:
            answer = stand.send(line)
        except ConnectionError:  # who sends more than is read may find it reset before they read the word
            answer = b""
    assert answer == b"omfs-refusal " + word + b"\n" or (word == b"too_long" and not answer)
    assert (stand.handler.callers, log) == ([], [])


@pytest.mark.parametrize("payload", [STATUS, b"", b"omfs-answer " + NONCE + b"\n" + STATUS, b"omfs-request x\n{}"])
def test_a_credential_that_is_for_another_program_is_refused(stand: Stand, payload: bytes) -> None:
    assert stand.send(MungeOf(stand.munged, ALICE).encode(payload, DAEMON) + b"\n") == b"omfs-refusal invalid\n"
    assert stand.handler.callers == []


def test_what_is_in_a_credential_is_hostile_too(stand: Stand) -> None:
    munge = MungeOf(stand.munged, ALICE)
    halves = (b'{"op": "why", "args": {"job": "\\ud800"}}', b'{"op": "why", "args": {"job": "\xed\xa0\x80"}}')
    for request in (b"nonsense", b"[" * 10_000, b"\xff", b"[]", *halves):
        line = stand.send(sealed_request(munge, DAEMON, NONCE, request))
        assert json.loads(opened_answer(munge, DAEMON, NONCE, line.strip()))["kind"] == "input"
    assert stand.handler.callers == []


def test_each_fault_is_one_line(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreachableError, match=r"omfsd is not the user that daemon\.user names"):
        stand.client(daemon=BOB).status()
    with running_munged() as other, pytest.raises(UnreachableError, match="another key on this host"):
        stand.client(munged=other).status()
    with pytest.raises(UnreachableError, match=r"munged on this host makes no credential: .*No such file"):
        stand.client(munged="/nonexistent/socket").status()
    monkeypatch.setattr(munge_module, "TTL_SECONDS", 1)
    late = sealed_request(MungeOf(stand.munged, ALICE), DAEMON, NONCE, STATUS)
    wait_until(lambda: stand.send(late) == b"omfs-refusal clock\n", "the credential to expire")
    stand.server.close()
    with pytest.raises(UnreachableError, match="no omfsd listens here"):
        stand.client().status()


def test_without_munged_only_login_nodes_get_no_answer(munged: str) -> None:
    now = [1000.0]
    made = Stand(munged, server_munged="/nonexistent/socket", monotonic=lambda: now[0])
    with made.server, structlog.testing.capture_logs() as log:
        for number_of_lines in (1, 1, 2):
            with pytest.raises(UnreachableError, match="munged does not answer on omfsd's host"):
                made.client().status()
            assert [line["event"] for line in log] == ["login_munge_failed"] * number_of_lines, "once in a minute"
            now[0] += 40


@contextmanager
def impostor(answer: Callable[[bytes], bytes]) -> Iterator[HostPort]:
    """Another program at the address, which answers each line as it likes until the listener is closed."""

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, connection.makefile("rb") as file:
                    connection.sendall(answer(file.readline()))

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield HostPort(*listener.getsockname())
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(LIMIT)


def test_another_program_at_the_address_reads_nothing_and_is_not_believed(stand: Stand) -> None:
    seen: list[bytes] = []
    alice = MungeOf(stand.munged, ALICE)
    old = stand.send(sealed_request(alice, DAEMON, NONCE, STATUS))
    forged = sealed_answer(MungeOf(stand.munged, BOB), Request(Peer(ALICE, 0), NONCE, b""), b'{"ok": {}}')
    for line, why in [
        (forged, "the answer is from uid 12346, but omfsd's is 0"),
        (old, "the answer is to another request"),
        (b'{"ok": {}}\n', "the answer is not omfsd's"),
    ]:

        def reply(request: bytes, line: bytes = line) -> bytes:
            seen.append(request)
            return line

        with impostor(reply) as address, pytest.raises(UnreachableError, match=why):
            LoginClient(address, DAEMON, alice, LIMIT).status()
    for request in seen:
        with pytest.raises(MungeError) as refused:
            MungeOf(stand.munged, BOB).decode(request.strip())
        assert refused.value.fault is MungeFault.UNAUTHORIZED


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_a_client_that_does_not_finish_its_request_is_cut_off(munged: str) -> None:
    made = Stand(munged, request_seconds=0.1)
    with made.server, socket.create_connection(made.address, LIMIT) as slow:
        slow.sendall(b"MUNGE:")
        assert slow.recv(10) == b""


def test_idle_connections_of_a_host_keep_nobody_on_it_out(stand: Stand) -> None:
    with ExitStack() as held:
        idle = [held.enter_context(socket.create_connection(stand.address, LIMIT)) for _ in range(300)]
        assert idle[0].recv(1) == b"", "the oldest have made room"
        wait_until(lambda: stand.server.connections <= CONNECTIONS_PER_HOST, "the bound")
        assert stand.client().status() == {"op": "status"}
    wait_until(lambda: not stand.server.connections, "all to be forgotten")


def test_one_user_cannot_keep_the_others_out(stand: Stand) -> None:
    """The others of the same user are refused; another user waits for no turn but one."""
    stand.handler.wait.clear()
    alice = MungeOf(stand.munged, ALICE)
    lines = [sealed_request(alice, DAEMON, NONCE, STATUS) for _ in range(CONNECTIONS_PER_USER + 1)]
    answers: list[bytes] = []
    waiting = [threading.Thread(target=lambda line=line: answers.append(stand.send(line))) for line in lines]
    for thread in waiting:
        thread.start()
    wait_until(lambda: answers, "one to be refused")
    stand.handler.wait.set()
    for thread in waiting:
        thread.join(LIMIT)
    found = [json.loads(opened_answer(alice, DAEMON, NONCE, line.strip())) for line in answers]
    assert found[0] == {"error": "too many requests at once: try again", "kind": "refused"}
    assert found[1:] == [{"ok": {"op": "status"}}] * CONNECTIONS_PER_USER
    assert stand.client(BOB).status() == {"op": "status"}


def test_who_is_cut_off_asks_again(stand: Stand) -> None:
    """With a new credential: no request counts twice."""
    seen: list[bytes] = []

    def reply(request: bytes) -> bytes:
        seen.append(request)
        return [b"", b"omfs-refusal busy\n", b"omfs-refusal invalid\n"][len(seen) - 1]

    with impostor(reply) as address, pytest.raises(UnreachableError, match="another key"):
        LoginClient(address, DAEMON, MungeOf(stand.munged, ALICE), LIMIT).status()
    assert len(set(seen)) == 3


# -- omfs check ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "metrics", "socket_of_munge", "level", "what"),
    [
        ("127.0.0.1:9346", "127.0.0.1", "", Level.WARN, "loopback, which no login node reaches"),
        (f"{ANY}:9346", "127.0.0.1", "", Level.OK, "for users on login nodes"),
        ("127.0.0.1:9345", "127.0.0.1", "", Level.FAIL, "the metrics are served there"),
        ("127.0.0.1:9345", ANY, "", Level.FAIL, "the metrics are served there"),
        ("192.0.2.1:9346", "127.0.0.1", "", Level.FAIL, "omfsd cannot listen there"),
        ("127.0.0.1:9346", "127.0.0.1", "/nonexistent/socket", Level.FAIL, "login nodes get no answer"),
    ],
)
def test_the_check_says_whether_it_can_work(
    munged: str, tmp_path: Path, address: str, metrics: str, socket_of_munge: str, level: Level, what: str
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"AuthType=auth/munge\nAuthInfo=cred_expire=5,socket={socket_of_munge or munged}\n")
    text = f'[slurm]\nconf = "{conf}"\n[daemon]\nuser = "root"\nlogin_address = "{address}"\n'
    config = parse_config(f'{text}[metrics]\naddress = "{metrics}"\n', "test")
    (found,) = [finding for finding in host_findings(config) if finding.subject == "login_address"]
    assert found.level is level and what in found.what
