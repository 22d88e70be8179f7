"""The answer to ``omfs exempt``, and what a name on its command line means."""

from __future__ import annotations

import pwd
import re
from collections.abc import Collection
from typing import TypedDict

from omfs_daemon.cluster.exemptions import Exemption, Exemptions, ExemptKind
from omfs_daemon.errors import ConfigError

_JOB = re.compile(r"[0-9]{1,10}([_+][0-9]{1,10})?")


class ExemptionView(TypedDict):
    """``until``: seconds since the epoch; null: until it is removed."""

    kind: str
    name: str
    until: float | None
    by: str


class ExemptView(TypedDict):
    exemptions: list[ExemptionView]


def exempt_view(exemptions: Exemptions, now: float) -> ExemptView:
    valid = [one for one in exemptions.all if one.until is None or one.until > now]
    return ExemptView(exemptions=[_view(one) for one in valid])


def _view(one: Exemption) -> ExemptionView:
    return ExemptionView(kind=one.kind.value, name=one.name, until=one.until, by=one.by)


def named(text: str, accounts: Collection[str]) -> tuple[ExemptKind, str]:
    """``1234``, ``15_3``, ``31+0``, a user, or an account; ``user=ann`` or ``account=bio`` where a name could be both.

    ``accounts``: those that are known. ConfigError for anything else.
    """
    if _JOB.fullmatch(text):
        return ExemptKind.JOB, text
    word, equals, name = text.partition("=")
    if equals and word in ("user", "account"):
        is_known = name in accounts if word == "account" else _is_user(name)
        if not is_known:
            raise ConfigError(f"{text!r}: there is no such {word}")
        return ExemptKind(word), name
    kinds = [
        kind for kind, known in ((ExemptKind.USER, _is_user(text)), (ExemptKind.ACCOUNT, text in accounts)) if known
    ]
    if len(kinds) == 1:
        return kinds[0], text
    if kinds:
        raise ConfigError(f"{text!r}: is a user and an account: write user={text} or account={text}")
    raise ConfigError(f"{text!r}: must be a job (1234, 15_3), a user, or an account")


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):  # a NUL in the name
        return False
    return True
