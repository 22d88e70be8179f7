"""Makes jobs of rows, and keeps those that have not changed since the poll before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omfs_daemon.cluster.jobs import Allocation, Job, with_run_time
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands import parse_jobs as parse
from omfs_daemon.slurm.commands.job_rows import is_same_but_for_time_used
from omfs_daemon.slurm.commands.parse_requests import Requests
from omfs_daemon.slurm.commands.site_sizes import SiteSizes
from omfs_daemon.slurm.commands.squeue_fields import JobRow

_REQUESTS_PER_JOB = 3
"""That are kept: by its text, by itself, and one of a job that is gone."""

_Allocations = tuple[Allocation, ...] | None
_MadeOf = tuple[JobRow, str, SiteSizes, _Allocations]


class KnownJobs:
    """The jobs of the last poll, by id as squeue prints it, each with what ``parse.job`` made it of."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_MadeOf, Job]] = {}
        self._requests: Requests = {}
        self._site = SiteSizes()

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._known

    def of(
        self,
        rows: Iterable[JobRow],
        excluded: Mapping[str, str],
        site: SiteSizes,
        allocations: Mapping[str, _Allocations],
    ) -> list[Job]:
        """The jobs of these rows, which are the rows of all jobs; the same objects as before where nothing has changed.

        ``excluded`` (ExcNodeList), ``allocations``: by job id.
        """
        before, known = self._known, dict[str, tuple[_MadeOf, Job]]()
        if site is not self._site:
            self._site, self._requests = site, {}
        for row in rows:
            job_id = row.job_id
            made_of = row, excluded.get(job_id, ""), site, allocations.get(job_id, ())
            old = before.get(job_id)
            if old is not None and old[0] == made_of:
                known[job_id] = old
            else:
                job = (old and _ran_on(*old, made_of)) or parse.job(*made_of, self._requests)
                known[job_id] = made_of, job
        self._known = known
        if len(self._requests) > _REQUESTS_PER_JOB * len(known):
            self._requests = {}
        return [job for _, job in known.values()]


def _ran_on(before: _MadeOf, job: Job, now: _MadeOf) -> Job | None:
    """The job with its present run time; None if anything else has changed, or a field cannot be read."""
    if job.set_aside or before[1:] != now[1:] or not is_same_but_for_time_used(before[0], now[0]):
        return None
    try:
        return with_run_time(job, parse.run_time(now[0].time_used))
    except ParseError:
        return None
