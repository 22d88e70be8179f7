"""omfsd under a user of its own: gives up root, and leaves a root process for what needs it."""

from __future__ import annotations

import os
import pwd
import socket
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import omfs_daemon
from omfs_daemon.config.daemon_user import daemon_user, uid_of_daemon
from omfs_daemon.config.schema import Config, DaemonSection
from omfs_daemon.daemon.node_client.service import transport
from omfs_daemon.daemon.node_client.transport import Transport
from omfs_daemon.daemon.root_process.root_client import RootClient
from omfs_daemon.daemon.root_process.root_environment import enter_root_environment
from omfs_daemon.daemon.root_process.root_process import RootProcess
from omfs_daemon.daemon.store.safe_path import refuse_unsafe_path
from omfs_daemon.errors import ConfigError
from omfs_daemon.slurm.commands.command_gateway import CommandGateway

ROOT_SOCKET = "OMFS_ROOT_SOCKET"
"""The variable by which a systemd unit names the socket of omfs-root.service."""


def make_directories(daemon: DaemonSection) -> None:
    """Make what is missing of ``state_dir`` and ``run_dir``; ConfigError if omfsd could not write there, or others
    could."""
    uid = uid_of_daemon(daemon)
    for path, mode in ((daemon.state_dir, 0o700), (daemon.run_dir, 0o755)):
        try:
            if not path.is_dir():
                path.mkdir(mode=mode, parents=True)
                os.chown(path, uid, -1, follow_symlinks=False)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be created: {error.strerror}") from error
        if daemon.user is not None and path.stat().st_uid != uid:
            raise ConfigError(f"{path}: belongs to uid {path.stat().st_uid}: chown -R {daemon.user} {path}")
        if not os.access(path, os.W_OK):
            raise ConfigError(f"{path}: cannot be written by user id {os.geteuid()}")
        refuse_unsafe_path(path, uid)
    _close_to_others(daemon.state_dir)


def _close_to_others(state_dir: Path) -> None:
    """It tells whose jobs were preempted for whom, and was perhaps made by hand."""
    try:
        if state_dir.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            state_dir.chmod(0o700)
    except OSError as error:
        raise ConfigError(f"{state_dir}: cannot be closed to others: {error.strerror}: chmod 700 it") from error


@contextmanager
def own_user(
    config: Config, path: Path, make: bool = False, environment: Mapping[str, str] = os.environ
) -> Iterator[RootClient | None]:
    """Become ``daemon.user`` for good; ``path``: of the configuration file; ``make``: first make the directories.

    Yields what does the work that needs root. If this process is that user already, and where no user is configured,
    that is omfs-root.service, if the environment names its socket (``ROOT_SOCKET``), else None. ConfigError if it
    cannot become that user, or if that user could write what the root process trusts.
    """
    user, path = daemon_user(config.daemon), path.resolve()
    if user is None or os.geteuid() == user.pw_uid:
        address = environment.get(ROOT_SOCKET)
        client = RootClient(Path(address), config.nodes.fanout) if address else None
        try:
            yield client
        finally:
            if client is not None:
                client.close()
        return
    if os.geteuid() != 0:
        wrong = f"must be started as root or as that user, not as uid {os.geteuid()}"
        raise ConfigError(f"daemon.user = {user.pw_name!r}: {wrong}")
    nodes = transport(config)  # its errors are for whoever starts omfsd
    if make:
        make_directories(config.daemon)
    # Packets: one byte and a descriptor, never a part of either.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        ours.close()
        _be_root_process(config, path, nodes, user.pw_uid, theirs)
    theirs.close()
    client = RootClient(ours, config.nodes.fanout)
    try:
        _give_up_root(user)
        _check_access(path, user.pw_name)
        yield client
    finally:
        client.close()
        os.waitpid(child, 0)


def _give_up_root(user: pwd.struct_passwd) -> None:
    os.initgroups(user.pw_name, user.pw_gid)
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    os.environ |= {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}


def _check_access(path: Path, user: str) -> None:
    """As the user. The root process takes commands from the configuration, which therefore must not be theirs."""
    for needed in (path, omfs_daemon.__file__, os.__file__, sys.executable):
        if not os.access(needed, os.R_OK):
            raise ConfigError(f"{needed}: cannot be read by {user}, as whom omfsd runs (daemon.user)")
    for trusted in (path, path.parent):
        if os.access(trusted, os.W_OK):
            raise ConfigError(f"{trusted}: must not be writable for {user}, as whom omfsd runs (daemon.user)")


def _be_root_process(
    config: Config, path: Path, nodes: Transport | None, user: int, requests: socket.socket
) -> NoReturn:
    """Never returns into what the process was before the fork."""
    try:
        os.setsid()  # a terminal's Ctrl-C is for omfsd, with which this process ends
        enter_root_environment()
        gateway = CommandGateway(config.slurm.conf, config.slurm.timeout_seconds)
        RootProcess(config, path, gateway, nodes, user).serve(requests)
    finally:
        os._exit(0)
