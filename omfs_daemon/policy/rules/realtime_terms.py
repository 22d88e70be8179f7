"""What a real-time class promises, and whom it may preempt (docs/real-time.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from omfs_daemon.policy.rules.slowdown_laws import (
    CATEGORIES,
    NARROW_PERCENT,
    SHORT_SECONDS,
    VICTIM_MAX_SLOWDOWN,
    category_of,
    outlay_factor,
    remaining_factor,
    running_slowdown,
    slowdown_factor,
)


@dataclass(frozen=True, slots=True)
class CostWeights:
    """Exponents of the factors of a victim's cost; 0 switches a factor off."""

    slowdown: float = 1.0
    checkpoint: float = 1.0
    remaining: float = 1.0


@dataclass(frozen=True, slots=True)
class RealtimeTerms:
    """Of a class of real-time jobs.

    bound       the slowdown that its users are promised
    act_at      by category: the slowdown from which jobs are preempted for a job of the class
    victim_max  by category: regular jobs whose slowdown is greater are not preempted
    """

    bound: float = 1.2
    act_at: tuple[float, ...] = (1.1,) * len(CATEGORIES)
    victim_max: tuple[float, ...] = VICTIM_MAX_SLOWDOWN
    weights: CostWeights = CostWeights()

    def loosened(self, bound: float | None) -> RealtimeTerms:
        """With the looser bound that a user asks for; what lies between threshold and bound stays. A tighter one has no
        effect."""
        if bound is None or bound <= self.bound:
            return self
        return replace(self, bound=bound, act_at=tuple(at + bound - self.bound for at in self.act_at))


@dataclass(frozen=True, slots=True)
class JobSize:
    """What is narrow (CPUs in percent of the machine) and what is short (time limit in seconds)."""

    narrow_percent: float
    short_seconds: float

    def category(self, cpus: int, limit: float, machine_cpus: int) -> int:
        return category_of(cpus, limit, machine_cpus, self.narrow_percent, self.short_seconds)


MIRA_SIZES = JobSize(NARROW_PERCENT, SHORT_SECONDS)


@dataclass(frozen=True, slots=True)
class VictimCost:
    """What preempting a job costs: CPUs times three factors (Algorithm 2), each with its exponent.

    slowdown    its estimated slowdown now, by its time limit; ``most``: it is not preempted if that is greater
    outlay      seconds to preempt and restart it, and of work lost
    """

    cpus: int
    slowdown: float
    most: float
    outlay: float
    slowdown_term: float
    checkpoint_term: float
    remaining_term: float

    @property
    def total(self) -> float:
        return self.cpus * self.slowdown_term * self.checkpoint_term * self.remaining_term

    @property
    def is_eligible(self) -> bool:
        return self.slowdown <= self.most


def cost_on_terms(
    terms: RealtimeTerms,
    category: int,
    *,
    cpus: int,
    submit: float,
    limit: float,
    expected: float,
    run_seconds: float,
    outlay: float,
    now: float,
) -> VictimCost:
    """The cost of a running job; ``outlay`` and ``category`` as above. ``expected``: seconds that it will run in all,
    its limit or what is predicted. The factors count with that; whether it may be preempted, its limit alone says."""
    slowdown = max(1.0, running_slowdown(submit, limit, now, run_seconds))
    likely = max(1.0, running_slowdown(submit, expected, now, run_seconds))
    weights = terms.weights
    return VictimCost(
        cpus,
        slowdown,
        terms.victim_max[category],
        outlay,
        slowdown_factor(likely) ** weights.slowdown,
        outlay_factor(outlay) ** weights.checkpoint,
        remaining_factor(max(0.0, expected - run_seconds), expected) ** weights.remaining,
    )
