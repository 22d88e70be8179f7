"""The policies that can be compared, by the names that users type."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.engine.conventions import Conventions
from omfs_daemon.simulate.engine.model_round import BY_MODEL
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.simulate.policies.model_rounds import in_rounds


class Policy(NamedTuple):
    """``where``: ``module:function`` in this package, imported at first use, because compiled code loads slowly.

    preempts   whether it preempts running jobs
    on_places  whether it knows places, checkpoint schemes, and real-time jobs
    learns     whether it can be simulated with predictions that are learned from the jobs that end
    trains     whether it trains models itself while it runs; else it is simulated in rounds for them
    """

    name: str
    title: str
    where: str
    preempts: bool = False
    on_places: bool = False
    learns: bool = False
    trains: bool = False

    @property
    def has_quantum(self) -> bool:
        """Whether quantum, latency, and how each job can be preempted count."""
        return self.preempts and not self.on_places

    def require_learning(self, conventions: Conventions) -> None:
        """ConfigError if run times are to be learned and it cannot, or for victims and it has none."""
        if conventions.learning is not None and not self.learns:
            able = ", ".join(policy.name for policy in POLICIES.values() if policy.learns)
            raise ConfigError(f"--estimates {conventions.learning}: not under {self.name}, only under {able}")
        if conventions.for_victims_only and not self.preempts:
            raise ConfigError(f"--estimates-for victims: {self.name} preempts nobody")

    def simulate(self, scenario: Scenario) -> Outcome:
        """Run the whole workload under it; ConfigError if it cannot learn, but is to."""
        self.require_learning(scenario.conventions)
        module, _, function = self.where.partition(":")
        run: Callable[[Scenario], Outcome] = getattr(import_module(f"omfs_daemon.simulate.policies.{module}"), function)
        if scenario.conventions.learning == BY_MODEL and not self.trains:
            return in_rounds(run, scenario)
        return run(scenario)


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("fcfs", "first come, first served", "fcfs:fcfs", learns=True),
        Policy("ujf", "urgent jobs first, then first come, first served; nobody is preempted", "fcfs:ujf", learns=True),
        Policy("easy", "EASY backfilling: only the first waiting job has a reservation", "easy:easy", learns=True),
        Policy("easy-sjbf", "the same, the shortest job considered first", "easy:shortest_first", learns=True),
        Policy(
            "conservative",
            "conservative backfilling, compressed when a job ends early",
            "conservative:conservative",
            learns=True,
        ),
        Policy(
            "conservative-fixed",
            "conservative backfilling without compression",
            "conservative:uncompressed",
            learns=True,
        ),
        Policy(
            "ujfb",
            "urgent jobs first, by preempting regular ones; conservative backfilling",
            "ujfb:ujfb",
            preempts=True,
            learns=True,
        ),
        Policy("ujfb-easy", "the same with EASY backfilling of regular jobs", "ujfb:with_easy", True, learns=True),
        Policy(
            "ujfb-slowdown", "ujfb, and the urgent job that is worst off first", "ujfb:by_slowdown", True, learns=True
        ),
        Policy("wfp", "Mira's own: by wait, limit and size; EASY backfilling", "wcjs:wfp", on_places=True, learns=True),
        Policy(
            "wfp-first",
            "wfp, but real-time jobs come first; nobody is preempted",
            "wcjs:wfp_first",
            on_places=True,
            learns=True,
        ),
        Policy("wcjs", "wfp, but real-time jobs that are due preempt the cheapest jobs", "wcjs:wcjs", True, True, True),
        Policy("wcjs-text", "wcjs, and nobody else starts while one is due", "wcjs:wcjs_text", True, True, True),
        Policy(
            "realtime-replan",
            "a plan at each event, which preempts where slowdowns pay for it",
            "realtime_replan:realtime_replan",
            True,
            True,
            True,
            True,
        ),
        Policy(
            "realtime-replan-only",
            "realtime-replan, but jobs are preempted for real-time jobs only",
            "realtime_replan:realtime_replan_only",
            True,
            True,
            True,
            True,
        ),
        Policy(
            "omfs", "memoryless fair share: lend what is idle, take back by preempting", "omfs:omfs", True, learns=True
        ),
        Policy("partition", "hard partition: each account keeps to its own CPUs", "partitioned:hard_partition"),
        Policy("capping", "one machine, no account above its entitlement at any time", "partitioned:capping"),
    )
}


def policy_named(name: str) -> Policy:
    """The policy; ConfigError with all names for one that is not known."""
    if name not in POLICIES:
        raise ConfigError(f"policy {name!r} is not known: one of {', '.join(POLICIES)}")
    return POLICIES[name]
