"""Entitlements in force and their audit log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from threading import Lock
from typing import Protocol
from omfs_daemon.config.load import read_text
from omfs_daemon.daemon.store.disk import sync_directory
from omfs_daemon.config.entitlement_text import from_rows
from omfs_daemon.config.entitlement_text import from_toml
from omfs_daemon.config.entitlement_text import share_from
from omfs_daemon.config.entitlement_text import to_rows
from omfs_daemon.config.entitlement_text import to_toml
from omfs_daemon.errors import ConfigError
from omfs_daemon.errors import ControlError
from omfs_daemon.cluster.accounts import AccountShare
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.config.entitlement_text import differences
from omfs_daemon.daemon.store.disk import _write_synced
from omfs_daemon.daemon.store.disk import _append_synced

_HEAD = "# Written by omfsd: the entitlements in force. Change them with `omfs entitlements`, not here.\n"


class Changer(Protocol):
    """Who changes something; the control socket's ``Caller`` is one."""

    @property
    def uid(self) -> int: ...
    @property
    def user(self) -> str: ...


class EntitlementStore:
    """All methods may be called from any thread; a change that fails leaves everything as it was.

    ``state_dir`` must exist. ``clock`` gives seconds since the epoch. Opening raises ConfigError when the file of
    changed entitlements cannot be read or is not right: guessing would hand out someone's share.
    """

    def __init__(self, state_dir: Path, config_shares: Iterable[AccountShare], clock: Callable[[], float]) -> None:
        self._file = state_dir / "entitlements.toml"
        self._audit = state_dir / "audit.jsonl"
        self._clock = clock
        self._lock = Lock()
        self._own: tuple[AccountShare, ...] | None = None
        self._configured: tuple[AccountShare, ...] = ()
        self.configured(config_shares)
        if self._file.exists():
            self._own = from_toml(read_text(self._file), str(self._file))

    @property
    def shares(self) -> tuple[AccountShare, ...]:
        """The entitlements in force."""
        return self._configured if self._own is None else self._own

    @property
    def source(self) -> str:
        """Where they come from, for people."""
        return "configuration file" if self._own is None else str(self._file)

    def configured(self, shares: Iterable[AccountShare]) -> None:
        """Take over the entitlements of a configuration that was read again; changed ones stay in force."""
        self._configured = AccountTree(shares).shares

    def set(self, name: str, percent: Fraction, parent: str | None, who: Changer) -> list[str]:
        """Give an account its entitlement. ``parent``: None leaves it where it is (a new one: at the top)."""
        with self._lock:
            old = next((share for share in self.shares if share.name == name), None)
            above = parent if parent is not None else old.parent if old else ""
            new = AccountShare(name, percent, above)
            if old:
                return self._change(tuple(new if share is old else share for share in self.shares), who)
            return self._change((*self.shares, new), who)

    def remove(self, name: str, who: Changer) -> list[str]:
        """Take an account's entitlement away; its jobs then count under the others."""
        with self._lock:
            if all(share.name != name for share in self.shares):
                known = ", ".join(share.name for share in self.shares) or "none"
                raise ConfigError(f"account = {name!r}: must be one that has an entitlement: {known}")
            if below := [share.name for share in self.shares if share.parent == name]:
                raise ConfigError(f"account = {name!r}: has accounts below it ({', '.join(below)}): remove them first")
            return self._change(tuple(share for share in self.shares if share.name != name), who)

    def replace_all(self, shares: Iterable[AccountShare], who: Changer) -> list[str]:
        """Put a whole new set into force."""
        with self._lock:
            return self._change(tuple(shares), who)

    def _change(self, shares: tuple[AccountShare, ...], who: Changer) -> list[str]:
        """Check, record, put into force; the lines that say what changed.

        The audit line is on disk before the change is: a crash may leave a record of a change that did not
        come about, but never a change without a record.
        """
        AccountTree(shares)
        changed = differences(self.shares, shares)
        draft = self._file.with_suffix(".new")
        try:
            _write_synced(draft, _HEAD + to_toml(shares))
            self._record(changed, shares, who)
            draft.replace(self._file)
        except OSError as error:
            raise ControlError(f"nothing was changed: {self._file.parent}: {error.strerror}") from error
        self._own = shares
        sync_directory(self._file.parent)
        return changed

    def _record(self, changed: Sequence[str], shares: Sequence[AccountShare], who: Changer) -> None:
        now = self._clock()
        line = json.dumps(
            {
                "time": now,
                "at": datetime.fromtimestamp(now, UTC).astimezone().isoformat(timespec="seconds"),
                "uid": who.uid,
                "user": who.user,
                "changed": list(changed),
                "old": to_rows(self.shares),
                "new": to_rows(shares),
            }
        )
        _append_synced(self._audit, line)


def apply(store: EntitlementStore, change: Mapping[str, object], who: Changer) -> list[str]:
    """Do what a request (:class:`~omfs_daemon.daemon.views.EntitlementChange`) asks; the lines of what changed.

    ConfigError, and nothing is changed, when the request is not one or the whole would not be right.
    """
    match change:
        case {"op": "set", "account": str(account), "percent": _}:
            new = named(change)[0]
            return store.set(account, new.percent, new.parent if "parent" in change else None, who)
        case {"op": "remove", "account": str(account)}:
            return store.remove(account, who)
        case {"op": "replace", "shares": _}:
            return store.replace_all(named(change), who)
    raise ConfigError("change: must be set (account, percent), remove (account) or replace (shares)")


def named(change: Mapping[str, object]) -> tuple[AccountShare, ...]:
    """The shares that a request gives, to be checked against slurmdbd before :func:`apply`."""
    match change:
        case {"op": "set"}:
            return (share_from(change, f"account {change.get('account')!r}"),)
        case {"op": "replace"}:
            return from_rows(change.get("shares"))
    return ()
