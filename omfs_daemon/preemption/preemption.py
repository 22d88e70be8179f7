"""One preemption as data: steps, outcome, preemptor, victims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from omfs_daemon.cluster.jobs import Allocation, Job
from omfs_daemon.cluster.preempt_methods import ENDS, MethodTraits
from omfs_daemon.cluster.snapshot import PreemptionUnderWay
from omfs_daemon.policy.plan import Reason
from omfs_daemon.preemption.methods.base import Licenses
from omfs_daemon.preemption.methods.requeue import RequeueMethod
from omfs_daemon.preemption.methods.suspend import SuspendMethod
from omfs_daemon.slurm.gateway import OrderRefusal


class Step(StrEnum):
    """What is being done now (or was, when the daemon died).

    PROVING: no victim is touched until Slurm says that the preemptor, the first one for its nodes, lacks nothing but
    resources. STOPPING: it is the first one, and the victims are preempted. STARTING: all victims have
    freed their resources. DONE and UNDONE: nothing is wanted for it any more.
    """

    PROVING = "proving"
    STOPPING = "stopping"
    STARTING = "starting"
    DONE = "done"
    UNDONE = "undone"

    @property
    def is_over(self) -> bool:
        return self in (Step.DONE, Step.UNDONE)


class PreemptionOutcome(StrEnum):
    """How a preemption ended; the label in metrics and history."""

    STARTED = "started"
    PREEMPTOR_GONE = "preemptor_gone"
    NOT_STARTED = "not_started_in_time"
    PREEMPTOR_HELD = "preemptor_held"
    PREEMPTOR_REQUEUED = "preemptor_requeued"
    VICTIM_STAYED = "victim_not_preempted"
    REFUSED = "refused_by_slurm"
    TOO_OLD = "decision_too_old"
    NODE_LOST = "node_lost"
    CPUS_TAKEN = "cpus_taken"
    NOT_DUE = "not_due"
    EXEMPTED = "victim_exempted"
    RULES_CHANGED = "rules_changed"
    NOT_STARTABLE = "not_startable"
    NOT_PROVEN = "not_proven"
    GAVE_WAY = "gave_way"
    STARTED_ELSEWHERE = "started_elsewhere"
    OUT_OF_SCOPE = "out_of_scope"


HURTS = frozenset(
    {
        PreemptionOutcome.NOT_STARTED,
        PreemptionOutcome.VICTIM_STAYED,
        PreemptionOutcome.REFUSED,
        PreemptionOutcome.TOO_OLD,
        PreemptionOutcome.NODE_LOST,
        PreemptionOutcome.CPUS_TAKEN,
    }
)
"""Outcomes that cost others their work for nothing, or keep a job from what it is owed: somebody should look."""


@dataclass(frozen=True, slots=True)
class Preemptor:
    """The job for which others are preempted.

    nice            that ranks it first
    licenses        what it must request on its nodes (None: what it requests already)
    method          by which it was preempted itself, if it is suspended
    lacks_devices   whether victims have devices that it must get back
    restarts, run_time  as Slurm showed them when it was chosen: they tell whether it has run since
    shape           as in ``shape_of``
    doubted         Slurm's reason when jobs were last preempted for it in vain ("": they never were): it proves nothing
    """

    ref: str
    account: str
    user: str
    urgent: bool
    suspended: bool
    submitted: float
    allocations: tuple[Allocation, ...]
    nice: int
    licenses: Licenses | None = None
    method: str = SuspendMethod.traits.name
    lacks_devices: bool = False
    restarts: int = 0
    run_time: float = 0.0
    shape: str = ""
    doubted: str = ""

    def nodes_to_pin(self, job: Job) -> tuple[str, ...]:
        """The nodes on which Slurm is told to start it, by name. None for a heterogeneous job, whose first part takes
        no pin (``cluster/het_jobs.py``): its rank keeps its nodes, as Slurm starts nothing behind it in its partition.
        """
        return () if job.parts else tuple(sorted(allocation.node for allocation in self.allocations))


@dataclass(frozen=True, slots=True)
class VictimState:
    """A job that is preempted, and how.

    start          tells this run of the job from a later one
    last_resort    the method that its class allows when this one fails; "": it is then left running
    failed_before  as in ``ObservedJob``
    keeps          what of its licenses it keeps while preempted (None: all)
    gres           what it thereby gives up on each node
    waits_since    as in ``PreemptionHistory``, once Slurm has requeued it; 0: it stays on its nodes
    signal         that warns it before a requeue, ``[B:]NAME``; "": it has none, or did not heed it
    """

    ref: str
    account: str
    user: str
    method: str
    cpus: int
    start: float
    last_resort: str = ""
    failed_before: int = 0
    keeps: Licenses | None = None
    gres: tuple[tuple[str, int], ...] = ()
    waits_since: float = 0.0
    signal: str = ""

    @property
    def ends_by_itself(self) -> bool:
        """Whether it is left to run until its time limit."""
        return self.method == ENDS.name

    @property
    def warning(self) -> str:
        """The signal that is sent instead of its requeue at first; "" for none."""
        return self.signal if self.method == RequeueMethod.traits.name else ""

    @property
    def kind(self) -> tuple[str, bool]:
        """Victims of one kind have the same method."""
        return self.method, bool(self.warning)

    @property
    def without_mercy(self) -> VictimState | None:
        """How it is preempted if it stays: without the warning that it did not heed, or by its class's last resort;
        None if it is then left running."""
        if self.warning:
            return replace(self, signal="")
        return replace(self, method=self.last_resort, last_resort="") if self.last_resort else None


@dataclass(frozen=True, slots=True)
class Preemption:
    """One preemption. ``since``: when its present step began; ``refused``: the orders that Slurm refused, and why.

    In PROVING, ``asks``: Slurm is asked a question, and the preemptor is left as it is. ``is_released``: else, whether
    it was observed released, ranked, and pinned, and ``since`` is then.

    ``beside``: another preemption for the same job, on other nodes, whichever began first (0: none). ``retried``: an
    earlier one for it has failed.

    ``started_at``: when the preemptor has started, as Slurm says (in whole seconds); of one that was suspended, when it
    was first observed running again, which Slurm does not say.
    """

    id: int
    step: Step
    begun: float
    since: float
    reason: str
    preemptor: Preemptor
    victims: tuple[VictimState, ...]
    started_at: float | None = None
    outcome: PreemptionOutcome | None = None
    asks: bool = False
    is_released: bool = False
    refused: tuple[tuple[str, str], ...] = ()
    beside: int = 0
    retried: bool = False

    @property
    def is_for_realtime(self) -> bool:
        """Whether it was begun for a real-time job whose bound was in danger."""
        return self.reason == Reason.REALTIME.value

    def commitment(self, methods: Mapping[str, MethodTraits]) -> PreemptionUnderWay:
        return PreemptionUnderWay(
            self.preemptor.ref,
            self.preemptor.account,
            self.preemptor.allocations,
            frozenset(victim.ref for victim in self.victims),
            self.preemptor.urgent,
            {victim.ref: methods[victim.method] for victim in self.victims if victim.method in methods},
        )

    @property
    def waited(self) -> float | None:
        """Seconds from the preemptor's submission to its start; None if it has not started."""
        return None if self.started_at is None else self.started_at - self.preemptor.submitted

    @property
    def refs(self) -> tuple[str, ...]:
        return (self.preemptor.ref, *(victim.ref for victim in self.victims))


def absorb(preemption: Preemption, refusals: Iterable[OrderRefusal]) -> Preemption:
    """Add what Slurm refused in this step."""
    found = tuple((refusal.ref, refusal.message) for refusal in refusals)
    return replace(preemption, refused=(*preemption.refused, *found)) if found else preemption
