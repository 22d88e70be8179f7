"""The client on a login node, where omfsd's own socket is not."""

from __future__ import annotations

import pwd
import secrets
import socket
import time
from contextlib import suppress

from omfs_daemon.config.login_place import HostPort, LoginPlace
from omfs_daemon.daemon.api.client import TIMEOUT_SECONDS, Client, received_line
from omfs_daemon.daemon.api.login_messages import (
    LONGEST_LINE,
    LONGEST_REQUEST,
    REFUSALS,
    Refusal,
    opened_answer,
    sealed_request,
)
from omfs_daemon.daemon.api.munge import TTL_SECONDS, Munge, MungeError, MungeFault
from omfs_daemon.errors import ConfigError, UnreachableError
from omfs_daemon.slurm.munge_conf import munge_socket

_AGAIN, _AGAIN_SECONDS = 0.1, 5.0
_CLOCKS = f"the clocks of this host and of omfsd's differ by more than {TTL_SECONDS} s, or the network is that slow"
_KEYS = "munged has another key on this host than on omfsd's"
_WHY = {
    Refusal.BUSY: "too many requests at once, or omfsd has just ended: try again",
    Refusal.TOO_LONG: f"the request is longer than {LONGEST_REQUEST >> 10} KiB: ask on omfsd's own host",
    Refusal.MUNGED: "munged does not answer on omfsd's host",
    Refusal.CLOCK: _CLOCKS,
    Refusal.REPLAYED: "the request came twice: try again",
    Refusal.UNAUTHORIZED: "omfsd is not the user that daemon.user names on this host",
    Refusal.INVALID: _KEYS,
}
_OF_OWN = {
    MungeFault.EXPIRED: _CLOCKS,
    MungeFault.REWOUND: _CLOCKS,
    MungeFault.REPLAYED: "the answer came twice: another program on the way repeats it",
    MungeFault.UNAUTHORIZED: "the answer is for another user",
}


def login_client(place: LoginPlace) -> LoginClient:
    """Asks there with the munged of this host. ConfigError if the host does not know omfsd's user, UnreachableError if
    it has no libmunge."""
    try:
        munge = Munge(munge_socket(place.slurm_conf))
    except MungeError as error:
        raise UnreachableError(f"{place.address}: cannot be asked: {error}") from None
    return LoginClient(place.address, uid_of(place.user), munge)


class LoginClient(Client):
    """Asks the omfsd at ``address``, which runs as the uid ``daemon``."""

    def __init__(self, address: HostPort, daemon: int, munge: Munge, timeout: float = TIMEOUT_SECONDS) -> None:
        super().__init__(str(address), timeout)
        self._address = address
        self._daemon = daemon
        self._munge = munge

    def _exchange(self, request: bytes) -> bytes:
        """Again while too many ask at once: a flood from this host does not fill every place all the time."""
        deadline = time.monotonic() + self._timeout
        again_until = time.monotonic() + min(_AGAIN_SECONDS, self._timeout)
        while True:
            nonce, line = self._sent(request, deadline)
            refusal = REFUSALS.get(line)
            if refusal is not Refusal.BUSY or time.monotonic() > again_until:
                break
            time.sleep(_AGAIN)
        if refusal is not None:
            raise UnreachableError(f"{self._address}: {_WHY[refusal]}")
        try:
            return opened_answer(self._munge, self._daemon, nonce, line.rstrip(b"\n"))
        except MungeError as error:
            why = _OF_OWN.get(error.fault, f"the answer is not omfsd's: {error}")
            raise UnreachableError(f"{self._address}: {why}") from None

    def _sent(self, request: bytes, deadline: float) -> tuple[bytes, bytes]:
        """The nonce of a credential that is new each time, and what comes back."""
        nonce = secrets.token_hex(16).encode()
        try:
            sealed = sealed_request(self._munge, self._daemon, nonce, request)
        except MungeError as error:
            raise UnreachableError(f"munged on this host makes no credential: {error}") from None
        if len(sealed) > LONGEST_REQUEST:
            raise ConfigError(_WHY[Refusal.TOO_LONG])
        return nonce, self._answer(sealed, deadline) or Refusal.BUSY.line  # it was cut off

    def _answer(self, sealed: bytes, deadline: float) -> bytes:
        with socket.create_connection(self._address, max(0.001, deadline - time.monotonic())) as connection:
            with suppress(BrokenPipeError, ConnectionResetError):  # it may have been refused already
                connection.sendall(sealed)
            try:
                return received_line(connection, deadline, LONGEST_LINE)
            except ConnectionResetError:
                return Refusal.BUSY.line


def uid_of(user: str) -> int:
    """Of a name, or of a uid in digits, where this host has no such user."""
    try:
        return int(user) if user.isascii() and user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ConfigError(f"daemon.user = {user!r}: must be a user of this host, or omfsd's uid") from None
