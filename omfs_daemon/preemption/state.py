"""The daemon's state, and the journal's records, of which it is the fold (``state_fold.py``).

A record is a dataclass; its JSON form is ``{"kind": NAME, ...}``. A change of records or fields is a new journal format
(``daemon/store/file_format.py``), and records of older ones are still read: a new field has a default, and what
replaces another takes its form, too. What Slurm itself knows is never recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, get_args

from pydantic import TypeAdapter

from omfs_daemon.cluster.preempt_methods import MethodTraits
from omfs_daemon.cluster.snapshot import PreemptedJob, PreemptionHistory
from omfs_daemon.errors import JournalError
from omfs_daemon.preemption.ownership import JobField, OwnedField
from omfs_daemon.preemption.past_preemptions import PastPreemptions, set_apart
from omfs_daemon.preemption.preemption import Preemption
from omfs_daemon.preemption.preemptor_backoffs import NodeDoubt, PreemptorBackoffs, ShapeBackoff, Unstarted, UserBackoff
from omfs_daemon.preemption.realtime_memory import RealtimeSeen
from omfs_daemon.preemption.unsaved_order import UnsavedOrder


@dataclass(frozen=True, slots=True)
class ClusterNamed:
    """All that follows concerns this cluster; written once. A job is known by its cluster and its id."""

    name: str


@dataclass(frozen=True, slots=True)
class PreemptionChanged:
    """A preemption enters a step; written before the step's orders are sent."""

    preemption: Preemption


@dataclass(frozen=True, slots=True)
class OrdersNumbered:
    """A batch of orders that write marks has this number; written before they are sent. ``holds`` and ``releases``: the
    jobs that it holds and releases, as it names them."""

    number: int
    holds: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HoldsOver:
    """We hold these jobs no longer, or their releases have been observed."""

    refs: tuple[str, ...]


class FieldSet(NamedTuple):
    """A field of a job, and how it is owned from now on."""

    ref: str
    field: JobField
    owned: OwnedField


@dataclass(frozen=True, slots=True)
class FieldsSet:
    """These fields are set next; written before the orders are sent."""

    fields: tuple[FieldSet, ...]


@dataclass(frozen=True, slots=True)
class FieldsLeft:
    """These fields, by job, are not ours any more."""

    fields: tuple[tuple[str, JobField], ...]


@dataclass(frozen=True, slots=True)
class TransitionsOrdered:
    """These orders, by job, are sent next."""

    orders: dict[str, UnsavedOrder]


@dataclass(frozen=True, slots=True)
class OrdersSaved:
    """slurmctld has saved the effects of the last orders for these jobs, or they were never carried out."""

    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobPreempted:
    """A victim has freed its CPUs, or may have; ``gres`` as in ``PreemptedJob``, the last as in ``PastPreemptions``."""

    ref: str
    at: float
    method: str
    preemptor: str
    gres: tuple[tuple[str, int], ...] = ()
    waits_since: float = 0.0


@dataclass(frozen=True, slots=True)
class JobRunsAgain:
    """A preempted job runs again; ``resumed``: it goes on where it was, and its quantum starts anew."""

    ref: str
    at: float
    resumed: bool


@dataclass(frozen=True, slots=True)
class JobsGone:
    """Jobs that Slurm lists no longer: they are forgotten."""

    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PreemptorBackoff:
    """A preemption for this job has failed; no other one for it before ``until``, nor for jobs of the ``shape``.
    ``doubts``: as in ``PreemptorBackoffs``; ``victims``: those that were preempted in vain."""

    ref: str
    until: float
    shape: ShapeBackoff | None = None
    unstarted: Unstarted | None = None
    doubts: dict[str, NodeDoubt] = field(default_factory=dict)
    victims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackoffOver:
    """What kept these jobs from being started has changed, or they run; jobs of these shapes have started. These
    ``doubts`` are no longer."""

    refs: tuple[str, ...]
    shapes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UsersBackOff:
    """Those of the served jobs that have ended or run long enough, and all users whose jobs were too brief."""

    refs: tuple[str, ...]
    users: dict[str, UserBackoff]


@dataclass(frozen=True, slots=True)
class VictimBackoff:
    """This job could not be preempted, ``times`` times now; not again before ``until``. 0 times: it is left to end what
    it is doing, and earlier failures still count."""

    ref: str
    until: float
    times: int = 1


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator paused the daemon."""

    by: str
    at: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PauseEnded:
    by: str
    at: float


@dataclass(frozen=True, slots=True)
class State:
    """``cluster``: ClusterName, "" as long as Slurm has not answered; ``preemptions``: those under way; ``owned``: the
    fields that we have set, by job.

    ``sequence``: the number of the last batch of orders; ``held`` and ``releasing``: jobs that we have held, and whose
    release is ordered and not observed yet, with the numbers of the batches. ``unsaved``: the last order for a
    job, as long as slurmctld might forget it.
    """

    cluster: str = ""
    preemptions: dict[int, Preemption] = field(default_factory=dict)
    next_preemption: int = 1
    sequence: int = 0
    held: dict[str, int] = field(default_factory=dict)
    releasing: dict[str, int] = field(default_factory=dict)
    owned: dict[str, dict[JobField, OwnedField]] = field(default_factory=dict)
    unsaved: dict[str, UnsavedOrder] = field(default_factory=dict)
    preempted: dict[str, PreemptedJob] = field(default_factory=dict)
    running_since: dict[str, float] = field(default_factory=dict)
    past_preemptions: dict[str, PastPreemptions] = field(default_factory=dict)
    backoff: PreemptorBackoffs = field(default_factory=PreemptorBackoffs)
    spared: dict[str, float] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    pause: Pause | None = None

    def preemption_history(self, methods: Mapping[str, MethodTraits]) -> PreemptionHistory:
        return PreemptionHistory(
            preempted=self.preempted,
            running_since=self.running_since,
            preemption_times={ref: tuple(at for at, _ in past.recent) for ref, past in self.past_preemptions.items()},
            preemption_counts={ref: past.times for ref, past in self.past_preemptions.items()},
            backoff=self.backoff.until,
            shapes={shape: one.until for shape, one in self.backoff.shapes.items()},
            users={user: one.until for user, one in self.backoff.users.items()},
            tried=self.backoff.tried,
            spared=self.spared,
            failures=self.failures,
            set_apart=set_apart(self.past_preemptions),
            time_limits=self.backoff.realtime.limits,
            runs=self.backoff.realtime.runs,
            waits_since={ref: past.waits_since for ref, past in self.past_preemptions.items() if past.waits_since},
            under_way=tuple(preemption.commitment(methods) for _, preemption in sorted(self.preemptions.items())),
        )

    def known_refs(self) -> frozenset[str]:
        """Every job of which the state holds something."""
        by_ref = (
            self.preempted, self.running_since, self.past_preemptions, self.backoff.until, self.backoff.unstarted,
            self.backoff.tried, self.spared, self.failures, self.held, self.releasing, self.owned,
        )  # fmt: skip
        return frozenset().union(*by_ref)


@dataclass(frozen=True, slots=True)
class WholeState:
    """A whole state: the one record of a compacted journal."""

    state: State


Record = (
    WholeState
    | ClusterNamed
    | PreemptionChanged
    | OrdersNumbered
    | HoldsOver
    | FieldsSet
    | FieldsLeft
    | TransitionsOrdered
    | OrdersSaved
    | JobPreempted
    | JobRunsAgain
    | JobsGone
    | PreemptorBackoff
    | BackoffOver
    | UsersBackOff
    | VictimBackoff
    | RealtimeSeen
    | Pause
    | PauseEnded
)
_KINDS: dict[str, type[Record]] = {kind.__name__: kind for kind in get_args(Record)}


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    """Built when it is first needed: all of them cost a tenth of a second, and a new journal needs none."""
    return TypeAdapter(_KINDS[kind])


def to_json(record: Record) -> dict[str, Any]:
    data: dict[str, Any] = _adapter(type(record).__name__).dump_python(record, mode="json")
    return {"kind": type(record).__name__, **data}


def from_json(data: dict[str, Any]) -> Record:
    """The record; JournalError if this version does not know it."""
    try:
        fields = dict(data)
        record: Record = _adapter(fields.pop("kind")).validate_python(fields)
    except (KeyError, TypeError, ValueError) as error:  # pydantic's ValidationError is a ValueError
        raise JournalError(f"a record that this version does not know: {str(data)[:200]}") from error
    return record
