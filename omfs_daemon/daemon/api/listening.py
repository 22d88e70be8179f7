"""Where omfsd answers requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from omfs_daemon.config.login_place import host_port
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.api.callers import Peer
from omfs_daemon.daemon.api.control_socket import ControlServer
from omfs_daemon.daemon.api.login_server import LoginServer
from omfs_daemon.daemon.api.munge import Munge, MungeError
from omfs_daemon.daemon.api.operations import Control
from omfs_daemon.errors import ConfigError
from omfs_daemon.slurm.munge_conf import munge_socket


@contextmanager
def listening(config: Config, control: Control, may_operate: Callable[[Peer], bool]) -> Iterator[None]:
    """On the control socket, and at ``daemon.login_address`` if there is one; ConfigError or ControlError if omfsd
    cannot listen there. It can while munged does not answer."""
    with ControlServer(config.daemon.socket, control, may_operate) as server:
        address = config.daemon.login_address
        if address is None:
            yield
            return
        try:
            munge = Munge(munge_socket(config.slurm.conf))
        except MungeError as error:
            raise ConfigError(f"daemon.login_address = {address}: {error}") from None
        with LoginServer(host_port(address), server.requests, munge):
            yield
