"""The progress of each job, and the segments in which it held CPUs."""

from __future__ import annotations

from math import inf, nan

import numpy as np

from omfs_daemon.simulate.engine.omfs_case import OmfsCase, Trail
from omfs_daemon.simulate.engine.outcome import Segments, Use


class JobWork:
    """Seconds, by job. ``done``: kept from earlier segments; ``since``: the last start or resume; ``works_from``: when
    it computes again; ``preempted_at``: its preemptions, in order; ``turn``: numbers the segments, so that an end that
    was scheduled for an earlier one is known to be void."""

    def __init__(self, case: OmfsCase) -> None:
        count = len(case.leaf)
        self._case = case
        self.done = [0.0] * count
        self.since = [nan] * count
        self.works_from = [inf] * count
        self.turn = [0] * count
        self.start = np.full(count, nan)
        self.finish = np.full(count, nan)
        self.preemptions = np.zeros(count, dtype=np.int64)
        self.preempted_at: list[list[float]] = [[] for _ in range(count)]
        self._segments: list[tuple[int, float, float, Use]] = []
        self._preemptions: list[tuple[float, int, int]] = []

    def begin(self, job: int, now: float) -> float:
        """The job starts or resumes; returns when it will end if it is not preempted."""
        costs, resumes = self._case.costs, bool(self.preempted_at[job])
        if not resumes:
            self.start[job] = now
        resume = float(costs.resume[job]) if resumes and costs.keeps[job] else 0.0
        self.since[job], self.works_from[job] = now, now + resume
        self.turn[job] += 1
        return self.works_from[job] + max(0.0, float(self._case.jobs.run[job]) - self.done[job])

    def progress(self, job: int, now: float) -> float:
        """Seconds of work that a preemption now would keep."""
        return self.done[job] + max(0.0, now - self.works_from[job])

    def interrupt(self, job: int, now: float) -> None:
        """The signal arrives: the job stops computing."""
        keeps = bool(self._case.costs.keeps[job])
        worked = self.progress(job, now)
        self._note(job, self.since[job], min(now, self.works_from[job]), Use.RESUME)
        self._note(job, self.works_from[job], now, Use.WORK if keeps else Use.LOST)
        self.done[job] = worked if keeps else 0.0
        self.works_from[job] = inf
        self.turn[job] += 1
        self.preemptions[job] += 1

    def free_cpus(self, job: int, preempting_since: float, now: float) -> None:
        self._note(job, preempting_since, now, Use.PREEMPTION)

    def end(self, job: int, now: float) -> None:
        self._note(job, self.since[job], self.works_from[job], Use.RESUME)
        self._note(job, self.works_from[job], now, Use.WORK)
        self.finish[job] = now
        self.turn[job] += 1

    def decide_preemption(self, job: int, preemptor: int, now: float) -> None:
        self.preempted_at[job].append(now)
        self._preemptions.append((now, job, preemptor))

    def _note(self, job: int, begin: float, end: float, use: Use) -> None:
        if end > begin:
            self._segments.append((job, begin, end, use))

    def trail(self) -> Trail:
        job, begin, end, use = np.array(self._segments, dtype=np.float64).reshape(-1, 4).T
        at, victim, preemptor = np.array(self._preemptions, dtype=np.float64).reshape(-1, 3).T
        return Trail(
            self.start,
            self.finish,
            self.preemptions,
            Segments(job.astype(np.int64), begin, end, use.astype(np.int64)),
            at,
            victim.astype(np.int64),
            preemptor.astype(np.int64),
        )
