"""Learns from jobs as they start and end, in a thread of its own.

The cycle only hands snapshots over. Slurm is asked for ended jobs when some are listed no longer, at most once in
``ASK_EVERY`` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event, Thread

import structlog

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.learning.accounting_reader import AccountingReader
from omfs_daemon.daemon.learning.ended_watch import EndedWatch, goes_on, job_end
from omfs_daemon.daemon.learning.learned_jobs import LearnedJobs
from omfs_daemon.daemon.learning.start_record import StartRecord
from omfs_daemon.daemon.rest import Rest
from omfs_daemon.daemon.store.ended_jobs import Foreseen
from omfs_daemon.errors import GatewayError
from omfs_daemon.predict.job_ends import JobEnd
from omfs_daemon.slurm.gateway import Gateway

ASK_EVERY = 15.0
"""Seconds; well below Slurm's default MinJobAge of 300."""
FORESEE_EVERY = 60.0
"""Seconds between two estimates of the whole queue for the score, at least."""
SHARE_OF_TIME = 0.005
"""Of one core, for these estimates: of some waiting jobs they tell as well how good estimates are as of all."""
_UNSEEN = 30 * 86400.0


class Learner:
    """``foresee``: notes the starts of these jobs, which wait, and returns what is foreseen of those of them that are
    not among the numbers."""

    def __init__(
        self,
        *,
        gateway: Gateway,
        learned: LearnedJobs,
        accounting: AccountingReader,
        starts: StartRecord,
        keep_names: bool,
        foresee: Callable[[Sequence[Job], set[int]], list[Foreseen]],
        clock: Callable[[], float],
    ) -> None:
        self._gateway, self._learned, self._accounting, self._starts = gateway, learned, accounting, starts
        self._keep_names, self._foresee, self._clock = keep_names, foresee, clock
        self._watch = EndedWatch(keep_names)
        self._log = structlog.get_logger("predict")
        self._came_back: list[JobEnd] = []
        self._is_asking_due = False
        self._ask_rest, self._foresee_rest = Rest(), Rest()
        self._snapshot: Snapshot | None = None
        self._loaded = False

    def observe(self, snapshot: Snapshot) -> bool:
        """After each full poll; whether there is something to do. The only method for another thread."""
        noticed = self._watch.observe(snapshot)
        self._snapshot = snapshot
        self._came_back += noticed.came_back
        self._is_asking_due |= noticed.gone
        return noticed.gone or noticed.new

    def step(self) -> bool:
        """Do what is due; whether more is due at once."""
        if not self._loaded:
            self._loaded = True
            self._learned.load()
        now, seen = self._clock(), self._snapshot
        if self._is_asking_due and self._ask_rest.is_over(now):
            self._ask_slurm(now, seen)
        if seen is not None:
            jobs = seen.jobs.values()
            self._starts.began((job.id, job.start) for job in jobs if job.runs and job.start is not None)
            if self._foresee_rest.is_over(now):
                self._foresee_queue([job for job in jobs if _is_foreseen(job)], now)
        self._learned.train()
        return self._accounting.read_day()

    def _ask_slurm(self, now: float, seen: Snapshot | None) -> None:
        self._ask_rest.begin(now, ASK_EVERY)
        self._is_asking_due = False
        came_back, self._came_back = self._came_back, []
        self._learned.store.add(came_back)
        try:
            answered = self._gateway.ended_jobs()
        except GatewayError as error:
            self._is_asking_due = True
            self._log.warning("ended_jobs_not_asked", error=str(error))
            return
        ends = [(ended.job, end) for ended in answered if (end := job_end(ended, self._keep_names)) is not None]
        self._starts.began((end.job, end.start) for _, end in ends)
        if seen is not None:  # from before the question, so that whatever started meanwhile is still in it
            self._starts.keep_only(seen.jobs)
        self._learned.learn([self._learned.whole(end, goes_on(job)) for job, end in ends])

    def _foresee_queue(self, waiting: Sequence[Job], now: float) -> None:
        due = self._starts.due(waiting, now)
        if all(job.restarts for job in due):  # what only came back is noted with the next new one, which waits briefly
            return
        began = time.thread_time()
        store = self._learned.store
        store.forget_foreseen(now - _UNSEEN)
        store.foresee(self._foresee(due, store.foreseen()))
        self._foresee_rest.begin(now, max(FORESEE_EVERY, (time.thread_time() - began) / SHARE_OF_TIME))


def _is_foreseen(job: Job) -> bool:
    """Tasks of arrays get numbers of their own later."""
    return job.state is JobState.PENDING and not job.task_ids and not job.set_aside


class LearnerThread:
    """Lets a learner do what is due, when it is."""

    def __init__(self, step: Callable[[], bool]) -> None:
        self._step = step
        self._wake, self._ending = Event(), Event()
        self._thread = Thread(target=self._run, name="omfs-learner", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Something may be due."""
        self._wake.set()

    def close(self) -> None:
        """End the thread; a question to Slurm that is under way is waited for, a little."""
        self._ending.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                is_busy = self._step()
            except Exception:
                # A bug of ours here must not end more than predictions.
                log = structlog.get_logger("predict")
                log.exception("learning_failed", message="goes on with the next jobs that end")
                is_busy = False
            if not is_busy:
                self._wake.wait(ASK_EVERY)
                self._wake.clear()
