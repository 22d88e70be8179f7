"""The exemptions in force (``exemptions.json``), which outlast restarts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from pydantic import TypeAdapter, ValidationError

from omfs_daemon.cluster.exemptions import END_OF_TIME, Exemption, Exemptions, ExemptKind
from omfs_daemon.daemon.store.audit_log import AuditLog, Changer
from omfs_daemon.daemon.store.disk import sync_renamed, write_synced
from omfs_daemon.daemon.store.file_format import EXEMPTIONS, format_of
from omfs_daemon.errors import ConfigError, ControlError

_MOST = 1000


@dataclass(frozen=True)
class _Stored:
    format: int
    exemptions: tuple[Exemption, ...]


_FILE = TypeAdapter(_Stored)


def stored_exemptions(path: Path) -> tuple[Exemption, ...]:
    """Those in a file, which need not exist. ConfigError if it is damaged, FormatError for a format not read."""
    format_of(EXEMPTIONS, path)
    try:
        found = _FILE.validate_json(path.read_bytes()).exemptions
    except FileNotFoundError:
        return ()
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is damaged: move it away"
        raise ConfigError(f"{path}: {reason}") from error
    for one in found:
        if one.until is not None and not 0 <= one.until < END_OF_TIME:
            what = f"until = {one.until:g} of {one.kind.value} {one.name}"
            raise ConfigError(f"{path}: {what}: must be seconds since the epoch, before the year 9999")
    return found


class ExemptionStore:
    """All methods may be called from any thread; a change that fails leaves everything as it was. ``clock`` returns
    seconds since the epoch. Errors as of ``stored_exemptions``."""

    def __init__(self, state_dir: Path, audit: AuditLog, clock: Callable[[], float]) -> None:
        self._path = state_dir / EXEMPTIONS.name
        self._audit = audit
        self._clock = clock
        self._lock = Lock()
        self.exemptions = Exemptions(stored_exemptions(self._path))

    def add(self, new: Exemption, who: Changer) -> None:
        """Exempt; an earlier exemption of the same is replaced."""
        with self._lock:
            kept = [one for one in self._valid() if (one.kind, one.name) != (new.kind, new.name)]
            if len(kept) >= _MOST:
                raise ControlError(f"there are {_MOST} exemptions already: remove some, or exempt a user or an account")
            until = {} if new.until is None else {"until": new.until}
            self._audit.record_or_refuse("exempt", who, kind=new.kind.value, name=new.name, **until)
            self._write([*kept, replace(new, by=who.user)])

    def remove(self, kind: ExemptKind, name: str, who: Changer) -> None:
        """ControlError if it is not exempted."""
        with self._lock:
            kept = [one for one in self._valid() if (one.kind, one.name) != (kind, name)]
            if len(kept) == len(self._valid()):
                raise ControlError(f"{kind.value} {name}: is not exempted")
            self._audit.record_or_refuse("exemption ended", who, kind=kind.value, name=name)
            self._write(kept)

    def forget_jobs(self, names: Collection[str]) -> None:
        """Those of jobs that have ended; as where their time is over, nobody has done that, and no audit entry is
        made."""
        with self._lock:
            self._write(one for one in self._valid() if one.kind is not ExemptKind.JOB or one.name not in names)

    def _valid(self) -> list[Exemption]:
        now = self._clock()
        return [one for one in self.exemptions.all if one.until is None or one.until > now]

    def _write(self, exemptions: Iterable[Exemption]) -> None:
        made = Exemptions(exemptions)
        draft = self._path.with_suffix(".new")
        try:
            stored = _Stored(format=EXEMPTIONS.newest, exemptions=made.all)
            write_synced(draft, _FILE.dump_json(stored, indent=1).decode() + "\n")
            draft.replace(self._path)
        except OSError as error:
            raise ControlError(f"nothing was changed: {self._path.parent}: {error.strerror}") from error
        self.exemptions = made
        sync_renamed(self._path.parent)
