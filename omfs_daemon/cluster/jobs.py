"""A job as Slurm shows it.

Memory is bytes, times are seconds since the epoch. A waiting job array is one ``Job`` with
``tasks`` waiting tasks; a task that has started (or was requeued) is a job of its own, as in
Slurm's own records (https://slurm.schedmd.com/job_array.html).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from math import inf
from operator import attrgetter
from typing import NamedTuple

MOST_LOCAL_ID = 0x03FFFFFF
"""slurm.conf(5), MaxJobId: a federation puts the number of the cluster into the bits above."""


class JobState(StrEnum):
    """Job states; all of Slurm's terminal states are ENDED (squeue(1), JOB STATE CODES)."""

    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETING = "COMPLETING"
    ENDED = "ENDED"


# Python 3.11 takes ten times as long for ``JobState.RUNNING`` as for a name, and there may be 100,000 jobs.
_PENDING = JobState.PENDING
_RUN = (JobState.RUNNING, JobState.CONFIGURING)
_HOLD_CPUS = (*_RUN, JobState.COMPLETING)


class Hold(StrEnum):
    """Who holds a waiting job. The owner may release a USER hold, never an ADMIN hold."""

    NONE = "none"
    USER = "user"
    ADMIN = "admin"


class Allocation(NamedTuple):
    """What a job has on one node: CPUs and bytes of memory."""

    node: str
    cpus: int
    memory: int


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a job requests; equal requests fit on the same nodes, so it is the key of placement caches.

    ``cpus`` is the total, spread over ``nodes`` to ``max_nodes`` nodes with at least
    ``min_cpus_per_node`` on each. ``gres`` is per node: ``(("gpu:a100", 2),)``. ``features`` is
    Slurm's expression (``"fast&ve"``). An exclusive job takes whole nodes.
    ``unplaced``: the daemon must choose its nodes before Slurm starts it (docs/node-licenses.md). ``parts``: of a
    heterogeneous job what each of its parts requests, on nodes of its own, all at once; then ``cpus`` and ``nodes`` are
    their sums, and ``partitions`` is all that any of them names.
    """

    cpus: int
    nodes: int = 1
    max_nodes: int = 0
    min_cpus_per_node: int = 1
    memory_per_cpu: int = 0
    memory_per_node: int = 0
    gres: tuple[tuple[str, int], ...] = ()
    features: str = ""
    exclusive: bool = False
    partitions: tuple[str, ...] = ()
    required_nodes: frozenset[str] = frozenset()
    excluded_nodes: frozenset[str] = frozenset()
    unplaced: bool = False
    parts: tuple[JobRequest, ...] = ()

    def off_nodes(self, nodes: frozenset[str]) -> JobRequest:
        """The same on other nodes than these."""
        parts = tuple(part.off_nodes(nodes) for part in self.parts)
        return replace(self, excluded_nodes=self.excluded_nodes | nodes, parts=parts)


class JobPart(NamedTuple):
    """A part of a heterogeneous job: its raw id, what it requests, what it has, and its own AdminComment."""

    id: int
    request: JobRequest
    allocations: tuple[Allocation, ...] = ()
    admin_comment: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """One job, or the waiting rest of a job array.

    ``id``: Slurm's raw job id, unique; ``ref``: what Slurm's commands take: ``"7"``, ``"3_1"`` for one task of an
    array, ``"3_[4-5]"`` for its waiting rest. Users write the name, comment, and user: hostile text.
    ``requeue``: it was not submitted with --no-requeue. ``batch``: by sbatch; Slurm requeues no others, whatever
    ``requeue`` says. ``required_nodes`` in the request is the
    *present* ReqNodeList, so it includes nodes to which we pinned the job. ``licenses``: by name, requested while it
    waits and held from its start to its end. ``deadline``: by then Slurm ends it (sbatch(1)). ``special_exit``: it is
    held because its script ended with an exit code that slurm.conf lists in RequeueExitHold. ``failed``: it has ended,
    and Slurm says FAILED. ``kept_off``: nodes that its request excludes only because they are reserved for others, or
    ``doubted``: Slurm did not start a job that requests the same there, although it seemed to fit.
    ``set_aside``: why the daemon leaves the job to Slurm ("": it does not): a field cannot be read, jobs of its kind
    are not supported, or it is out of scope (``cluster/scope.py``). Then fields may be missing; an allocation of 0 CPUs
    on a node, or a request of 0 CPUs, cannot be read. ``array_throttle``: how many tasks of its array may run at a
    time, 0: any number or unknown. ``singleton``: it waits for all jobs of its user and name that began before it.
    ``exclusive_user``: jobs of other users may not run on its nodes. ``parts``: of a heterogeneous job, which is one
    ``Job`` with the id of its first part (``cluster/het_jobs.py``); none of any other. ``ended_part``: a part of it has
    ended while others run or are suspended, so that Slurm would not start it again.
    """

    id: int
    ref: str
    user: str
    uid: int
    account: str
    state: JobState
    request: JobRequest
    submit: float
    partition: str = ""
    qos: str = ""
    hold: Hold = Hold.NONE
    reason: str = ""
    priority: int = 0
    nice: int = 0
    eligible: float | None = None
    start: float | None = None
    run_time: float = 0.0
    time_limit: float = inf
    deadline: float = inf
    allocations: tuple[Allocation, ...] = ()
    licenses: tuple[tuple[str, int], ...] = ()
    array_id: int | None = None
    task_ids: tuple[int, ...] = ()
    array_throttle: int = 0
    reservation: str = ""
    singleton: bool = False
    exclusive_user: bool = False
    restarts: int = 0
    special_exit: bool = False
    failed: bool = False
    requeue: bool = True
    batch: bool = True
    comment: str = ""
    admin_comment: str = ""
    name: str = ""
    kept_off: frozenset[str] = frozenset()
    doubted: frozenset[str] = frozenset()
    set_aside: str = ""
    parts: tuple[JobPart, ...] = ()
    ended_part: str = ""

    @property
    def tasks(self) -> int:
        """The number of waiting array tasks, or 1."""
        return max(1, len(self.task_ids)) if self.state is _PENDING else 1

    @property
    def on_nodes(self) -> tuple[str, ...]:
        return tuple(allocation.node for allocation in self.allocations)

    @property
    def spans_nodes(self) -> bool:
        """Whether it has, or requests, more than one node. One that leaves their number open may get several later."""
        return max(self.request.nodes, len(self.allocations)) > 1

    @property
    def holds_cpus(self) -> bool:
        """Whether it uses its CPUs; those of a suspended job are free for others (scontrol(1), suspend)."""
        return self.state in _HOLD_CPUS

    @property
    def runs(self) -> bool:
        return self.state in _RUN

    def remaining(self) -> float:
        """Seconds until its time limit; infinite without one."""
        return max(0.0, self.time_limit - self.run_time)


_FIELDS = [field.name for field in fields(Job)]
_RUN_TIME = _FIELDS.index("run_time")
_BEFORE, _AFTER = attrgetter(*_FIELDS[:_RUN_TIME]), attrgetter(*_FIELDS[_RUN_TIME + 1 :])
_make: Callable[..., Job] = Job


def with_run_time(job: Job, run_time: float) -> Job:
    """As ``replace``, at half its cost: the run time of every running job changes all the time."""
    return _make(*_BEFORE(job), run_time, *_AFTER(job))


def differ_in_run_time_only(one: Job, other: Job) -> bool:
    return _BEFORE(one) == _BEFORE(other) and _AFTER(one) == _AFTER(other)
