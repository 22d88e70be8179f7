"""What ``omfs`` on a login node and omfsd say to each other: one credential in, one credential out, each in a line.

Each is for one user alone: the request for omfsd's, the answer for who asked. So each knows who wrote what it reads,
nobody else reads it, and no request counts twice. What cannot be told in a credential is told in one word.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from omfs_daemon.daemon.api.callers import Peer
from omfs_daemon.daemon.api.munge import LONGEST_PAYLOAD, Munge, MungeError, MungeFault

LONGEST_LINE = 2 * LONGEST_PAYLOAD
LONGEST_REQUEST = 64 << 10
"""Of the line, before omfsd knows who sends it."""

CREDENTIAL = re.compile(rb"MUNGE:[A-Za-z0-9+/=]+:")
_REQUEST, _ANSWER = (re.compile(rb"omfs-%b ([0-9a-f]{32})\n(.*)" % kind, re.DOTALL) for kind in (b"request", b"answer"))


class Refusal(StrEnum):
    """Why omfsd does not open a request: it knows nobody then for whom it could write a credential."""

    BUSY = "busy"
    TOO_LONG = "too_long"
    MUNGED = "munged"
    CLOCK = "clock"
    REPLAYED = "replayed"
    UNAUTHORIZED = "unauthorized"
    INVALID = "invalid"

    @property
    def line(self) -> bytes:
        return f"omfs-refusal {self.value}\n".encode()


REFUSALS = {refusal.line: refusal for refusal in Refusal}
OF_FAULT = {
    MungeFault.MUNGED: Refusal.MUNGED,
    MungeFault.INVALID: Refusal.INVALID,
    MungeFault.EXPIRED: Refusal.CLOCK,
    MungeFault.REWOUND: Refusal.CLOCK,
    MungeFault.REPLAYED: Refusal.REPLAYED,
    MungeFault.UNAUTHORIZED: Refusal.UNAUTHORIZED,
}


class LoginRequest(NamedTuple):
    """``line``: as on the control socket; ``nonce`` comes back in its answer."""

    peer: Peer
    nonce: bytes
    line: bytes


def sealed_request(munge: Munge, daemon: int, nonce: bytes, line: bytes) -> bytes:
    """For ``daemon``, the uid of omfsd; ``nonce``: 32 hexadecimal digits that nobody foresees. MungeError."""
    return munge.encode(b"omfs-request " + nonce + b"\n" + line, daemon) + b"\n"


def opened_request(munge: Munge, line: bytes) -> LoginRequest:
    """MungeError, also for a credential that was made for another program."""
    opened = munge.decode(line)
    nonce, request = _parts(_REQUEST, opened.payload)
    return LoginRequest(Peer(opened.uid, opened.gid), nonce, request)


def sealed_answer(munge: Munge, request: LoginRequest, answer: bytes) -> bytes:
    """For who asked; MungeError, also for one that is longer than ``LONGEST_PAYLOAD``."""
    return munge.encode(b"omfs-answer " + request.nonce + b"\n" + answer, request.peer.uid) + b"\n"


def opened_answer(munge: Munge, daemon: int, nonce: bytes, line: bytes) -> bytes:
    """MungeError unless it is from the user ``daemon``, and to this request."""
    opened = munge.decode(line)
    theirs, answer = _parts(_ANSWER, opened.payload)
    if opened.uid != daemon:
        raise MungeError(MungeFault.INVALID, f"the answer is from uid {opened.uid}, but omfsd's is {daemon}")
    if theirs != nonce:
        raise MungeError(MungeFault.INVALID, "the answer is to another request")
    return answer


def _parts(form: re.Pattern[bytes], payload: bytes) -> tuple[bytes, bytes]:
    found = form.fullmatch(payload)
    if found is None:
        raise MungeError(MungeFault.INVALID, "the credential is not omfs's")
    return found[1], found[2]
