"""The policies that can be compared, by the names that users type."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.scenario import Scenario


class Policy(NamedTuple):
    """``where``: ``module:function`` in this package, imported at first use, because compiled code loads slowly.

    preempts  whether it preempts running jobs
    """

    name: str
    title: str
    where: str
    preempts: bool = False

    def simulate(self, scenario: Scenario) -> Outcome:
        """Run the whole workload under it."""
        module, _, function = self.where.partition(":")
        run: Callable[[Scenario], Outcome] = getattr(import_module(f"omfs_daemon.simulate.policies.{module}"), function)
        return run(scenario)


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("fcfs", "first come, first served", "fcfs:fcfs"),
        Policy("ujf", "urgent jobs first, then first come, first served; nobody is preempted", "fcfs:ujf"),
        Policy("easy", "EASY backfilling: only the first waiting job has a reservation", "easy:easy"),
        Policy(
            "conservative", "conservative backfilling, compressed when a job ends early", "conservative:conservative"
        ),
        Policy("conservative-fixed", "conservative backfilling without compression", "conservative:uncompressed"),
        Policy(
            "ujfb",
            "urgent jobs first, by preempting regular ones; conservative backfilling",
            "ujfb:ujfb",
            preempts=True,
        ),
        Policy("ujfb-easy", "the same with EASY backfilling of regular jobs", "ujfb:with_easy", preempts=True),
        Policy("ujfb-slowdown", "ujfb, and the urgent job that is worst off first", "ujfb:by_slowdown", preempts=True),
        Policy("omfs", "memoryless fair share: lend what is idle, take back by preempting", "omfs:omfs", preempts=True),
        Policy("partition", "hard partition: each account keeps to its own CPUs", "partitioned:hard_partition"),
        Policy("capping", "one machine, no account above its entitlement at any time", "partitioned:capping"),
    )
}


def policy_named(name: str) -> Policy:
    """The policy; ConfigError with all names for one that is not known."""
    if name not in POLICIES:
        raise ConfigError(f"policy {name!r} is not known: one of {', '.join(POLICIES)}")
    return POLICIES[name]
