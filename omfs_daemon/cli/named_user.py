"""Whose jobs the user of a command may see that reads accounting itself, without omfsd."""

from __future__ import annotations

import os

from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.api.callers import Peer, operators, user_name


def named_user(config: Config) -> str | None:
    """The user himself, by name or else by uid, for others are shown to operators only: root, omfsd's own user, and the
    members of ``daemon.operators_group``. None: all users."""
    uid, name = os.geteuid(), user_name(os.geteuid())
    own = uid if name == config.daemon.user else None
    is_operator = operators(own, config.daemon.operators_group)(Peer(uid, os.getegid()))
    return None if is_operator else name
