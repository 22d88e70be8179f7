"""What the planner asks about victims: who can be preempted for a need, and the preemption to plan then."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.policy.arrays.free_resources import RefusedRequests
from omfs_daemon.policy.plan import PlannedPreemption, Reason, Victim
from omfs_daemon.policy.victims.candidates import Candidates
from omfs_daemon.policy.victims.choice import choose_untried, choose_victims
from omfs_daemon.policy.victims.need import ResourceNeed, VictimChoice
from omfs_daemon.policy.working_state import WorkingState


class PreemptionSearch:
    """For one plan; requests for which there are not enough victims are remembered."""

    def __init__(self, working_state: WorkingState, now: float) -> None:
        self._working_state, self._now = working_state, now
        self._insufficient: dict[tuple[int, bool, float, object], RefusedRequests] = {}

    @cached_property
    def candidates(self) -> Candidates:
        return self._working_state.candidates(self._now)

    def find(self, need: ResourceNeed, tried: Sequence[Collection[str]]) -> VictimChoice | None:
        """The victims for a need; ``tried``: as in ``choose_untried``."""
        state = self._working_state
        if tried:
            return choose_untried(need, self.candidates, state.capacity.then, state.usage, state.rules, tried)
        terms = need.realtime.terms if need.realtime is not None else None
        key = (need.leaf.index, need.urgent, need.own_since, terms)
        insufficient = self._insufficient.setdefault(key, RefusedRequests())
        if not need.allocations and insufficient.covers(need.request):
            return None
        choice = choose_victims(need, self.candidates, state.capacity.then, state.usage, state.rules)
        if choice is None and not need.allocations:
            insufficient.add(need.request)
        return choice

    def victims(self, choice: VictimChoice) -> list[tuple[Job, str]]:
        """The jobs of a choice with their methods."""
        return [(self.candidates.jobs[at], method) for at, method in choice.victims]

    def planned(
        self, job: Job, ref: str, need: ResourceNeed, choice: VictimChoice, reason: Reason
    ) -> PlannedPreemption:
        """The preemption, with the numbers on which it rests."""
        capacity, usage, found = self._working_state.capacity, self._working_state.usage, self.candidates
        return PlannedPreemption(
            preemptor=ref,
            account=job.account,
            reason=reason,
            urgent=need.urgent,
            suspended=job.state is JobState.SUSPENDED,
            allocations=choice.allocations,
            victims=tuple(
                Victim(found.jobs[at].ref, found.jobs[at].account, method, int(found.cpus[at]))
                for at, method in choice.victims
            ),
            submitted=job.submit,
            numbers={
                "cpus": need.cpus,
                "idle": capacity.now.total,
                "entitled": usage.entitled[need.leaf.index],
                "used": usage.all[need.leaf.index],
            },
        )
