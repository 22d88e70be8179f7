"""How far each job is, and what its CPUs were held for."""

from __future__ import annotations

from math import inf, nan

import numpy as np

from omfs_daemon.simulate.engine.omfs_case import Case
from omfs_daemon.simulate.engine.omfs_case import Trail
from omfs_daemon.simulate.engine.outcome import Segments
from omfs_daemon.simulate.engine.outcome import Use


class Work:
    """Seconds, by job. ``done``: kept from earlier stretches; ``since``: the last start or resume; ``works_from``: when
    it computes again; ``stops_at``: its stops, in order; ``turn``: numbers the stretches, so that an end that was
    foreseen for an earlier one is known to be void."""

    def __init__(self, case: Case) -> None:
        count = len(case.leaf)
        self._case = case
        self.done = [0.0] * count
        self.since = [nan] * count
        self.works_from = [inf] * count
        self.turn = [0] * count
        self.start = np.full(count, nan)
        self.finish = np.full(count, nan)
        self.stops = np.zeros(count, dtype=np.int64)
        self.stopped_at: list[list[float]] = [[] for _ in range(count)]
        self._stretches: list[tuple[int, float, float, Use]] = []
        self._stops: list[tuple[float, int, int]] = []

    def begin(self, job: int, now: float) -> float:
        """It starts or runs on; returns when it will end, if nobody stops it."""
        costs, is_back = self._case.costs, bool(self.stopped_at[job])
        if not is_back:
            self.start[job] = now
        resume = float(costs.resume[job]) if is_back and costs.keeps[job] else 0.0
        self.since[job], self.works_from[job] = now, now + resume
        self.turn[job] += 1
        return self.works_from[job] + max(0.0, float(self._case.jobs.run[job]) - self.done[job])

    def progress(self, job: int, now: float) -> float:
        """Seconds of work that would be kept if it were kept now."""
        return self.done[job] + max(0.0, now - self.works_from[job])

    def break_off(self, job: int, now: float) -> None:
        """It computes no more: the signal arrives."""
        keeps = bool(self._case.costs.keeps[job])
        worked = self.progress(job, now)
        self._note(job, self.since[job], min(now, self.works_from[job]), Use.RESUME)
        self._note(job, self.works_from[job], now, Use.WORK if keeps else Use.LOST)
        self.done[job] = worked if keeps else 0.0
        self.works_from[job] = inf
        self.turn[job] += 1
        self.stops[job] += 1

    def gone(self, job: int, stopping_since: float, now: float) -> None:
        self._note(job, stopping_since, now, Use.STOP)

    def end(self, job: int, now: float) -> None:
        self._note(job, self.since[job], self.works_from[job], Use.RESUME)
        self._note(job, self.works_from[job], now, Use.WORK)
        self.finish[job] = now
        self.turn[job] += 1

    def decide_stop(self, job: int, beneficiary: int, now: float) -> None:
        self.stopped_at[job].append(now)
        self._stops.append((now, job, beneficiary))

    def _note(self, job: int, begin: float, end: float, use: Use) -> None:
        if end > begin:
            self._stretches.append((job, begin, end, use))

    def trail(self) -> Trail:
        job, begin, end, use = np.array(self._stretches, dtype=np.float64).reshape(-1, 4).T
        at, victim, beneficiary = np.array(self._stops, dtype=np.float64).reshape(-1, 3).T
        return Trail(
            self.start,
            self.finish,
            self.stops,
            Segments(job.astype(np.int64), begin, end, use.astype(np.int64)),
            at,
            victim.astype(np.int64),
            beneficiary.astype(np.int64),
        )
