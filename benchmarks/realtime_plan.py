"""What real-time jobs add to a plan: 10,000 jobs wait for 1,000 full nodes, 50 of them real-time, due or not.

Prints a table and writes ``build/bench/realtime_plan.json``: a list with, for each case (``none``, ``not_due``,
``due``), ``name``, ``plan_s`` (median processor seconds of a plan), ``ratio`` (to the plan without, the median of
rounds that take turns), ``realtime`` (such jobs), and ``preemptions`` in the plan.

    python -m benchmarks.realtime_plan
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.plan import Case, Daemon, rules_of, site_of, timed
from benchmarks.printed_site import Answers
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.snapshot import PreemptionHistory, Snapshot
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.rules.classes import JobClassRule, Rules
from omfs_daemon.policy.rules.realtime_terms import RealtimeTerms

ROUNDS = 9
REALTIME = 50
CASE = Case("realtime", 10_000, 1_000)
OUTPUT = Path("build/bench/realtime_plan.json")
WAITED = {"none": 0.0, "not_due": 0.0, "due": 0.2}
"""Of its time limit, by each real-time job."""


def with_realtime(seen: Snapshot, now: float, waited: float) -> Snapshot:
    """Every so many of the waiting jobs is of QOS rt, and has waited for this part of its time limit of an hour."""
    waiting = [job for job in seen.jobs.values() if job.state is JobState.PENDING]
    chosen = waiting[:: len(waiting) // REALTIME][:REALTIME]
    return seen.with_jobs(seen.taken, [_realtime(job, now - waited * 3600) for job in chosen])


def _realtime(job: Job, submit: float) -> Job:
    return replace(job, qos="rt", time_limit=3600.0, submit=submit, eligible=None)


def measure() -> list[dict[str, Any]]:
    base = rules_of(CASE)
    beamline = JobClassRule("beamline", qos=frozenset({"rt"}), realtime=RealtimeTerms())
    rules = replace(base, classes=(beamline, *base.classes))
    daemon = Daemon(Answers(site_of(CASE)), base)
    seen = daemon.parse()
    worlds = {name: with_realtime(seen, daemon.now, waited) for name, waited in WAITED.items()}
    worlds["none"] = seen
    times: dict[str, list[float]] = {name: [] for name in worlds}
    plans: dict[str, Plan] = {}
    for _ in range(ROUNDS):
        for name, world in worlds.items():
            seconds, plans[name] = timed(lambda: _plan(world, rules, daemon.now))  # noqa: B023 - called at once
            times[name].append(seconds)
    return [row(name, times, plans[name]) for name in worlds]


def _plan(world: Snapshot, rules: Rules, now: float) -> Plan:
    return make_plan(world, PreemptionHistory(), rules, now, SnapshotArrays(world))


def row(name: str, times: dict[str, list[float]], plan: Plan) -> dict[str, Any]:
    ratios = [one / other for one, other in zip(times[name], times["none"], strict=True)]
    return {
        "name": name,
        "plan_s": round(median(times[name]), 4),
        "ratio": round(median(ratios), 3),
        "realtime": len(plan.realtime),
        "preemptions": len(plan.preemptions),
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"{'case':8} {'plan':>8} {'ratio':>6} {'real-time':>10} {'preemptions':>12}"]
    for one in rows:
        start = f"{one['name']:8} {one['plan_s'] * 1000:5.0f} ms {one['ratio']:>5.2f}x"
        lines.append(f"{start} {one['realtime']:>10} {one['preemptions']:>12}")
    return "\n".join(lines)


def main() -> None:
    rows = measure()
    print(table(rows))
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written to {OUTPUT}")


if __name__ == "__main__":
    main()
