"""What requests on the control socket may set off in the daemon."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.daemon.api.status_view import RefusedReloadView
from omfs_daemon.policy.rules.classes import Rules


class Tried(NamedTuple):
    """What a daemon with another configuration would go by, and the keys for which it would have to start again.
    ``conflict``: of its entitlements with those in force, for which a reload would be refused; "" if none."""

    rules: Rules
    at_restart: list[str]
    conflict: str = ""


class DaemonControls(NamedTuple):
    """What a request may set off. ``change_entitlements`` and ``reload`` return what is in force now; ``tried`` takes
    the text of a configuration and its name; ``refused``: why the last reload was; ``wake`` ends the loop's rest;
    ``lock`` is held while the journal's state changes."""

    change_entitlements: Callable[[dict[str, object], Caller], list[str]]
    reload: Callable[[], str]
    refused: Callable[[], RefusedReloadView | None]
    tried: Callable[[str, str], Tried]
    exemptions_changed: Callable[[], None]
    wake: Callable[[], None]
    lock: Lock
