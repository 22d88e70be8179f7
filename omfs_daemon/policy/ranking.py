"""Puts waiting jobs into bands, so that Slurm starts them in the policy's order."""

from __future__ import annotations

from collections.abc import Iterable

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.policy.arrays.job_arrays import task_refs
from omfs_daemon.policy.arrays.usage import Usage
from omfs_daemon.policy.plan import Rank
from omfs_daemon.policy.rules.queue_order import Band, band_of, nice_in
from omfs_daemon.policy.victims.need import ResourceNeed


class Ranking:
    """Ranks at most ``depth`` jobs, in the order in which they are put; the others keep Slurm's priority."""

    def __init__(self, usage: Usage, depth: int) -> None:
        self._entitled = usage.entitled
        self._expected = list(usage.all)
        self._depth = depth
        self._bands: dict[str, tuple[Job, Band]] = {}
        self.is_one_account = False
        """Whether all jobs that wait are of one account: their order is Slurm's then, in which the first gets its nodes
        however large it is. Here the small ones behind it would come first, as they fit into the entitlement."""

    @property
    def is_full(self) -> bool:
        return len(self._bands) >= self._depth

    def put(self, job: Job, ref: str, band: Band) -> None:
        """The highest band that a job is put into counts."""
        if ref in self._bands:
            band = max(band, self._bands[ref][1])
        elif self.is_full:
            return
        self._bands[ref] = (job, band)

    def expect(self, job: Job, ref: str, need: ResourceNeed, is_preempted: bool) -> bool:
        """Rank the job among those to start next, unless such jobs already fill its account's entitlement."""
        path = need.leaf.path
        if self.is_one_account and not is_preempted:
            return False
        if not any(self._expected[index] + need.cpus <= self._entitled[index] for index in path):
            return False
        self.put(job, ref, Band.PREEMPTED_ENTITLED if is_preempted else Band.ENTITLED)
        for index in path:
            self._expected[index] += need.cpus
        return True

    def changes(self, banded: Iterable[Job], leave_alone: set[str]) -> tuple[Rank, ...]:
        """The ranks that differ from Slurm's; jobs that have a band (``banded``) and should not are put back."""
        found = []
        for ref, (job, band) in self._bands.items():
            if ref not in leave_alone and band_of(job) is not band:
                found.append(Rank(ref, band, nice_in(job, band)))
        for job in banded:
            found += [
                Rank(ref, Band.NONE, nice_in(job, Band.NONE))
                for ref in task_refs(job)
                if ref not in self._bands and ref not in leave_alone
            ]
        return tuple(found)
