"""The lease as its holder has it: renewed before each cycle, and looked at before each order."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

import structlog

from omfs_daemon.cluster.marks import first_number_of
from omfs_daemon.daemon.leadership.holder import LeaseHolder
from omfs_daemon.daemon.leadership.lease import EXPIRY, RENEW_EVERY, Lease, LeaseView, is_fresh, may_keep
from omfs_daemon.daemon.leadership.lease_directory import LeaseDirectory
from omfs_daemon.daemon.leadership.timed_calls import TimedCalls
from omfs_daemon.errors import OmfsError

ANSWERS_WITHIN = 5.0
"""Seconds after which a file system counts as hung; with MARGIN less than EXPIRY."""


class LeaseLost(OmfsError):
    """This process may give no orders now; nothing was sent."""


def since_boot() -> float:
    """Seconds of a clock that also runs while this host sleeps, and that nobody can set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leadership:
    """Of one epoch, from its taking on. ``clock``: as ``since_boot``. ``controller_seen``: when an active slurmctld was
    last seen beside this daemon. Any thread may call ``require``; one at a time the others."""

    def __init__(
        self,
        directory: LeaseDirectory,
        lease: Lease,
        taken_at: float,
        holder: LeaseHolder,
        controller_seen: Callable[[], float],
        calls: TimedCalls,
        clock: Callable[[], float] = since_boot,
    ) -> None:
        self.epoch = lease.epoch
        self.is_lost = False
        self._directory = directory
        self._lease = lease
        self._renewed_at = taken_at
        self._tried_at = taken_at
        self._holder = holder
        self._unwritten = ""
        """Why the directory may say something else of the holder, as far as that was logged; "" if it does not."""
        self._controller_seen = controller_seen
        self._calls = calls
        self._clock = clock
        self._lock = Lock()
        self._log = structlog.get_logger("lease")
        self._trouble = ""

    @property
    def first_number(self) -> int:
        """Marks of this epoch have a higher number."""
        return first_number_of(self.epoch)

    @property
    def is_fresh(self) -> bool:
        return not self.is_lost and is_fresh(self._renewed_at, self._clock())

    def require(self) -> None:
        """LeaseLost unless the lease is fresh: a daemon that was paused for too long gives no order."""
        if not self.is_fresh:
            raise LeaseLost(self._trouble or f"the lease of epoch {self.epoch} has expired: nothing is ordered")

    def renew(self) -> None:
        """Renew it if that is due. LeaseLost if it is lost for good (``is_lost``), or cannot be renewed and has
        expired."""
        with self._lock:
            now = self._clock()
            if not self.is_lost and not may_keep(self._controller_seen(), now):
                self._lose("no active slurmctld is on this host any more", give_up=True)
            # A lease that is not fresh is tried again at once: what is left of a cycle may not use the old one.
            if not self.is_lost and (now - self._tried_at >= RENEW_EVERY or not is_fresh(self._renewed_at, now)):
                self._try(now)
        self.require()

    def _try(self, began: float) -> None:
        self._tried_at = began
        try:
            renewed = self._calls.run(lambda: self._directory.renew(self._lease))
        except (OSError, OmfsError) as error:
            reason = str(error)
            if isinstance(error, OSError):
                reason = f"{self._directory.path}: {error.strerror or error}"
            trouble = f"{reason}: the lease cannot be renewed"
            if trouble != self._trouble:
                self._log.error("lease_not_renewed", epoch=self.epoch, error=trouble)
            self._trouble = trouble
            return
        if renewed is None:
            self._lose("another omfsd has taken the lease, or somebody has removed or copied it", give_up=False)
            return
        if self._trouble:
            self._log.info("lease_renewed", epoch=self.epoch, message="omfsd decides again")
        self._lease, self._renewed_at, self._trouble = renewed, began, ""
        if self._unwritten:
            self._write_holder()

    def _lose(self, why: str, give_up: bool) -> None:
        self.is_lost, self._trouble = True, f"epoch {self.epoch}: {why}: nothing is ordered"
        self._log.warning("lease_lost", epoch=self.epoch, error=why)
        if give_up:
            self._free()

    def give_up(self) -> None:
        """When nothing more is ordered, and no order is under way: another omfsd may act at once."""
        with self._lock:
            if not self.is_lost:
                self.is_lost, self._trouble = True, f"the lease of epoch {self.epoch} was given up"
                self._free()

    def _free(self) -> None:
        try:
            self._calls.run(lambda: self._directory.give_up(self._lease))
        except OSError as error:
            text = f"{self._directory.path}: {error.strerror or error}: the lease expires after {EXPIRY:g} s"
            self._log.warning("lease_not_given_up", epoch=self.epoch, error=text)

    def update(self, holder: LeaseHolder) -> None:
        """After a reload. What cannot be written is written after the next renewal."""
        with self._lock:
            if holder != self._holder and not self.is_lost:
                self._holder = holder
                self._write_holder()

    def _write_holder(self) -> None:
        try:
            self._calls.run(lambda: self._directory.update_holder(self.epoch, self._holder))
        except OSError as error:
            text = f"{self._directory.holder_file(self.epoch)}: {error.strerror or error}"
            if text != self._unwritten:
                again = "the standby goes by the old one; it is written after a renewal of the lease"
                self._log.error("holder_not_written", error=text, message=again)
            self._unwritten = text
        else:
            self._unwritten = ""


def take_lease(
    directory: LeaseDirectory,
    seen: LeaseView,
    holder: LeaseHolder,
    controller_seen: Callable[[], float],
    calls: TimedCalls,
    clock: Callable[[], float] = since_boot,
) -> Leadership | None:
    """None if somebody else was first. OSError if the file system does not let it."""
    began = clock()
    lease = calls.run(lambda: directory.take(seen, holder))
    if lease is None:
        return None
    return Leadership(directory, lease, began, holder, controller_seen, calls, clock)
