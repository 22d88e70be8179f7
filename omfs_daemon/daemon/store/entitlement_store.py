"""The entitlements in force.

Those of the configuration hold until the first change; from then on ``entitlements.toml`` holds as a whole. It names
what the configuration had then: a configuration that says something else again is a conflict, which an administrator
settles.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.config.entitlement_text import differences, digest, from_rows, from_toml, to_rows, to_toml
from omfs_daemon.config.text_file import read_text
from omfs_daemon.daemon.store.audit_log import AuditLog, Changer
from omfs_daemon.daemon.store.disk import sync_renamed, write_synced
from omfs_daemon.daemon.store.file_format import ENTITLEMENTS, format_of
from omfs_daemon.errors import ConfigError, ControlError

CONFIGURATION = "configuration file"
"""The source of entitlements that were never changed by command."""

_HEAD = "# Written by omfsd: the entitlements in force. Change them with `omfs entitlements`, not here.\n"
_REPLACED_LINE = re.compile(r"^# in the configuration then: ([0-9a-f]{32})$", re.MULTILINE)


class EntitlementStore:
    """All methods may be called from any thread; a change that fails leaves everything as it was.

    ``state_dir`` must exist. Opening raises ConfigError when the file of changed entitlements cannot be read or is
    wrong, and FormatError when it has a format that is not read.
    """

    def __init__(self, state_dir: Path, in_configuration: Iterable[Entitlement], audit: AuditLog) -> None:
        self._file = state_dir / ENTITLEMENTS.name
        self._audit = audit
        self._lock = Lock()
        self._own: tuple[Entitlement, ...] | None = None
        self._configured: tuple[Entitlement, ...] = ()
        self.configured(in_configuration)
        self._replaced = ""  # the configuration's entitlements at the last change; "" if unknown
        if self._file.exists():
            self._own = stored_entitlements(self._file)
            replaced = _REPLACED_LINE.search(read_text(self._file))
            self._replaced = replaced[1] if replaced else digest(self._configured)

    @property
    def entitlements(self) -> tuple[Entitlement, ...]:
        """The entitlements in force."""
        return self._configured if self._own is None else self._own

    @property
    def source(self) -> str:
        """Where they come from: the configuration, or the path of the file."""
        return CONFIGURATION if self._own is None else str(self._file)

    @property
    def configuration_then(self) -> str | None:
        """The digest of the configuration's entitlements at the last change; None if there was none."""
        return None if self._own is None else self._replaced

    def configured(self, entitlements: Iterable[Entitlement]) -> None:
        """Take over the entitlements of a reloaded configuration; changed ones stay in force."""
        self._configured = AccountTree(entitlements).entitlements

    def conflict(self, entitlements: Iterable[Entitlement] | None = None) -> list[str]:
        """A line for each account where a configuration (default: the one taken over) that was edited since the last
        change differs from what is in force."""
        wanted = self._configured if entitlements is None else tuple(entitlements)
        if self._own is None or digest(wanted) == self._replaced:
            return []
        return differences(self._own, wanted)

    def set(self, new: Iterable[Entitlement], keeping_parents: Collection[str], who: Changer) -> list[str]:
        """Set the entitlements of accounts, all of them or none. ``keeping_parents``: accounts that stay where they are
        (new ones: at the top)."""
        with self._lock:
            all_of_them = {entitlement.name: entitlement for entitlement in self.entitlements}
            for entitlement in new:
                old = all_of_them.get(entitlement.name)
                stays = old is not None and entitlement.name in keeping_parents
                all_of_them[entitlement.name] = (
                    replace(entitlement, parent=old.parent) if old and stays else entitlement
                )
            return self._change(tuple(all_of_them.values()), who)

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
        is_settled = not self.conflict() or entitlements == self._configured
        replaced = digest(self._configured) if is_settled else self._replaced
        draft = self._file.with_suffix(".new")
        try:
            head = f"{_HEAD}# in the configuration then: {replaced}\nformat = {ENTITLEMENTS.newest}\n"
            write_synced(draft, f"{head}\n{to_toml(entitlements)}")
            old, new = to_rows(self.entitlements), to_rows(entitlements)
            self._audit.record("entitlements", who, changed=changed, old=old, new=new)
            draft.replace(self._file)
        except OSError as error:
            raise ControlError(f"nothing was changed: {self._file.parent}: {error.strerror}") from error
        self._own, self._replaced = entitlements, replaced
        sync_renamed(self._file.parent)
        return changed


def stored_entitlements(path: Path) -> tuple[Entitlement, ...]:
    """Those in a file of changed entitlements; only reads. Errors as of ``EntitlementStore``."""
    format_of(ENTITLEMENTS, path)
    return from_toml(read_text(path), str(path))


def conflict_text(lines: Sequence[str]) -> str:
    """Both values of each account, and what settles it. ``lines``: of ``conflict``."""
    return (
        "the configuration was edited after a change by `omfs entitlements`; in force -> in the file: "
        f"{'; '.join(lines)}. `omfs entitlements import FILE` puts those of the file into force; to keep those in "
        "force, write what `omfs entitlements export` prints into the file, and reload"
    )


def apply_change(store: EntitlementStore, change: Mapping[str, object], who: Changer) -> list[str]:
    """Carry out a request (:class:`~omfs_daemon.daemon.api.entitlements_view.EntitlementChange`); returns a line for
    each change. ConfigError, and nothing is changed, when the request or the outcome would be wrong."""
    match change:
        case {"op": "set", "entitlements": list(rows)}:
            new = entitlements_in(change)
            if twice := [one.name for one in new if sum(each.name == one.name for each in new) > 1]:
                raise ConfigError(f"account = {twice[0]!r}: is named twice")
            kept = {entitlement.name for entitlement, row in zip(new, rows, strict=True) if "parent" not in row}
            return store.set(new, kept, who)
        case {"op": "remove", "account": str(account)}:
            return store.remove(account, who)
        case {"op": "replace", "entitlements": _}:
            return store.replace_all(entitlements_in(change), who)
    raise ConfigError("change: must be set (entitlements), remove (account) or replace (entitlements)")


def entitlements_in(change: Mapping[str, object]) -> tuple[Entitlement, ...]:
    """The entitlements that a request names, to be checked against slurmdbd before :func:`apply_change`."""
    match change:
        case {"op": "set" | "replace"}:
            return from_rows(change.get("entitlements"))
    return ()
