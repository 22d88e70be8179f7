"""The track record of estimated starts in the daemon: kept over restarts, and usable from several threads."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from math import inf
from threading import Lock

import numpy as np

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.daemon.store.ended_jobs import EndedJobs
from omfs_daemon.predict.start_times import StartQuantiles
from omfs_daemon.starts.start_estimates import StartEstimates
from omfs_daemon.starts.track_record import TrackRecord

_NO_START = StartQuantiles(inf, inf, inf)


class StartRecord:
    """``store`` keeps it; ``seed``: of the moments that are drawn."""

    def __init__(self, store: EndedJobs, seed: int) -> None:
        self._store = store
        self._random = np.random.default_rng(seed)
        self._lock = Lock()
        self._record = TrackRecord(self._random)
        self.load()

    def load(self) -> None:
        """As it is stored."""
        with self._lock:
            self._record = TrackRecord(self._random, self._store.noted_starts())

    def due(self, waiting: Iterable[Job], now: float) -> list[Job]:
        """Of these jobs those whose start is to be noted."""
        with self._lock:
            return [job for job in waiting if self._record.is_due(job.id, now)]

    def note(self, jobs: Sequence[Job], estimates: StartEstimates) -> None:
        """What has just been foreseen of them."""
        found = [(job, estimates.of(job.ref) or _NO_START) for job in jobs]
        with self._lock:
            noted = [(job.user, self._record.note(job.id, estimates.taken, start)) for job, start in found]
            self._store.keep_noted(noted)

    def began(self, starts: Iterable[tuple[int, float]]) -> None:
        """These jobs have started, at these times: number and seconds since the epoch."""
        with self._lock:
            known = [one for job, at in starts if (one := self._record.began(job, at)) is not None]
            if known:
                self._store.keep_begun(known)

    def keep_only(self, jobs: Container[int]) -> None:
        """Others do not wait any more."""
        with self._lock:
            gone = self._record.keep_only(jobs)
            if gone:
                self._store.drop_noted(gone)

    @property
    def late(self) -> float:
        """How many times its p50 a wait takes at most (``track_record``)."""
        with self._lock:
            return self._record.late

    def held(self) -> tuple[float | None, int]:
        """See ``TrackRecord``."""
        with self._lock:
            return self._record.held()
