"""Who is at the other end of the control socket, and what they may do.

The kernel reports who connected (SO_PEERCRED, unix(7)); nothing that the client writes is trusted.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
import struct
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cache
from typing import NamedTuple

_CREDENTIALS = struct.Struct("iII")


class Role(StrEnum):
    """A user sees their own jobs; an operator sees all and may change things."""

    USER = "user"
    OPERATOR = "operator"


class Peer(NamedTuple):
    """Numeric ids of the process that connected."""

    uid: int
    gid: int


class Caller(NamedTuple):
    """Who sent a request. ``user``: the uid as text where the user database has no name for it; ``is_remote``: from a
    login node, where nobody is an operator."""

    uid: int
    gid: int
    user: str
    role: Role
    is_remote: bool = False

    @property
    def is_operator(self) -> bool:
        return self.role is Role.OPERATOR


def peer_of(connection: socket.socket) -> Peer:
    """The credentials that the other end had when it connected."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, gid = _CREDENTIALS.unpack(packed)
    return Peer(uid, gid)


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def operators(slurm_uid: int | None, group: str | None) -> Callable[[Peer], bool]:
    """Whether a peer may change things: root, SlurmUser, and members of ``group``, looked up at each call."""

    def may_operate(peer: Peer) -> bool:
        if peer.uid == 0 or peer.uid == slurm_uid:
            return True
        return group is not None and _group_id(group) in _groups_of(peer)

    return may_operate


def membership(peer: Peer) -> Callable[[Iterable[str]], bool]:
    """Whether a peer is in one of some groups; names that the database does not know are left out. It is asked once for
    the peer and for each group, so this is not to be kept."""
    own, id_of = cache(lambda: _groups_of(peer)), cache(_group_id)
    return lambda groups: not own().isdisjoint({id_of(group) for group in groups} - {None})


def _group_id(group: str) -> int | None:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        return None


def _groups_of(peer: Peer) -> set[int]:
    """The peer's groups from the databases: SO_PEERCRED reports only the first one."""
    try:
        name = pwd.getpwuid(peer.uid).pw_name
    except KeyError:
        return {peer.gid}
    return {peer.gid, *os.getgrouplist(name, peer.gid)}
