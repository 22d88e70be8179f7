"""Where omfsd answers users of login nodes: `daemon.login_address`, here and there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_HOST_PORT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")


class HostPort(NamedTuple):
    """As sockets take it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class LoginPlace(NamedTuple):
    """What a client has to know. ``user``: omfsd's; ``slurm_conf`` says where munged is."""

    address: HostPort
    user: str
    slurm_conf: Path | None


def host_port(text: str) -> HostPort:
    """``head:9346``, ``10.0.0.1:9346``, or ``[fd00::1]:9346``; ValueError that says so."""
    found = _HOST_PORT.fullmatch(text)
    port = int(found["port"]) if found else 0
    if found is None or not 0 < port < 1 << 16:
        raise ValueError('must be a host and a port, as in "head:9346" or "[fd00::1]:9346"')
    return HostPort(found["v6"] or found["host"], port)
