"""Forgets the exemptions of jobs that have ended: Slurm may give their numbers to others one day."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from omfs_daemon.cluster.exemptions import ExemptKind
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.api.why_view import listed_in
from omfs_daemon.daemon.store.exemption_store import ExemptionStore
from omfs_daemon.errors import ControlError

KNOWN_FOR = 300.0
"""Seconds for which Slurm knows an ended job (the default of MinJobAge): until then it can be requeued."""


class EndedExemptions:
    """``changed`` is called when some were forgotten. What is counted begins anew with omfsd."""

    def __init__(self, store: ExemptionStore, changed: Callable[[], None], clock: Callable[[], float]) -> None:
        self._store = store
        self._changed = changed
        self._clock = clock
        self._missing_since: dict[str, float] = {}

    def observe(self, snapshot: Snapshot) -> None:
        """After each full poll; one that fails says nothing."""
        names = [one.name for one in self._store.exemptions.all if one.kind is ExemptKind.JOB]
        if not names:
            return
        listed, now = listed_in(snapshot), self._clock()
        missing = [name for name in names if listed(name) is None]
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        if over := [name for name, since in self._missing_since.items() if now - since >= KNOWN_FOR]:
            with suppress(ControlError):  # a full disk: tried again after the next poll
                self._store.forget_jobs(over)
                self._changed()
