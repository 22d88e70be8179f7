"""Asks squeue for what it does not print with the rest: of all jobs now and then, of others when they first wait.

A second answer about all jobs would double what a poll costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.slurm.commands.squeue_fields import JobRow, row_state

ALL_AGAIN = 10.0
"""Seconds after which all jobs are asked for again: so old may be what somebody has changed of a waiting job."""

SINGLE_QUERIES = 4
"""slurmctld finds one job by its id; to answer for a list of ids, squeue takes its whole job table."""

Ask = Callable[[Sequence[str]], dict[str, str]]


class AskedApart:
    """A text about each waiting job, by job id. ``ask``: squeue's answer about these jobs; ``clock``: monotonic."""

    def __init__(self, ask: Ask, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._known: dict[str, str] = {}
        self._asked_all = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether all jobs are to be asked for again."""
        return self._clock() - self._asked_all >= ALL_AGAIN

    def of_one(self, job_id: str) -> dict[str, str]:
        """Of one waiting job, as it is now. May be called from any thread."""
        found = self._ask([job_id])
        self._known = {**self._known, **found}
        return found

    def of(self, rows: Iterable[JobRow], everything: Future[dict[str, str]] | None) -> Mapping[str, str]:
        """Of the waiting jobs among these, which are all rows; ``everything``: an answer about all jobs."""
        waiting = [row.job_id for row in rows if row_state(row) is JobState.PENDING]
        known = self._known
        if everything is not None:
            asked_at, known = self._clock(), everything.result()
            self._asked_all = asked_at
        new = [job_id for job_id in waiting if job_id not in known]
        if len(new) <= SINGLE_QUERIES:
            found = {job_id: listed for one in new for job_id, listed in self._ask([one]).items()}
        else:
            found = self._ask(new)
        known = known | found
        # One without an answer does not wait any more, or waits anew: it is asked for again.
        self._known = {job_id: known[job_id] for job_id in waiting if job_id in known}
        return self._known
