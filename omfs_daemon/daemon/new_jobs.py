"""What is new since the last full poll, asked for job by job: that takes as long however many jobs wait.

slurmctld gives job ids in order, so the next ones are asked for until there is none. If one is urgent, so are the jobs
that were completing, whose CPUs may be idle now, and the urgent ones that waited, which may have started since. What is
decided on the last full poll with them is confirmed: each job that it concerns is asked for once more, and the nodes of
which something idle is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from typing import NamedTuple

from omfs_daemon.cluster.jobs import MOST_LOCAL_ID, Job, JobState
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.snapshot import IdleMemory, Snapshot
from omfs_daemon.errors import GatewayError
from omfs_daemon.policy.plan import Start
from omfs_daemon.slurm.gateway import Gateway

MOST_JOBS = 8
"""Jobs of a decision, that were completing, or urgent ones that waited, that are asked for at once. For more that
waited, a full poll is cheaper; of more that were completing, none counts as gone."""

MOST_NEW = 32
"""New jobs that are asked for one after the other. Where a full poll takes seconds, the next one may have to wait for
half a minute: so many jobs can be submitted meanwhile, and each question takes some ten milliseconds."""

MOST_NODES = 64
"""Nodes that are asked for at once; of others nothing counts as idle."""

SINGLE_AGE = 2.0
"""Seconds for which the answer about a single job counts."""


class FoundJobs(NamedTuple):
    """The last full poll with the jobs that are new since then, and those that are new since the poll before, by
    reference. ``is_urgent``: the last of these is urgent and waits, and there may be more."""

    snapshot: Snapshot
    refs: frozenset[str]
    is_urgent: bool


class _Given(NamedTuple):
    """The next id that slurmctld gave at a time."""

    number: int
    at: float


class NewJobs:
    """Between two full polls. ``as_observed``: what becomes of jobs as Slurm shows them, at a time; ``is_urgent``: an
    urgent job that waits for no more than nodes."""

    def __init__(
        self,
        gateway: Gateway,
        clock: Callable[[], float],
        as_observed: Callable[[Sequence[Job], float], Sequence[Job]],
    ) -> None:
        self._gateway = gateway
        self._clock = clock
        self._as_observed = as_observed
        self._seen: Snapshot | None = None
        self._next_id = 0
        self._last_given = _Given(0, inf)

    def begin(self, snapshot: Snapshot, waiting: Collection[str]) -> None:
        """After a full poll: of the jobs that waited then, only these (by reference) matter. Ids that had been given
        before it and that it does not list are of no job that may start."""
        kept = {
            job.id: job for job in snapshot.jobs.values() if job.state is not JobState.PENDING or job.ref in waiting
        }
        self._seen = replace(snapshot, jobs=kept)
        given = self._last_given.number if self._last_given.at <= snapshot.taken else 0
        self._next_id = max(self._next_id, _after(snapshot.jobs), given)

    def forget(self) -> None:
        """Until the next full poll nothing is known."""
        self._seen = None

    def poll(self, is_urgent: Callable[[Job], bool]) -> FoundJobs | None:
        """None before the first full poll, or if too much is new, or may be. An urgent job that waits ends the search:
        it is to be decided upon first. What the jobs held that were completing and have left since is idle then, and
        what urgent ones have taken is not."""
        seen = self._seen
        if seen is None:
            return None
        asked_at = self._clock()
        found, urgent = self._search(is_urgent)
        if found is None:
            return None
        if urgent:
            waiting = _waiting(seen, is_urgent)
            if len(waiting) > MOST_JOBS:
                return None  # some may have started, on other nodes than they would be planned on
            seen = self._asked_again(seen, [*_completing(seen), *waiting])
        self._seen = self._with(seen, found, [], asked_at)
        return FoundJobs(self._seen, frozenset(job.ref for job in found), urgent)

    def _asked_again(self, seen: Snapshot, known: Sequence[Job]) -> Snapshot:
        """With these of its jobs as they are now, all asked for at once."""
        if not known:
            return seen
        asked_at = self._clock()
        with ThreadPoolExecutor(len(known)) as aside:
            again = list(aside.map(self._again, known))
        answered = [(job, now) for job, now in zip(known, again, strict=True) if now is not job]
        changed = [now for _, now in answered if now is not None and now.state is not JobState.COMPLETING]
        return self._with(seen, changed, [job.id for job, now in answered if now is None], asked_at)

    def _search(self, is_urgent: Callable[[Job], bool]) -> tuple[list[Job] | None, bool]:
        """The new jobs up to the first urgent one that waits, and whether there is one; None if they are too many.
        Where an id is not known, slurmctld is asked how many there are: it also spends some on jobs that it keeps no
        record of, as for ``sbatch --test-only``."""
        found, number, end, is_end_known = list[Job](), self._next_id, self._next_id + 1, False
        while number < end:
            job = self._gateway.find(number)
            number += 1
            if job is not None:
                self._next_id, end = number, max(end, number + 1)
                found.append(job)
                if len(found) > MOST_NEW or job.parts:
                    return None, False
                if is_urgent(job):
                    return found, True
            elif not is_end_known:
                given, is_end_known = self._given(), True
                self._last_given = _Given(given, self._clock())
                if 0 < given < self._next_id <= MOST_LOCAL_ID:  # lost jobs, or ids that begin again at FirstJobId
                    self._next_id = given
                    return None, False
                end = max(number, given)
                if end - number > MOST_NEW:
                    return None, False
        return found, False

    def _given(self) -> int:
        """The next id that slurmctld gives, as it says itself; 0 where it does not."""
        said = self._gateway.settings().values.get("NEXT_JOB_ID", "")
        return int(said) if said.isascii() and said.isdecimal() else 0

    def _again(self, job: Job) -> Job | None:
        """As it is now, None if Slurm no longer knows it; as it was where that cannot be told."""
        try:
            return self._gateway.find(job.id)
        except GatewayError:
            return job

    def confirmed(self, snapshot: Snapshot, jobs: Collection[Job], nodes: Collection[str]) -> Snapshot:
        """The snapshot with these of its jobs as they are now, and the memory that is idle on these nodes; as it is if
        the jobs are too many. One that was just asked for is not asked for again."""
        now, asked = self._clock(), snapshot.asked
        old = [job.id for job in jobs if now - asked.get(job.id, -inf) > SINGLE_AGE / 2]
        if len(old) > MOST_JOBS:
            return snapshot
        found, idle = self._ask(old, nodes)
        gone = [number for number, job in found.items() if job is None]
        confirmed = self._with(snapshot, [job for job in found.values() if job is not None], gone, now)
        memory = {node.name: IdleMemory(node.memory - node.memory_taken, now) for node in idle}
        return replace(confirmed, idle_memory=memory)

    def taken_since(self, starts: Iterable[Start]) -> frozenset[str] | None:
        """The nodes of these starts on which less is idle now than they take, or which are closed; None if that cannot
        be told."""
        cpus, memory = Counter[str](), Counter[str]()
        for allocation in (allocation for start in starts for allocation in start.allocations):
            cpus[allocation.node] += allocation.cpus
            memory[allocation.node] += allocation.memory
        if not cpus or len(cpus) > MOST_NODES:
            return None if cpus else frozenset()
        try:
            found = self._gateway.nodes(sorted(cpus))
        except GatewayError:
            return None  # a node that Slurm no longer knows: a full poll will show it
        idle = {
            node.name
            for node in found
            if node.up
            and node.cpus - node.cpus_taken >= cpus[node.name]
            and node.memory - node.memory_taken >= memory[node.name]
        }
        return frozenset(cpus) - idle

    def _ask(self, job_ids: Sequence[int], nodes: Collection[str]) -> tuple[Mapping[int, Job | None], Sequence[Node]]:
        """All at once."""
        if not job_ids and not nodes:
            return {}, ()
        with ThreadPoolExecutor(len(job_ids) + 1) as aside:
            idle = aside.submit(self._nodes_up, sorted(nodes)[:MOST_NODES])
            found = dict(zip(job_ids, aside.map(self._gateway.find, job_ids), strict=True))
            return found, idle.result()

    def _nodes_up(self, names: Sequence[str]) -> list[Node]:
        """Those that jobs may start on. If Slurm does not know one of them, none: a full poll will show why."""
        try:
            return [node for node in self._gateway.nodes(names) if node.up] if names else []
        except GatewayError:
            return []

    def _with(self, snapshot: Snapshot, found: Sequence[Job], gone: Iterable[int], asked_at: float) -> Snapshot:
        ended = [job.id for job in found if job.state is JobState.ENDED]
        live = self._as_observed([job for job in found if job.state is not JobState.ENDED], asked_at)
        changed = snapshot.with_jobs(snapshot.taken, live, [*gone, *ended])
        return replace(changed, asked={**snapshot.asked, **dict.fromkeys((job.id for job in live), asked_at)})


def _completing(snapshot: Snapshot) -> list[Job]:
    """The jobs that are completing; none if they are too many to be asked for singly."""
    found = [job for job in snapshot.jobs.values() if job.state is JobState.COMPLETING]
    return found if len(found) <= MOST_JOBS else []


def _waiting(snapshot: Snapshot, is_urgent: Callable[[Job], bool]) -> list[Job]:
    """The urgent jobs that wait, but for arrays and those of several parts."""
    single = (job for job in snapshot.jobs.values() if job.ref == str(job.id) and not job.parts)
    return [job for job in single if is_urgent(job)]


def _after(jobs: Mapping[int, Job]) -> int:
    """The first id that none of these jobs and their parts has."""
    most = max(jobs, default=0)
    return 1 + max([most, *(part.id for part in jobs[most].parts)] if jobs else [0])
