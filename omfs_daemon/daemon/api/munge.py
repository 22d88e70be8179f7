"""MUNGE credentials, which prove to a program on another host of the cluster which user sends it what.

By libmunge (munge(3), munge_ctx(3)): a process for each credential would cost a hundred times as much.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple

from omfs_daemon.errors import OmfsError

LIBRARY = "libmunge.so.2"
LONGEST_PAYLOAD = 700_000
"""Bytes. munged takes messages of 1 MiB, in which a payload is written in base64."""
TTL_SECONDS = 60
"""How long a credential is good, and by how much the clocks of two hosts may differ. munged lets each be used once."""

_SUCCESS = 0
_OPT_TTL, _OPT_SOCKET, _OPT_UID_RESTRICTION = 4, 8, 9


class MungeFault(StrEnum):
    """Why there is no credential, or why one is not good."""

    MUNGED = "munged"
    INVALID = "invalid"
    EXPIRED = "expired"
    REWOUND = "rewound"
    REPLAYED = "replayed"
    UNAUTHORIZED = "unauthorized"


_FAULTS = {
    8: MungeFault.INVALID,  # EMUNGE_BAD_CRED and the next ones: not a credential, or of an unknown kind
    9: MungeFault.INVALID,
    10: MungeFault.INVALID,
    11: MungeFault.INVALID,
    12: MungeFault.INVALID,
    13: MungeFault.INVALID,
    14: MungeFault.INVALID,
    15: MungeFault.EXPIRED,
    16: MungeFault.REWOUND,
    17: MungeFault.REPLAYED,
    18: MungeFault.UNAUTHORIZED,
}
"""By munge_err_t; all others are munged's."""


class MungeError(OmfsError):
    """A credential could not be made, or is not good; the text is libmunge's."""

    def __init__(self, fault: MungeFault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class Opened(NamedTuple):
    """What a good credential holds, and the ids of the process that had it made."""

    payload: bytes
    uid: int
    gid: int


class Munge:
    """The munged of this host, at ``socket`` or where libmunge expects it. Used by several threads at once; it gives up
    by itself on one that does not answer. MungeError if there is no libmunge."""

    def __init__(self, socket: str | None = None) -> None:
        self._socket = socket
        try:
            self._library = ctypes.CDLL(LIBRARY)
            self._free: Callable[[ctypes.c_void_p], None] = ctypes.CDLL(None).free
        except OSError:
            raise MungeError(MungeFault.MUNGED, f"{LIBRARY} is not installed on this host") from None
        self._library.munge_ctx_create.restype = ctypes.c_void_p
        self._library.munge_ctx_strerror.restype = ctypes.c_char_p
        self._library.munge_strerror.restype = ctypes.c_char_p

    def encode(self, payload: bytes, reader: int) -> bytes:
        """A credential of this process for the user ``reader`` alone, in ASCII without blanks. MungeError."""
        made = ctypes.c_void_p()
        with self._context() as context:
            self._set(context, _OPT_TTL, ctypes.c_int(TTL_SECONDS))
            self._set(context, _OPT_UID_RESTRICTION, ctypes.c_uint(reader))
            code = self._library.munge_encode(ctypes.byref(made), context, payload, len(payload))
            try:
                self._require_success(code, context)
                return ctypes.string_at(made)
            finally:
                self._free(made)

    def decode(self, credential: bytes) -> Opened:
        """MungeError unless it is good, and used for the first time on this host."""
        payload, length = ctypes.c_void_p(), ctypes.c_int()
        uid, gid = ctypes.c_uint(), ctypes.c_uint()
        with self._context() as context:
            parts = (ctypes.byref(part) for part in (payload, length, uid, gid))
            code = self._library.munge_decode(credential, context, *parts)
            try:
                self._require_success(code, context)
                return Opened(ctypes.string_at(payload, length.value) if payload else b"", uid.value, gid.value)
            finally:
                self._free(payload)

    @contextmanager
    def _context(self) -> Iterator[ctypes.c_void_p]:
        context = ctypes.c_void_p(self._library.munge_ctx_create())
        if not context:
            raise MemoryError
        try:
            if self._socket is not None:
                self._set(context, _OPT_SOCKET, ctypes.c_char_p(self._socket.encode()))
            yield context
        finally:
            self._library.munge_ctx_destroy(context)

    def _set(self, context: ctypes.c_void_p, option: int, value: object) -> None:
        self._require_success(self._library.munge_ctx_set(context, option, value), context)

    def _require_success(self, code: int, context: ctypes.c_void_p) -> None:
        if code != _SUCCESS:
            text: bytes = self._library.munge_ctx_strerror(context) or self._library.munge_strerror(code)
            raise MungeError(_FAULTS.get(code, MungeFault.MUNGED), text.decode("utf-8", "replace"))
