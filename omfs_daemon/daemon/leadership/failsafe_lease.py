"""The failsafe of one of two hosts: whether an omfsd acts anywhere, and the lease while the failsafe itself does."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.heartbeat import EPOCH_FILE, write_for_slurmctld
from omfs_daemon.daemon.leadership.holder import LeaseHolder, own_holder
from omfs_daemon.daemon.leadership.leadership import ANSWERS_WITHIN, Leadership, since_boot, take_lease
from omfs_daemon.daemon.leadership.lease import EXPIRY, LeaseView, LeaseWatch
from omfs_daemon.daemon.leadership.lease_directory import LeaseDirectory
from omfs_daemon.daemon.leadership.timed_calls import TimedCalls
from omfs_daemon.errors import OmfsError

_LOOKS_EVERY = 1.0


def an_omfsd_acts(
    shared: Path, clock: Callable[[], float] = since_boot, rest: Callable[[float], None] = time.sleep
) -> bool:
    """Whether somebody renews the lease. OmfsError if that cannot be told: then nothing may be released."""
    directory, calls = LeaseDirectory(shared), TimedCalls(ANSWERS_WITHIN)
    first: LeaseWatch | None = None
    while True:
        try:
            view = calls.run(directory.look)
        except OSError as error:
            raise OmfsError(f"{shared}: {error.strerror or error}: whether an omfsd acts is unknown") from error
        now = clock()
        first = LeaseWatch(view, now) if first is None else first
        if view != first.view:
            return True
        if view.lease is None or view.is_free or now - first.since >= EXPIRY:
            return False
        rest(_LOOKS_EVERY)


@contextmanager
def failsafe_lease(config: Config, shared: Path) -> Iterator[Leadership]:
    """The lease, so that no omfsd orders anything meanwhile; OmfsError if it cannot be had."""
    directory, calls = LeaseDirectory(shared), TimedCalls(ANSWERS_WITHIN)
    try:
        seen = calls.run(directory.look)
        # It decides nothing by its configuration, so whoever was active last stays that, and else nobody was.
        last = calls.run(lambda: _last_holder(directory, seen))
        holder = last or own_holder(config, socket.gethostname())._replace(daemon="")
        taken = take_lease(directory, seen, holder, since_boot, calls)
        if taken is None:
            raise OmfsError(f"{shared}: another omfsd or failsafe has just taken the lease")
        try:
            write_for_slurmctld(config.daemon.run_dir / EPOCH_FILE, f"{taken.first_number}\n")
            yield taken
        finally:
            taken.give_up()
    except OSError as error:
        raise OmfsError(f"{shared}: {error.strerror or error}: no lease can be had") from error


def _last_holder(directory: LeaseDirectory, seen: LeaseView) -> LeaseHolder | None:
    """Within a timed call: that the file system does not answer is raised by that call, not here."""
    try:
        return directory.holder(seen.lease.epoch) if seen.lease is not None else None
    except (OmfsError, OSError):  # damaged, or not readable, which must not keep jobs from being released
        return None
