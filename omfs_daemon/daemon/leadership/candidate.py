"""A daemon that does not hold the lease: looks at it, and takes it once it may."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from omfs_daemon.daemon.leadership.holder import LeaseHolder, unlike
from omfs_daemon.daemon.leadership.leadership import Leadership, since_boot, take_lease
from omfs_daemon.daemon.leadership.lease import (
    EXPIRY,
    Controller,
    LeaseDecision,
    LeaseView,
    LeaseWatch,
    Stand,
    judge_lease,
)
from omfs_daemon.daemon.leadership.lease_directory import LeaseDirectory
from omfs_daemon.daemon.leadership.timed_calls import TimedCalls
from omfs_daemon.errors import OmfsError

CHECKED_WITHIN = 60.0
"""Seconds for the check whether this daemon could act, which reads the whole journal; systemd's watchdog has more."""

_DIFFERS = "its configuration differs, so this omfsd would not take over: make them the same and reload"


class _Seen(NamedTuple):
    """``unread``: what is wrong with what the holder says about itself."""

    view: LeaseView
    holder: LeaseHolder | None
    unread: str = ""

    @property
    def active(self) -> str:
        """Who is active, as long as the lease is renewed."""
        if self.holder is not None:
            return f"omfsd on {self.holder.host} is active"
        if self.unread:
            return f"an omfsd is active; {self.unread}"
        epoch = self.view.newest
        return (
            f"the lease of epoch {epoch} is nobody's (no holder.{epoch}): taken if it is not renewed for {EXPIRY:g} s"
        )


class Candidate:
    """``own``: what this daemon says about itself; ``controller``: the active slurmctld; ``controller_seen``: when that
    was last beside this daemon, by ``clock``; ``unfit``: why this daemon could not act, "" if it could, which
    ``checks`` may take longer to tell than ``calls`` to the lease's directory."""

    def __init__(
        self,
        directory: LeaseDirectory,
        own: Callable[[], LeaseHolder],
        controller: Callable[[], Controller],
        controller_seen: Callable[[], float],
        unfit: Callable[[], str],
        calls: TimedCalls,
        checks: TimedCalls,
        clock: Callable[[], float] = since_boot,
    ) -> None:
        self.directory = directory
        self.decision = LeaseDecision(Stand.STAND_BY, "the lease was not looked at yet")
        self.holder: LeaseHolder | None = None
        """Of the newest lease."""
        self.differs = False
        """Whether that one goes by another configuration than this daemon, which would not take over."""
        self.epoch = 0
        self._own = own
        self._controller = controller
        self._controller_seen = controller_seen
        self._unfit = unfit
        self._calls = calls
        self._checks = checks
        self._clock = clock
        self._watch: LeaseWatch | None = None

    def step(self) -> Leadership | None:
        """Look once; the lease if it was taken, else ``decision`` says why not."""
        try:
            return self._step()
        except OSError as error:
            text = f"{self.directory.path}: {error.strerror or error}: no lease can be had"
        except OmfsError as error:
            text = str(error)
        self.decision = LeaseDecision(Stand.REFUSE, text)
        return None

    def _step(self) -> Leadership | None:
        seen = self._see("")
        if self.decision.stand is not Stand.TAKE:
            return None
        # That may take long: the lease may not be the same afterwards, nor slurmctld be here.
        unfit, before = self._why_unfit(seen), seen
        seen = self._see(unfit)
        if self.decision.stand is not Stand.TAKE or seen != before:
            return None
        return take_lease(self.directory, seen.view, self._own(), self._controller_seen, self._calls, self._clock)

    def _see(self, unfit: str) -> _Seen:
        """What there is, and what is to be done about it."""
        seen = self._calls.run(self._look)
        self.holder, self.epoch = seen.holder, seen.view.lease.epoch if seen.view.lease is not None else 0
        self.differs = bool(self._unlike(seen))
        active = f"{seen.active}; {_DIFFERS}" if self.differs else seen.active
        # When the answer is there: a look that took long saw no more than what was there in the beginning.
        now = self._clock()
        self._watch = LeaseWatch(seen.view, now) if self._watch is None else self._watch.after(seen.view, now)
        self.decision = judge_lease(self._watch, now, self._controller(), active, unfit)
        return seen

    def _why_unfit(self, seen: _Seen) -> str:
        return seen.unread or self._unlike(seen) or self._checks.run(self._unfit)

    def _unlike(self, seen: _Seen) -> str:
        return unlike(self._own(), seen.holder, str(self.directory.holder_file(self.epoch)))

    def _look(self) -> _Seen:
        view = self.directory.look()
        if view.lease is None:
            return _Seen(view, None)
        try:
            return _Seen(view, self.directory.holder(view.lease.epoch))
        except OmfsError as error:
            return _Seen(view, None, str(error))
