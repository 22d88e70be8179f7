"""The root process as a service: who has connected counts, and the configuration as it is then."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from omfs_daemon import __version__
from omfs_daemon.daemon.api.callers import Peer
from omfs_daemon.daemon.root_process.messages import HelloRequest, RootProcessError, read_reply, request_bytes
from omfs_daemon.daemon.root_process.root_client import RootClient
from omfs_daemon.daemon.root_process.root_service import passed_socket, replier, serve_connections
from omfs_daemon.errors import ConfigError

DAEMON = Peer(12345, 12345)


class Service:
    """Listens like omfs-root.socket, and serves until it is stopped."""

    def __init__(self, path: Path, config: Path, peer: Peer) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen()
        arguments = (self._listener, lambda peer: replier(config, peer), lambda _: peer)
        self._thread = threading.Thread(target=serve_connections, args=arguments)
        self._thread.start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self.path.unlink()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Root's, for a daemon with the uid of ``DAEMON``."""
    path = tmp_path / "omfs.toml"
    path.write_text('[daemon]\nuser = "omfs"\n')
    module = "omfs_daemon.daemon.root_process.root_service"
    monkeypatch.setattr(f"{module}.is_roots", lambda path: path.exists() and not path.stat().st_mode & 0o022)
    user = type("User", (), {"pw_uid": DAEMON.uid, "pw_name": "omfs"})
    monkeypatch.setattr(f"{module}.daemon_user", lambda daemon: None if daemon.user is None else user)
    return path


@pytest.fixture
def client(tmp_path: Path) -> Iterator[RootClient]:
    made = RootClient(tmp_path / "socket", fanout=64)
    yield made
    made.close()


def refusal(config: Path, peer: Peer = DAEMON, version: str = __version__) -> str:
    """What a peer that asks for nothing is told; "" if it is served."""
    try:
        read_reply(replier(config, peer)(request_bytes(HelloRequest(do="hello", version=version))))
    except RootProcessError as error:
        return str(error)
    return ""


def test_the_daemon_is_served_and_nobody_else(config: Path) -> None:
    assert refusal(config) == ""
    with capture_logs() as logs:
        assert refusal(config, Peer(0, 0)) == "uid 0 has connected: only omfs (daemon.user) may"
    assert [(line["event"], line["uid"]) for line in logs] == [("root_connection_refused", 0)]


def test_a_daemon_of_another_version_is_told_what_to_restart(config: Path) -> None:
    assert refusal(config, version="0.0.1").endswith("systemctl restart omfs-root.service omfsd.service")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("writable", "must belong to root, and be writable for root only"),
        ("writable directory", "must belong to root, and be writable for root only"),
        ("no user", "daemon.user is not set"),
        ("broken", "omfs.toml"),
        ("missing", "must belong to root"),
    ],
)
def test_a_configuration_that_is_not_safe_or_wrong_is_refused(config: Path, wrong: str, why: str) -> None:
    match wrong:
        case "writable":
            config.chmod(0o666)
        case "writable directory":
            config.parent.chmod(0o777)
        case "no user":
            config.write_text("")
        case "broken":
            config.write_text("[daemon\n")
        case "missing":
            config = config.with_name("none.toml")
    assert why in refusal(config)


def test_a_service_that_was_restarted_is_reached_again(config: Path, client: RootClient, tmp_path: Path) -> None:
    first = Service(tmp_path / "socket", config, DAEMON)
    client.greet()
    first.stop()
    client.close()  # as when the service's process has ended
    second = Service(tmp_path / "socket", config, DAEMON)
    client.greet()
    client.close()
    second.stop()


def test_without_a_service_each_call_fails_and_one_line_is_logged(client: RootClient) -> None:
    with capture_logs() as logs:
        for _ in range(2):
            with pytest.raises(RootProcessError, match="no root process answers: see `systemctl status"):
                client.greet()
    assert [line["event"] for line in logs] == ["root_process_ended"]


def test_a_refused_daemon_hears_why(config: Path, client: RootClient, tmp_path: Path) -> None:
    service = Service(tmp_path / "socket", config, Peer(4711, 4711))
    with pytest.raises(RootProcessError, match="uid 4711 has connected"):
        client.greet()
    client.close()
    service.stop()


@pytest.mark.parametrize("passed", [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_FDS": "1"}])
def test_only_what_systemd_has_passed_is_taken(passed: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"systemctl start omfs-root\.socket"):
        passed_socket(passed)
    with pytest.raises(ConfigError):
        passed_socket({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2"})
