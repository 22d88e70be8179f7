"""The fake's jobs: a submission, its record, and its history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from omfs_daemon.cluster.job_refs import tasks_ref
from omfs_daemon.cluster.jobs import Allocation, Hold, Job, JobPart, JobRequest, JobState
from omfs_daemon.testing.fake_slurm.fake_licenses import sorted_licenses
from omfs_daemon.testing.fake_slurm.fake_nodes import Taken
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior

REQUEUED_HELD = "job requeued in held state"
BAD_CONSTRAINTS = "BadConstraints"
UNPRINTABLE_MEMORY = 2**60
HELD_REASON = {Hold.USER: "JobHeldUser", Hold.ADMIN: "JobHeldAdmin"}


@dataclass(frozen=True, slots=True)
class Submission:
    """One ``sbatch``.

    ``run_time`` is the work in seconds; a requeued job starts its work anew, except for what it had done when it
    last got the signal ``saves_on``. ``open_tasks``: without --ntasks, so it gets as many nodes as there are, up to its
    most, with their least CPUs. ``priority`` is what Slurm's own factors give. ``deadline``: seconds after the
    submission. ``begin`` is an absolute time, ``after`` are jobs that must have ended (afterany). ``array`` are task
    ids, of which ``array_throttle`` may run at a time (0: all). A job that ``ignores_term`` ends only by SIGKILL.
    ``licenses`` by name; ``launched``: its batch script runs under omfs-run.
    ``parts``: of a heterogeneous job what its other parts request; ``request`` is that of the first. ``interactive``:
    salloc or srun, not sbatch: Slurm never requeues it.
    """

    request: JobRequest
    open_tasks: bool = False
    user: str = "alice"
    account: str = ""
    run_time: float = inf
    time_limit: float = inf
    deadline: float = inf
    qos: str = ""
    comment: str = ""
    admin_comment: str = ""
    name: str = ""
    uid: int | None = None
    hold: Hold = Hold.NONE
    nice: int = 0
    priority: int = 0
    begin: float = 0.0
    after: tuple[int, ...] = ()
    array: tuple[int, ...] = ()
    array_throttle: int = 0
    ignores_term: bool = False
    requeue: bool = True
    saves_on: str = ""
    licenses: tuple[tuple[str, int], ...] = ()
    launched: OmfsRunBehavior | None = None
    parts: tuple[JobRequest, ...] = ()
    interactive: bool = False


def whole_request(requests: Sequence[JobRequest]) -> JobRequest:
    """What a job requests, of which these are the parts if there are several; with the CPUs that its nodes imply, which
    Slurm counts only when the job starts."""
    implied = tuple(replace(one, cpus=max(one.cpus, one.nodes * one.min_cpus_per_node)) for one in requests)
    if len(implied) == 1:
        return implied[0]
    return JobRequest(
        cpus=sum(one.cpus for one in implied),
        nodes=sum(one.nodes for one in implied),
        partitions=tuple(sorted({name for one in implied for name in one.partitions})),
        parts=implied,
    )


@dataclass(slots=True)
class History:
    """The history of one job, for assertions. Times in seconds.

    ``done`` is the work that counted when it ended, ``lost`` what requeues threw away, ``outcome`` one of
    COMPLETED, TIMEOUT, CANCELLED, FAILED, NODE_FAIL ("" while it is in the queue), ``signals`` what it was sent.
    """

    starts: list[float] = field(default_factory=list)
    suspensions: int = 0
    done: float = 0.0
    lost: float = 0.0
    ended: float | None = None
    outcome: str = ""
    signals: list[tuple[float, str, bool]] = field(default_factory=list)


@dataclass(slots=True)
class Record:
    """One job inside the fake. ``hold`` is also set on running jobs, which run on, and wait once they are requeued.

    ``saved`` is the work with which it last started, ``checkpoint`` the work that a requeue now would leave it,
    ``generations`` how many checkpoints omfs-run has written, ``run_state`` what it reports in this run,
    ``failures`` how many checkpoints failed in it. ``depends``: a job that it is to run after has not ended. Of a
    heterogeneous job, ``part_of`` says which part has what of ``taken``, ``ended_parts`` which ended by themselves.
    """

    id: int
    what: Submission
    uid: int
    submitted: float
    request: JobRequest
    partitions: tuple[str, ...]
    state: JobState = JobState.PENDING
    hold: Hold = Hold.NONE
    held_text: str = ""
    reason: str = "None"
    nice: int = 0
    eligible: float | None = None
    depends: bool = False
    partition: str = ""
    started: float | None = None
    ran: float = 0.0
    since: float | None = None
    saved: float = 0.0
    checkpoint: float = 0.0
    generations: int = 0
    licenses: tuple[tuple[str, int], ...] = ()
    launched: OmfsRunBehavior | None = None
    run_state: str = ""
    failures: int = 0
    special_exit: bool = False
    requeue: bool = True
    comment: str = ""
    taken: tuple[Taken, ...] = ()
    part_of: tuple[int, ...] = ()
    ended_parts: frozenset[int] = frozenset()
    array_id: int | None = None
    tasks: tuple[int, ...] = ()
    restarts: int = 0
    admin_comment: str = ""
    back: bool = False
    epoch: int = 0
    history: History = field(default_factory=History)
    shown: Job | None = None

    @property
    def ref(self) -> str:
        if self.array_id is None:
            return str(self.id)
        return tasks_ref(self.array_id, self.tasks if self.state is JobState.PENDING else self.tasks[:1])

    @property
    def deadline(self) -> float:
        return self.submitted + self.what.deadline

    @property
    def active(self) -> bool:
        """Its processes exist: it has nodes and is not completing."""
        return self.state in (JobState.RUNNING, JobState.SUSPENDED)

    @property
    def priority(self) -> int:
        """Slurm's multifactor priority: never below 1 unless held."""
        return 0 if self.hold is not Hold.NONE else max(1, self.what.priority - self.nice)

    def ran_until(self, now: float) -> float:
        """Slurm's run time: seconds since the start without suspensions."""
        return self.ran + (now - self.since if self.since is not None else 0.0)

    def work(self, now: float) -> float:
        """Work done that would count if it ended now."""
        return self.saved + self.ran_until(now)

    def view(self, now: float) -> Job:
        """The job as Slurm shows it; the same object as before if nothing changed."""
        if self.since is not None or self.shown is None:
            self.shown = self._job(now)
        return self.shown

    def _job(self, now: float) -> Job:
        waiting = self.state is JobState.PENDING
        # squeue has no unit for so much and prints "1?".
        is_unreadable = max(self.request.memory_per_node, self.request.memory_per_cpu) >= UNPRINTABLE_MEMORY
        return Job(
            id=self.id,
            ref=self.ref,
            user=self.what.user,
            uid=self.uid,
            account=self.what.account,
            state=self.state,
            request=JobRequest(cpus=0) if is_unreadable else self._shown_request,
            submit=self.submitted,
            partition=self.partition or ",".join(self.partitions),
            qos=self.what.qos,
            hold=self.shown_hold if waiting else Hold.NONE,
            reason=self._reason(),
            priority=self.priority,
            nice=self.nice,
            eligible=inf if waiting and self.depends else self._eligible,
            start=None if waiting else self.started,
            run_time=self.ran_until(now),
            time_limit=self.what.time_limit,
            deadline=self.deadline,
            allocations=tuple(taken.allocation for taken in self.taken),
            licenses=self.licenses,
            array_id=self.array_id,
            task_ids=self.tasks,
            array_throttle=self.what.array_throttle,
            restarts=self.restarts,
            special_exit=waiting and self.special_exit,
            failed=self.state is JobState.ENDED and self.history.outcome == "FAILED",
            requeue=self.requeue,
            batch=not self.what.interactive,
            comment=self.comment,
            admin_comment=self.admin_comment,
            name=self.what.name,
            set_aside=self._why_set_aside(is_unreadable),
            ended_part="" if self._ended_part is None else f"{self.id}+{self._ended_part}",
            parts=tuple(
                JobPart(self.id + at, request, self._allocations_of(at))
                for at, request in enumerate(self.request.parts)
                if at not in self.ended_parts
            ),
        )

    @property
    def _shown_request(self) -> JobRequest:
        if not self.ended_parts:
            return self.request
        left = [one for at, one in enumerate(self.request.parts) if at not in self.ended_parts]
        return replace(whole_request(left), parts=tuple(left))

    def _allocations_of(self, part: int) -> tuple[Allocation, ...]:
        found = zip(self.taken, self.part_of, strict=True) if self.taken else ()
        return tuple(taken.allocation for taken, owner in found if owner == part)

    def _why_set_aside(self, is_unreadable: bool) -> str:
        never_starts = self._ended_part is not None and self.state is JobState.PENDING
        return "a part has ended" if never_starts else "cannot be read" * is_unreadable

    @property
    def _ended_part(self) -> int | None:
        return min(self.ended_parts, default=None)

    @property
    def _eligible(self) -> float | None:
        return self.eligible if self.eligible is not None else self.what.begin or None

    @property
    def shown_hold(self) -> Hold:
        """Who seems to hold it: Slurm's texts for holds of its own hide an administrator's hold on top of them."""
        return Hold.USER if self.held_text else self.hold

    def _reason(self) -> str:
        if self.state is JobState.SUSPENDED:
            return "None"
        if self.hold is not Hold.NONE:
            return self.held_text or HELD_REASON[self.hold]
        return self.reason if self.state in (JobState.PENDING, JobState.COMPLETING) else "None"


def new_record(
    number: int, what: Submission, uid: int, now: float, request: JobRequest, partitions: tuple[str, ...]
) -> Record:
    """Of a job that is submitted now. ``request``: of the whole job."""
    return Record(
        number,
        what,
        uid,
        now,
        request,
        partitions,
        hold=what.hold,
        nice=what.nice,
        tasks=tuple(sorted(what.array)),
        array_id=number if what.array else None,
        admin_comment=what.admin_comment,
        licenses=sorted_licenses(what.licenses),
        launched=what.launched,
        requeue=what.requeue,
        comment=what.comment,
    )
