"""The cheapest victims for a real-time job: of all sets on which it fits, the one of least weighted cost (Nickolay et
al. 2021, section 6.3, Algorithm 2).

The paper looks at every partition of the machine; here groups of nodes play that part, as many as the request has at
least. Groups come by what their nodes cost one by one, which is never more than what the group costs: the first one
whose jobs pay in full is the cheapest. On others (jobs on several nodes, accounts that may give only so much) all sets
of jobs are searched, within ``GROUPS``, ``TRIES``, and ``MOST_JOBS``; beyond these the set may not be the least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import NamedTuple

import numpy as np

from omfs_daemon.cluster.jobs import JobRequest
from omfs_daemon.policy.arrays.free_resources import FreeResources
from omfs_daemon.policy.arrays.job_arrays import RunningAllocations
from omfs_daemon.policy.arrays.node_arrays import Bools, Ints
from omfs_daemon.policy.arrays.usage import Usage
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.victims.candidates import Candidates
from omfs_daemon.policy.victims.cheapest_nodes import CheapestNodes, NodeVictims, groups_of
from omfs_daemon.policy.victims.eligibility import are_borrowers
from omfs_daemon.policy.victims.need import RealtimeNeed, ResourceNeed, VictimChoice
from omfs_daemon.policy.victims.victim_costs import VictimCosts, costs_of_victims

GROUPS = 70
"""The most groups of nodes that are looked at for one need: all of 4 nodes among 8."""
TRIES = 1024
"""The most placements that are tried for one need, and a quarter of that for one group of nodes."""
MOST_JOBS = 64
"""The most jobs of a group of nodes among which a set is searched, the cheapest first."""

ROUNDING = 1e-9
"""Sums of costs that differ by no more are equal."""

Pick = Callable[[int], str]


class CheapSet(NamedTuple):
    """A set of victims on which the need fits. ``cost``: the sum of theirs."""

    cost: float
    choice: VictimChoice


def choose_cheapest(
    need: ResourceNeed, candidates: Candidates, free: FreeResources, usage: Usage, rules: Rules
) -> VictimChoice | None:
    """The cheapest victims for a real-time job; None if no eligible ones are enough."""
    found = cheapest_sets(need, candidates, free, usage, rules, only_least=True)
    return found[0].choice if found else None


def cheapest_sets(
    need: ResourceNeed,
    candidates: Candidates,
    free: FreeResources,
    usage: Usage,
    rules: Rules,
    only_least: bool = False,
) -> list[CheapSet]:
    """The cheapest set of each group of nodes, the cheapest one first. ``only_least``: groups that cannot be cheaper
    than one before them may be left out.

    First among jobs of accounts above their entitlement; then, if ``urgent_may_take_entitled``, among all.
    """
    realtime = need.realtime
    if realtime is None or need.allocations or not len(candidates.jobs):
        return []
    over = np.array(usage.all, dtype=np.int64) > np.array(usage.entitled, dtype=np.int64)

    def fair(chosen: Sequence[int]) -> bool:
        return are_borrowers([(candidates.leaves[at], int(candidates.cpus[at])) for at in chosen], usage)

    laws: list[tuple[Bools, Callable[[Sequence[int]], bool]]] = [(over[candidates.leaf], fair)]
    if rules.urgent_may_take_entitled:
        laws.append((np.ones(len(candidates.jobs), dtype=bool), lambda _: True))
    picks = (candidates.preferred, candidates.most_freeing) if candidates.has_choice else (candidates.preferred,)
    for mask, is_fair in laws:
        sets = [
            found
            for pick in picks
            for found in _Cheapest(need, realtime, candidates, free, rules, is_fair, pick).sets(mask, only_least)
        ]
        if sets:
            return sorted(sets, key=lambda one: (one.cost, one.choice.victims))
    return []


class _Cheapest:
    """The search for one need; ``pick`` chooses each victim's method."""

    def __init__(
        self,
        need: ResourceNeed,
        realtime: RealtimeNeed,
        candidates: Candidates,
        free: FreeResources,
        rules: Rules,
        is_fair: Callable[[Sequence[int]], bool],
        pick: Pick,
    ) -> None:
        self.need, self.candidates, self.free, self.is_fair, self.pick = need, candidates, free, is_fair, pick
        key = realtime.terms, pick == candidates.most_freeing
        if key not in candidates.known_costs:
            candidates.known_costs[key] = _costs_of_candidates(realtime, candidates, rules, pick)
        self.costs = candidates.known_costs[key]
        self.cost = self.costs.total
        self.tries: Iterator[int] = iter(range(TRIES))

    def sets(self, among: Bools, only_least: bool) -> list[CheapSet]:
        """The cheapest set of each group of nodes, of these jobs."""
        node_arrays = self.free.node_arrays
        request = node_arrays.normalized(self.need.request)
        suitable = node_arrays.suitable(request)
        eligible = self.costs.is_eligible & self.candidates.alive & among & self.candidates.on_suitable(suitable)
        if self.need.request.cpus > self.free.total + int(self.candidates.cpus[eligible].sum()):
            return []
        found: list[CheapSet] = []
        for one in suitable:
            self._add_sets_on(request, one.mask, eligible, only_least, found)
        anywhere = self._cheapest_on(eligible, None, inf) if not found else None
        return found if anywhere is None else [anywhere]

    def _add_sets_on(
        self, request: JobRequest, mask: Bools, eligible: Bools, only_least: bool, found: list[CheapSet]
    ) -> None:
        """Look at groups of these nodes, those on which enough seems cheapest first."""
        if len(request.required_nodes) == request.nodes:
            mask = mask & self.free.node_arrays.mask_of(request.required_nodes)
        nodes = CheapestNodes(request, mask, eligible, self.costs, self.candidates, self.free)
        # CPUs that are not spread evenly may cost less than the sum says.
        is_even = request.nodes in (1, request.max_nodes)
        for group in islice(groups_of(iter(nodes), request.nodes), GROUPS):
            most = min((one.cost for one in found), default=inf) if only_least else inf
            if is_even and sum(one.cost for one in group) >= most:
                break
            only = np.array(sorted(one.node for one in group), dtype=np.int64)
            cheap = (self._together(group, only) if is_even else None) or self._cheapest_on(eligible, only, most)
            if cheap is not None and all(cheap.choice.victims != known.choice.victims for known in found):
                found.append(cheap)
            if next(self.tries, None) is None:
                break

    def _together(self, group: Sequence[NodeVictims], only: Ints) -> CheapSet | None:
        """What these nodes give, if nothing cheaper can free enough on all of them: no job is paid for in part."""
        chosen = sorted({at for one in group for at in one.jobs}, key=lambda at: (-self.cost[at], -at))
        cost = float(self.cost[chosen].sum())
        if cost > sum(one.cost for one in group) * (1 + ROUNDING) or not self.is_fair(chosen):
            return None
        trial = self.free.copy()
        for at in chosen:
            trial.give(self.candidates.freed_by(at, self.pick(at)))
        allocations = self.need.place(trial, self.free, only)
        if allocations is None or not self.candidates.have_room(chosen, self.pick):
            return None
        return CheapSet(cost, VictimChoice(tuple((at, self.pick(at)) for at in chosen), allocations))

    def _cheapest_on(self, eligible: Bools, only: Ints | None, below: float) -> CheapSet | None:
        """One that costs less than ``below``. By branch and bound: the dearest jobs are spared first."""
        here = eligible
        if only is not None:
            mask: Bools = np.zeros(len(self.free.node_arrays.names), dtype=bool)
            mask[only] = True
            here = eligible & self.candidates.on(mask)
        jobs = np.flatnonzero(here)
        order: list[int] = jobs[np.argsort(self.cost[jobs], kind="stable")][:MOST_JOBS].tolist()
        trial = self.free.copy()
        for at in order:
            trial.give(self.candidates.freed_by(at, self.pick(at)))
        if self.need.place(trial, only=only) is None:
            return None
        best = _Best(islice(self.tries, TRIES // 4), below)
        self._spare(trial, order, (), 0.0, only, best)
        if best.chosen is None:
            return None
        for at in order:
            if at not in best.chosen:
                trial.take(self.candidates.freed_by(at, self.pick(at)))
        allocations = self.need.place(trial, self.free, only)
        if allocations is None:
            return None
        return CheapSet(best.cost, VictimChoice(tuple((at, self.pick(at)) for at in best.chosen), allocations))

    def _spare(
        self,
        trial: FreeResources,
        left: Sequence[int],
        keep: tuple[int, ...],
        cost: float,
        only: Ints | None,
        best: _Best,
    ) -> None:
        """Put the cheapest fair set of ``keep`` and some of those ``left`` into ``best``; ``trial``: with what all of
        these free."""
        if cost >= best.cost or next(best.tries, None) is None:
            return
        if not left:
            if self.is_fair(keep) and self.candidates.have_room(keep, self.pick):
                best.cost, best.chosen = cost, keep
            return
        last, given = left[-1], self.candidates.freed_by(left[-1], self.pick(left[-1]))
        trial.take(given)
        if self.need.place(trial, only=only) is not None:
            self._spare(trial, left[:-1], keep, cost, only, best)
        trial.give(given)
        self._spare(trial, left[:-1], (*keep, last), cost + float(self.cost[last]), only, best)


def _costs_of_candidates(
    need: RealtimeNeed, candidates: Candidates, rules: Rules, pick: Callable[[int], str]
) -> VictimCosts:
    """As ``cost_of_victim``, of all candidates at once."""
    jobs, since = candidates.jobs, need.waits_since
    total, is_eligible = costs_of_victims(
        need,
        rules,
        candidates.cpus,
        np.array([since.get(job.ref, job.submit) for job in jobs]) if since else candidates.submitted,
        np.array([job.time_limit for job in jobs], dtype=np.float64),
        np.array([need.remaining.whole_run(job) for job in jobs], dtype=np.float64),
        np.array([job.run_time for job in jobs], dtype=np.float64),
        candidates.outlays(pick),
    )
    on = candidates.allocations
    per_cpu = (total / np.maximum(1, candidates.cpus))[on.owners]
    order = np.lexsort((per_cpu, on.nodes))
    on_nodes = RunningAllocations(*(column[order] for column in on))
    return VictimCosts(pick, total, is_eligible, on_nodes, per_cpu[order] * on_nodes.cpus)


class _Best:
    """The cheapest set so far."""

    def __init__(self, tries: Iterator[int], below: float) -> None:
        self.tries = tries
        self.cost = below
        self.chosen: tuple[int, ...] | None = None
