"""The lease in the shared directory: looking at it, taking, renewing, and giving it up.

Both a renewal and a taking rename the file that was seen. The file server does one of two at a time, and the other one
finds no such file; what a client has cached does not matter. A taker first makes ``holder.EPOCH`` by a link, which
fails where there is one: no epoch is taken twice, also where somebody has removed the lease. Where somebody has copied
it, the taker first removes all but the newest: then its holder, too, can rename only that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from omfs_daemon.daemon.leadership.holder import LONGEST_HOLDER, LeaseHolder, holder_of
from omfs_daemon.daemon.leadership.lease import Lease, LeaseView, read_names
from omfs_daemon.daemon.store.disk import open_own, sync_directory, write_synced
from omfs_daemon.daemon.store.safe_path import refuse_unsafe_path
from omfs_daemon.errors import ConfigError

HOLDERS_KEPT = 100
"""Of so many epochs: a listing that old is in no client's cache."""


class LeaseDirectory:
    """OSError for whatever the file system refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def look(self) -> LeaseView:
        """ConfigError as ``refuse_foreign``."""
        self.refuse_foreign(os.geteuid())
        return read_names(file.name for file in self.path.iterdir())

    def refuse_foreign(self, own: int) -> None:
        """ConfigError if others than omfsd's user could write there. What is not mounted belongs to root."""
        owner = self.path.stat().st_uid
        if owner != own:
            raise ConfigError(f"{self.path}: belongs to uid {owner}, must be of omfsd's ({own}): mount it, or chown it")
        refuse_unsafe_path(self.path, own)

    def holder_file(self, epoch: int) -> Path:
        return self.path / f"holder.{epoch}"

    def holder(self, epoch: int) -> LeaseHolder | None:
        """Who has taken this epoch; None if nobody tells. OmfsError if the file is damaged or of another version."""
        path = self.holder_file(epoch)
        try:
            with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
                return holder_of(file.read(LONGEST_HOLDER).decode("utf-8", "replace"), str(path))
        except FileNotFoundError:
            return None

    def take(self, seen: LeaseView, holder: LeaseHolder) -> Lease | None:
        """The next epoch's lease; None if it was renewed or taken since it was seen."""
        taken = Lease(seen.newest + 1)
        if not all(self._removed(other) for other in seen.others) or not self._name_holder(taken.epoch, holder):
            return None
        if seen.lease is None:
            try:
                os.close(os.open(self.path / taken.name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
            except FileExistsError:
                return None
        elif not self._renamed(seen.lease, taken):
            return None
        sync_directory(self.path)
        self.holder_file(taken.epoch - HOLDERS_KEPT).unlink(missing_ok=True)
        return taken

    def renew(self, lease: Lease) -> Lease | None:
        """None if it is lost: taken, or removed."""
        newest = self.look().lease
        if newest is not None and newest.epoch > lease.epoch:
            return None
        if self._renamed(lease, lease.renewed):
            return lease.renewed
        # An earlier renewal that was given up may have ended since, or a network file system has sent this one twice.
        again = self.look().lease
        if again is None or again.epoch != lease.epoch or again.renewals is None or again == lease:
            return None
        return again.renewed if self._renamed(again, again.renewed) else None

    def give_up(self, lease: Lease) -> None:
        self._renamed(lease, lease.given_up)

    def update_holder(self, epoch: int, holder: LeaseHolder) -> None:
        """The holder's configuration has changed."""
        with self._draft(holder) as draft:
            draft.replace(self.holder_file(epoch))

    def _renamed(self, old: Lease, new: Lease) -> bool:
        try:
            (self.path / old.name).rename(self.path / new.name)
        except FileNotFoundError:
            return False
        return True

    def _removed(self, lease: Lease) -> bool:
        """False if it was renewed or taken."""
        try:
            (self.path / lease.name).unlink()
        except FileNotFoundError:
            return False
        return True

    def _name_holder(self, epoch: int, holder: LeaseHolder) -> bool:
        """False if somebody else has the epoch."""
        with self._draft(holder) as draft:
            with suppress(FileExistsError):  # also where a network file system has sent our own request twice
                self.holder_file(epoch).hardlink_to(draft)
            return draft.stat().st_nlink == 2

    @contextmanager
    def _draft(self, holder: LeaseHolder) -> Iterator[Path]:
        """A file that says this; nothing of it stays, also if it cannot be written."""
        draft = self.path / f".holder.{token_hex(8)}"
        try:
            write_synced(draft, holder.text())
            yield draft
        finally:
            draft.unlink(missing_ok=True)
