"""omfsd under a user of its own: gives up root, and leaves a root process for what needs it."""

from __future__ import annotations

import os
import pwd
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import omfs_daemon
from omfs_daemon.config.daemon_user import daemon_user, uid_of_daemon
from omfs_daemon.config.schema import Config, DaemonSection
from omfs_daemon.daemon.node_client.service import transport
from omfs_daemon.daemon.node_client.transport import Transport
from omfs_daemon.daemon.root_process.root_client import RootClient
from omfs_daemon.daemon.root_process.root_process import RootProcess
from omfs_daemon.errors import ConfigError
from omfs_daemon.slurm.commands.command_gateway import CommandGateway

_SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def make_directories(daemon: DaemonSection) -> None:
    """Make what is missing of ``state_dir`` and ``run_dir``; ConfigError if omfsd could not write there."""
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


@contextmanager
def own_user(config: Config, path: Path, make: bool = False) -> Iterator[RootClient | None]:
    """Become ``daemon.user`` for good; ``path``: of the configuration file; ``make``: first make the directories.

    Yields what does the work that needs root; None if this process is that user already, and where no user is
    configured. ConfigError if it cannot become that user, or if that user could write what the root process trusts.
    """
    user, path = daemon_user(config.daemon), path.resolve()
    if user is None or os.geteuid() == user.pw_uid:
        yield None
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
        os.chdir("/")
        environment = _clean_environment()
        os.environ.clear()
        os.environ |= environment
        gateway = CommandGateway(config.slurm.conf, config.slurm.timeout_seconds)
        RootProcess(config, path, gateway, nodes, user).serve(requests)
    finally:
        os._exit(0)


def _clean_environment() -> dict[str, str]:
    """Nothing of whoever started omfsd but where Slurm is, if only root can write there."""
    trusted = [place for place in os.environ.get("PATH", "").split(":") if _is_roots(place)]
    root = pwd.getpwuid(0)
    kept = {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
    return kept | {
        "PATH": ":".join([*trusted, _SYSTEM_PATH]),
        "LC_ALL": "C",
        "HOME": root.pw_dir,  # ssh finds its keys there
        "USER": root.pw_name,
        "LOGNAME": root.pw_name,
    }


def _is_roots(place: str) -> bool:
    try:
        found = Path(place).stat()
    except OSError:
        return False
    return place.startswith("/") and found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
