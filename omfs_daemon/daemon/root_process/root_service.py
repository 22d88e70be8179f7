"""The root process as a service: systemd passes the socket (sd_listen_fds(3)), and omfsd connects.

A connection has what the forked root process has: the fixed list of verbs, and the configuration as it was when omfsd
came. The socket file is omfsd's alone; who has connected is asked of the kernel all the same.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import BoundedSemaphore, Thread

import structlog

from omfs_daemon.config.daemon_user import daemon_user
from omfs_daemon.config.load import load
from omfs_daemon.daemon.api.callers import Peer, peer_of
from omfs_daemon.daemon.node_client.service import transport
from omfs_daemon.daemon.root_process.messages import reply_bytes
from omfs_daemon.daemon.root_process.root_environment import enter_root_environment, is_roots
from omfs_daemon.daemon.root_process.root_process import RootProcess, serve_requests
from omfs_daemon.daemon.systemd_notify import Notifier
from omfs_daemon.errors import ConfigError, OmfsError
from omfs_daemon.slurm.commands.command_gateway import CommandGateway

_FIRST_PASSED = 3
_MOST_CONNECTIONS = 16


def run_root_service(path: Path) -> int:
    """Serve until systemd ends this process; ``path``: of the configuration file. ConfigError if it was not started by
    omfs-root.socket, or not as root."""
    if os.geteuid() != 0:
        raise ConfigError(f"--root-process: must be started as root, not as uid {os.geteuid()}")
    listener, notifier = passed_socket(os.environ), Notifier(dict(os.environ))
    path = path.resolve()
    enter_root_environment()
    notifier.ready("serving")
    serve_connections(listener, lambda peer: replier(path, peer))
    return 0


def passed_socket(environment: Mapping[str, str]) -> socket.socket:
    """The one listening socket that systemd has passed to this process."""
    if (environment.get("LISTEN_PID"), environment.get("LISTEN_FDS")) != (str(os.getpid()), "1"):
        raise ConfigError("--root-process: systemd passed no socket: systemctl start omfs-root.socket")
    os.set_inheritable(_FIRST_PASSED, False)
    return socket.socket(fileno=_FIRST_PASSED)


def serve_connections(
    listener: socket.socket,
    replier_of: Callable[[Peer], Callable[[bytes], bytes]],
    peer: Callable[[socket.socket], Peer] = peer_of,
) -> None:
    """Each connection in a thread of its own, until the listener is shut down."""
    places = BoundedSemaphore(_MOST_CONNECTIONS)

    def serve(connection: socket.socket) -> None:
        try:
            with connection:
                serve_requests(connection, replier_of(peer(connection)))
        except OSError:
            return  # it has gone
        finally:
            places.release()

    while True:
        places.acquire()
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        Thread(target=serve, args=(connection,), name="omfs-root", daemon=True).start()


def replier(path: Path, peer: Peer) -> Callable[[bytes], bytes]:
    """What answers the requests of this peer: a root process with the configuration as it is now, or a refusal."""
    try:
        return _root_process(path, peer).reply
    except OmfsError as error:
        refusal = str(error)
        structlog.get_logger("root").warning("root_connection_refused", error=refusal, uid=peer.uid)
        return lambda _: reply_bytes({}, refusal)


def _root_process(path: Path, peer: Peer) -> RootProcess:
    for trusted in (path, path.parent):
        if not is_roots(trusted):
            raise ConfigError(f"{trusted}: must belong to root, and be writable for root only")
    config = load(path)
    user = daemon_user(config.daemon)
    if user is None:
        raise ConfigError(f"{path}: daemon.user is not set: must name the user of omfsd.service")
    if peer.uid != user.pw_uid:
        raise ConfigError(f"uid {peer.uid} has connected: only {user.pw_name} (daemon.user) may")
    gateway = CommandGateway(config.slurm.conf, config.slurm.timeout_seconds)
    return RootProcess(config, path, gateway, transport(config), user.pw_uid)
