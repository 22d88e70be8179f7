"""The user that omfsd runs as."""

from __future__ import annotations

import os
import pwd

from omfs_daemon.config.schema import DaemonSection
from omfs_daemon.errors import ConfigError


def daemon_user(daemon: DaemonSection) -> pwd.struct_passwd | None:
    """The entry of ``daemon.user``, None without one; ConfigError if this host has no such user."""
    if daemon.user is None:
        return None
    try:
        return pwd.getpwnam(daemon.user)
    except KeyError:
        raise ConfigError(f"daemon.user = {daemon.user!r}: must be a user of this host") from None


def uid_of_daemon(daemon: DaemonSection) -> int:
    """The uid that omfsd has, if this process starts it."""
    user = daemon_user(daemon)
    return os.geteuid() if user is None else user.pw_uid
