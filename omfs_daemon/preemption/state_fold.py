"""What the journal's records add up to.

Within a fold the mappings are changed in place: reading a journal takes time by its length alone, not by that times the
jobs that are known. What goes in is copied, so that no state changes that somebody else has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omfs_daemon.cluster.snapshot import PreemptedJob
from omfs_daemon.preemption.job_numbers import JobNumbers
from omfs_daemon.preemption.past_preemptions import PastPreemptions
from omfs_daemon.preemption.preemption import Preemption
from omfs_daemon.preemption.realtime_memory import RealtimeSeen
from omfs_daemon.preemption.state import (
    BackoffOver,
    ClusterNamed,
    FieldsLeft,
    FieldsSet,
    HoldsOver,
    JobPreempted,
    JobRunsAgain,
    JobsGone,
    OrdersNumbered,
    OrdersSaved,
    Pause,
    PauseEnded,
    PreemptionChanged,
    PreemptorBackoff,
    Record,
    State,
    TransitionsOrdered,
    UsersBackOff,
    VictimBackoff,
    WholeState,
)


def state_after(state: State, records: Iterable[Record]) -> State:
    """The state once these records are written; ``state`` itself stays as it is."""
    fold: StateFold | None = None
    for record in records:
        fold = StateFold(state) if fold is None else fold
        fold.add(record)
    return state if fold is None else fold.state


class StateFold:
    """``state``: after all that was added; it is the fold's own until nothing more is."""

    def __init__(self, state: State) -> None:
        self._begin(state)

    def _begin(self, state: State) -> None:
        self.state = _copied(state)
        self._held, self._releasing = JobNumbers(self.state.held), JobNumbers(self.state.releasing)

    def add(self, record: Record) -> None:
        state = self.state
        match record:
            case WholeState(whole):
                self._begin(whole)
            case ClusterNamed(name):
                self.state = replace(state, cluster=name)
            case PreemptionChanged(preemption):
                self._change(preemption)
            case OrdersNumbered(number, holds, releases):
                self._end_holds((*holds, *releases))
                self._held.put(holds, number)
                self._releasing.put(releases, number)
                self.state = replace(state, sequence=max(state.sequence, number))
            case HoldsOver(refs):
                self._end_holds(refs)
            case FieldsSet(fields):
                for ref, field, value in fields:
                    state.owned[ref] = {**state.owned.get(ref, {}), field: value}
            case FieldsLeft(left):
                for ref, field in left:
                    rest = {name: owned for name, owned in state.owned.pop(ref, {}).items() if name != field}
                    if rest:
                        state.owned[ref] = rest
            case TransitionsOrdered(ordered):
                state.unsaved.update(ordered)
            case OrdersSaved(refs):
                for ref in refs:
                    state.unsaved.pop(ref, None)
            case JobPreempted(ref, at, method, preemptor, gres, waits_since):
                past = state.past_preemptions.get(ref, PastPreemptions())
                state.past_preemptions[ref] = past.and_now(at, preemptor, waits_since)
                state.preempted[ref] = PreemptedJob(at, method, preemptor, gres)
                state.failures.pop(ref, None)
            case JobRunsAgain(ref, at, resumed):
                state.preempted.pop(ref, None)
                if resumed:
                    state.running_since[ref] = at
            case JobsGone(refs):
                self._forget(refs)
            case PreemptorBackoff(ref, until, shape, unstarted, doubts, victims):
                state.backoff.add(ref, until, shape, unstarted, doubts, victims)
            case BackoffOver(refs, shapes, doubts):
                state.backoff.remove(refs, shapes, doubts)
            case UsersBackOff(refs, users):
                state.backoff.watch(refs, users)
            case VictimBackoff(ref, until, times):
                state.spared[ref] = until
                if times:
                    state.failures[ref] = times
            case RealtimeSeen():
                state.backoff.realtime.note(record)
            case Pause():
                self.state = replace(state, pause=record)
            case PauseEnded():
                self.state = replace(state, pause=None)

    def _change(self, preemption: Preemption) -> None:
        state = self.state
        state.preemptions[preemption.id] = preemption
        if preemption.step.is_over:
            del state.preemptions[preemption.id]
            state.backoff.note_served(preemption, state.preempted)
        self.state = replace(state, next_preemption=max(state.next_preemption, preemption.id + 1))

    def _end_holds(self, refs: tuple[str, ...]) -> None:
        self._held.leave_out(refs)
        self._releasing.leave_out(refs)

    def _forget(self, refs: tuple[str, ...]) -> None:
        state = self.state
        for ref in refs:
            self._held.forget(ref)
            self._releasing.forget(ref)
            for known in (state.preempted, state.running_since, state.past_preemptions, state.spared, state.failures):
                known.pop(ref, None)
            state.owned.pop(ref, None)
        state.backoff.forget_jobs(refs)


def _copied(state: State) -> State:
    return replace(
        state,
        preemptions=dict(state.preemptions),
        held=dict(state.held),
        releasing=dict(state.releasing),
        owned=dict(state.owned),
        unsaved=dict(state.unsaved),
        preempted=dict(state.preempted),
        running_since=dict(state.running_since),
        past_preemptions=dict(state.past_preemptions),
        backoff=state.backoff.copy(),
        spared=dict(state.spared),
        failures=dict(state.failures),
    )
