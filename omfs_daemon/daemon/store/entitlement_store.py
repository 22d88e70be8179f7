"""The entitlements in force, and the audit log of their changes.

Those of the configuration hold until the first change; from then on ``entitlements.toml`` holds as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from threading import Lock

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.config.entitlement_text import differences, entitlement_from, from_rows, from_toml, to_rows, to_toml
from omfs_daemon.config.load import read_text
from omfs_daemon.daemon.store.audit_log import Changer, record_change
from omfs_daemon.daemon.store.disk import sync_directory, write_synced
from omfs_daemon.daemon.store.file_format import AUDIT, ENTITLEMENTS, format_of
from omfs_daemon.errors import ConfigError, ControlError

_HEAD = "# Written by omfsd: the entitlements in force. Change them with `omfs entitlements`, not here.\n"


class EntitlementStore:
    """All methods may be called from any thread; a change that fails leaves everything as it was.

    ``state_dir`` must exist. ``clock`` returns seconds since the epoch. Opening raises ConfigError when the file of
    changed entitlements cannot be read or is wrong, and FormatError when it has a format that is not read.
    """

    def __init__(self, state_dir: Path, in_configuration: Iterable[Entitlement], clock: Callable[[], float]) -> None:
        self._file = state_dir / ENTITLEMENTS.name
        self._audit = state_dir / AUDIT.name
        self._clock = clock
        self._lock = Lock()
        self._own: tuple[Entitlement, ...] | None = None
        self._configured: tuple[Entitlement, ...] = ()
        self.configured(in_configuration)
        if self._file.exists():
            self._own = stored_entitlements(self._file)

    @property
    def entitlements(self) -> tuple[Entitlement, ...]:
        """The entitlements in force."""
        return self._configured if self._own is None else self._own

    @property
    def source(self) -> str:
        """Where they come from: the configuration, or the path of the file."""
        return "configuration file" if self._own is None else str(self._file)

    def configured(self, entitlements: Iterable[Entitlement]) -> None:
        """Take over the entitlements of a reloaded configuration; changed ones stay in force."""
        self._configured = AccountTree(entitlements).entitlements

    def set(self, name: str, percent: Fraction, parent: str | None, who: Changer) -> list[str]:
        """Set an account's entitlement. ``parent``: None leaves it where it is (a new one: at the top)."""
        with self._lock:
            old = next((entitlement for entitlement in self.entitlements if entitlement.name == name), None)
            above = parent if parent is not None else old.parent if old else ""
            new = Entitlement(name, percent, above)
            if old:
                return self._change(
                    tuple(new if entitlement is old else entitlement for entitlement in self.entitlements), who
                )
            return self._change((*self.entitlements, new), who)

    def remove(self, name: str, who: Changer) -> list[str]:
        """Remove an account's entitlement; its jobs then count under ``(others)``."""
        with self._lock:
            if all(entitlement.name != name for entitlement in self.entitlements):
                known = ", ".join(entitlement.name for entitlement in self.entitlements) or "none"
                raise ConfigError(f"account = {name!r}: must be one that has an entitlement: {known}")
            if below := [entitlement.name for entitlement in self.entitlements if entitlement.parent == name]:
                raise ConfigError(f"account = {name!r}: has accounts below it ({', '.join(below)}): remove them first")
            return self._change(
                tuple(entitlement for entitlement in self.entitlements if entitlement.name != name), who
            )

    def replace_all(self, entitlements: Iterable[Entitlement], who: Changer) -> list[str]:
        """Put a whole new set of entitlements into force."""
        with self._lock:
            return self._change(tuple(entitlements), who)

    def _change(self, entitlements: tuple[Entitlement, ...], who: Changer) -> list[str]:
        """Check, record, and put into force; returns a line for each change.

        The audit line is synced first: a crash may leave a record of a change that was not made, never a change
        without a record.
        """
        AccountTree(entitlements)
        changed = differences(self.entitlements, entitlements)
        draft = self._file.with_suffix(".new")
        try:
            write_synced(draft, f"{_HEAD}format = {ENTITLEMENTS.newest}\n\n{to_toml(entitlements)}")
            rows = {"old": to_rows(self.entitlements), "new": to_rows(entitlements)}
            record_change(self._audit, self._clock(), who, changed, **rows)
            draft.replace(self._file)
        except OSError as error:
            raise ControlError(f"nothing was changed: {self._file.parent}: {error.strerror}") from error
        self._own = entitlements
        sync_directory(self._file.parent)
        return changed


def stored_entitlements(path: Path) -> tuple[Entitlement, ...]:
    """Those in a file of changed entitlements; only reads. Errors as of ``EntitlementStore``."""
    format_of(ENTITLEMENTS, path)
    return from_toml(read_text(path), str(path))


def apply_change(store: EntitlementStore, change: Mapping[str, object], who: Changer) -> list[str]:
    """Carry out a request (:class:`~omfs_daemon.daemon.api.entitlements_view.EntitlementChange`); returns a line for
    each change. ConfigError, and nothing is changed, when the request or the outcome would be wrong."""
    match change:
        case {"op": "set", "account": str(account), "percent": _}:
            new = entitlements_in(change)[0]
            return store.set(account, new.percent, new.parent if "parent" in change else None, who)
        case {"op": "remove", "account": str(account)}:
            return store.remove(account, who)
        case {"op": "replace", "entitlements": _}:
            return store.replace_all(entitlements_in(change), who)
    raise ConfigError("change: must be set (account, percent), remove (account) or replace (entitlements)")


def entitlements_in(change: Mapping[str, object]) -> tuple[Entitlement, ...]:
    """The entitlements that a request names, to be checked against slurmdbd before :func:`apply_change`."""
    match change:
        case {"op": "set"}:
            return (entitlement_from(change, f"account {change.get('account')!r}"),)
        case {"op": "replace"}:
            return from_rows(change.get("entitlements"))
    return ()
