"""Which way a command asks omfsd: over its socket, or from a login node."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from omfs_daemon.config.login_place import HostPort
from omfs_daemon.daemon.api import login_client
from omfs_daemon.daemon.api.client import Client
from omfs_daemon.daemon.api.login_client import LoginClient
from omfs_daemon.daemon.api.munge import MungeError, MungeFault
from omfs_daemon.errors import ConfigError, UnreachableError
from omfs_daemon.terminal.session import Session
from tests.support.waiting import LIMIT

Write = Callable[[str], Session]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def session(more: str) -> Session:
        path = tmp_path / "omfs.toml"
        path.write_text(f'[daemon]\nrun_dir = "{tmp_path}"\n{more}')
        return Session(path, None)

    return session


@pytest.fixture
def without_munge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_client, "Munge", lambda socket: None)


LOGIN = 'user = "root"\nlogin_address = "head:9346"\n'


@pytest.mark.usefixtures("without_munge")
def test_where_the_socket_is_it_is_asked(write: Write, tmp_path: Path) -> None:
    session = write(LOGIN)
    away = session.client()
    assert isinstance(away, LoginClient) and away._address == HostPort("head", 9346) and away._daemon == 0
    (tmp_path / "omfs.sock").touch()
    assert type(session.client()) is Client
    assert type(Session(session.config_path, tmp_path / "other.sock").client()) is Client


@pytest.mark.usefixtures("without_munge")
def test_a_file_that_is_wrong_elsewhere_is_good_enough(write: Write, tmp_path: Path) -> None:
    assert isinstance(write(f"{LOGIN}[policy]\nquantum_seconds = -1\n").client(), LoginClient)
    assert isinstance(write(f"{LOGIN}[policy\n").client(), LoginClient)
    broken = write('login_address = "head:9346"\n[policy\n')
    with pytest.raises(ConfigError, match="must be TOML"):
        broken.client()
    (tmp_path / "omfs.sock").touch()
    assert type(broken.client()) is Client


@pytest.mark.usefixtures("without_munge")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('login_address = "head:9346"\n', "needs daemon.user"),
        ('user = "ro\\u0000ot"\nlogin_address = "head:9346"\n', "must have no NUL"),
        ('user = "root"\nlogin_address = "head"\n', "must be a host and a port"),
        ('user = "no-such-user"\nlogin_address = "head:9346"\n', "must be a user of this host, or omfsd's uid"),
    ],
)
def test_a_wrong_address_is_explained(write: Write, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        write(text).client()


@pytest.mark.usefixtures("without_munge")
def test_omfsds_user_may_be_a_uid(write: Write) -> None:
    client = write('user = "990"\nlogin_address = "head:9346"\n').client()
    assert isinstance(client, LoginClient) and client._daemon == 990


def test_without_libmunge_nothing_is_asked(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(socket: str | None) -> None:
        raise MungeError(MungeFault.MUNGED, "libmunge.so.2 is not installed on this host")

    monkeypatch.setattr(login_client, "Munge", missing)
    with pytest.raises(UnreachableError, match=r"head:9346: cannot be asked: libmunge\.so\.2 is not installed"):
        write(LOGIN).client()


def test_a_question_from_a_login_node_imports_nothing_heavy(write: Write) -> None:
    """Nobody answers at that address, with libmunge or without."""
    session = write(LOGIN.replace("head:9346", "127.0.0.1:1"))
    code = "import sys; from omfs_daemon.cli.main import run\ntry: run()\nfinally: print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code, "-c", str(session.config_path), "status"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 3
    heavy = {"pydantic", "structlog", "numpy", "omfs_daemon.config.load", "omfs_daemon.slurm.commands"}
    assert heavy.isdisjoint(done.stderr.split())
