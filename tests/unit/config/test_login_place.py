"""Where omfsd answers, as commands read it from the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.config.load import parse_config
from omfs_daemon.config.login_place import HostPort, LoginPlace, host_port
from omfs_daemon.config.socket_path import DaemonPlaces, daemon_places
from omfs_daemon.errors import ConfigError

SOCKET = Path("/run/omfs/omfs.sock")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("head:9346", HostPort("head", 9346)),
        ("10.0.0.1:1", HostPort("10.0.0.1", 1)),
        ("[fd00::1]:65535", HostPort("fd00::1", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: HostPort) -> None:
    assert host_port(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "head", "head:", ":9346", "head:0", "head:65536", "head:x", "a b:1", "fd00::1:1"])
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="must be a host and a port"):
        host_port(text)
    with pytest.raises(ConfigError, match=r"^omfs\.toml: daemon\.login_address = [^\n]*: must "):
        parse_config(f'[daemon]\nuser = "omfs"\nlogin_address = "{text}"\n', "omfs.toml")


def test_login_nodes_must_know_omfsds_user() -> None:
    with pytest.raises(ConfigError, match=r"omfs\.toml: daemon\.login_address: needs daemon\.user"):
        parse_config('[daemon]\nlogin_address = "head:9346"\n', "omfs.toml")


def test_commands_read_it_without_the_rest_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "omfs.toml"
    path.write_text(
        '[slurm]\nconf = "/a/slurm.conf"\n[daemon]\nuser = "omfs"\nlogin_address = "head:9346"\n[policy]\nx = 1\n'
    )
    login = LoginPlace(HostPort("head", 9346), "omfs", Path("/a/slurm.conf"))
    assert daemon_places(path) == DaemonPlaces(SOCKET, login)
    path.write_text("[policy]\nquantum_seconds = 5\n")
    assert daemon_places(path) == DaemonPlaces(SOCKET, None)


@pytest.mark.parametrize(
    "text",
    [
        "daemon = 7\n",
        "[daemon]\nrun_dir = 7\n",
        '[daemon]\nrun_dir = "relative"\n',
        '[daemon]\nlogin_address = "head:9346"\n',
        '[daemon]\nuser = "omfs"\nlogin_address = 7\n',
        '[daemon]\nuser = "omfs"\nlogin_address = "head"\n',
        '[daemon]\nuser = ["omfs"]\nlogin_address = "head:9346"\n',
        'slurm = 7\n[daemon]\nuser = "omfs"\nlogin_address = "head:9346"\n',
    ],
)
def test_what_is_wrong_is_left_to_who_says_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "omfs.toml"
    path.write_text(text)
    assert daemon_places(path) is None
