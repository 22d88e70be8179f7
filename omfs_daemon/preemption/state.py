"""What the daemon remembers, as the fold of its journal's records. Pure: ``state = apply(state, record)``.

A record is a dataclass; its JSON form is ``{"kind": NAME, ...}``. What Slurm itself knows is never recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.cluster.snapshot import Stopped
from omfs_daemon.preemption.preemption import Outcome
from omfs_daemon.preemption.preemption import Stop
from omfs_daemon.errors import JournalError
from omfs_daemon.policy.rules.laws import HOUR


@dataclass(frozen=True, slots=True)
class StopChanged:
    """A stop enters a step; written before the step's orders are given."""

    stop: Stop


@dataclass(frozen=True, slots=True)
class JobStopped:
    """A victim holds its CPUs no longer; ``licenses`` and ``gres`` as in ``Stopped``."""

    ref: str
    at: float
    method: str
    beneficiary: str
    licenses: tuple[tuple[str, int], ...] = ()
    gres: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class JobBack:
    """A stopped job runs again; ``resumed`` if it goes on where it was, for its quantum starts anew then."""

    ref: str
    at: float
    resumed: bool


@dataclass(frozen=True, slots=True)
class JobsGone:
    """Jobs that Slurm lists no longer: nothing need be remembered of them."""

    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TriedInVain:
    """Stopping others did not let this job start; not again before ``until``."""

    ref: str
    until: float


@dataclass(frozen=True, slots=True)
class Spared:
    """This job could not be stopped, for so many times now; not again before ``until``."""

    ref: str
    until: float
    times: int = 1


@dataclass(frozen=True, slots=True)
class Unpinned:
    """A former beneficiary waits again, and its pin was taken off (or it is gone)."""

    ref: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Somebody told the daemon to keep its hands off."""

    by: str
    at: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PauseEnded:
    by: str
    at: float


@dataclass(frozen=True, slots=True)
class State:
    """Everything remembered. ``stops`` holds those that are not over; ``pins`` the nodes that a beneficiary had asked
    for before it was pinned."""

    stops: dict[int, Stop] = field(default_factory=dict)
    next_stop: int = 1
    stopped: dict[str, Stopped] = field(default_factory=dict)
    running_since: dict[str, float] = field(default_factory=dict)
    stop_times: dict[str, tuple[float, ...]] = field(default_factory=dict)
    backoff: dict[str, float] = field(default_factory=dict)
    spared: dict[str, float] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    pins: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pause: Pause | None = None

    def ledger(self, ways: Mapping[str, Method]) -> Ledger:
        return Ledger(
            stopped=self.stopped,
            running_since=self.running_since,
            stop_times=self.stop_times,
            backoff=self.backoff,
            spared=self.spared,
            failures=self.failures,
            commitments=tuple(stop.commitment(ways) for _, stop in sorted(self.stops.items())),
        )

    def known_refs(self) -> frozenset[str]:
        """Every job about which something is remembered."""
        by_ref = (
            self.stopped, self.running_since, self.stop_times, self.backoff, self.spared, self.failures, self.pins,
        )  # fmt: skip
        return frozenset().union(*by_ref)


@dataclass(frozen=True, slots=True)
class Remembered:
    """A whole state: the one record of a compacted journal."""

    state: State


Record = (
    Remembered | StopChanged | JobStopped | JobBack | JobsGone | TriedInVain | Spared | Unpinned | Pause | PauseEnded
)
_RECORDS: dict[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind)
    for kind in (
        Remembered, StopChanged, JobStopped, JobBack, JobsGone, TriedInVain, Spared, Unpinned, Pause,
        PauseEnded,
    )
}  # fmt: skip


def apply(state: State, record: Record) -> State:
    """The state after a record."""
    match record:
        case Remembered(remembered):
            return remembered
        case StopChanged(stop):
            return _with_stop(state, stop)
        case JobStopped(ref, at, method, beneficiary, licenses, gres):
            recent = tuple(t for t in state.stop_times.get(ref, ()) if t > at - HOUR)
            return replace(
                state,
                stopped={**state.stopped, ref: Stopped(at, method, beneficiary, licenses, gres)},
                failures=_without(state.failures, ref),
                stop_times={**state.stop_times, ref: (*recent, at)},
            )
        case JobBack(ref, at, resumed):
            since = {**state.running_since, ref: at} if resumed else state.running_since
            return replace(state, stopped=_without(state.stopped, ref), running_since=since)
        case JobsGone(refs):
            return _forget(state, frozenset(refs))
        case TriedInVain(ref, until):
            return replace(state, backoff={**state.backoff, ref: until})
        case Spared(ref, until, times):
            return replace(state, spared={**state.spared, ref: until}, failures={**state.failures, ref: times})
        case Unpinned(ref):
            return replace(state, pins=_without(state.pins, ref))
        case Pause():
            return replace(state, pause=record)
        case PauseEnded():
            return replace(state, pause=None)


def _with_stop(state: State, stop: Stop) -> State:
    stops = {**state.stops, stop.id: stop}
    pins = state.pins
    if stop.step.is_over:
        del stops[stop.id]
        if stop.outcome is not Outcome.CHANGED and not stop.beneficiary.suspended:
            pins = {**pins, stop.beneficiary.ref: stop.beneficiary.required_before}
    return replace(state, stops=stops, pins=pins, next_stop=max(state.next_stop, stop.id + 1))


def _without(mapping: dict[str, Any], ref: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key != ref}


def _forget(state: State, refs: frozenset[str]) -> State:
    def kept(mapping: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in mapping.items() if key not in refs}

    return replace(
        state,
        stopped=kept(state.stopped),
        running_since=kept(state.running_since),
        stop_times=kept(state.stop_times),
        backoff=kept(state.backoff),
        spared=kept(state.spared),
        failures=kept(state.failures),
        pins=kept(state.pins),
    )


# -- JSON ------------------------------------------------------------------------------------------------
def to_json(record: Record) -> dict[str, Any]:
    data: dict[str, Any] = _RECORDS[type(record).__name__].dump_python(record, mode="json")
    return {"kind": type(record).__name__, **data}


def from_json(data: dict[str, Any]) -> Record:
    """The record; JournalError if it is none of ours (a newer version's journal, or a damaged one)."""
    try:
        fields = dict(data)
        record: Record = _RECORDS[fields.pop("kind")].validate_python(fields)
    except (KeyError, TypeError, ValidationError) as error:
        raise JournalError(f"a record that this version does not know: {str(data)[:200]}") from error
    return record
