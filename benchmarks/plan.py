"""How long a plan takes: 1,000, 10,000, and 100,000 waiting jobs on 100, 1,000, and 10,000 full nodes.

Prints a table and writes ``build/bench/plan.json``: a list with, for each size, ``jobs``, ``nodes``, ``cold_s`` (a plan
from a fresh snapshot), ``delta_s`` (the snapshot with about a hundred jobs changed, and its plan), and ``peak_rss_mb``.
Each size runs in its own process, so that it has its own peak memory. For comparison on noisy machines, the table also
gives how often the same waiting jobs could be sorted by priority in that time.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import median

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.cluster.jobs import Allocation, Hold, Job, JobRequest, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.cluster.snapshot import PreemptionHistory, Snapshot
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.rules.classes import REGULAR, JobClassRule, Rules
from omfs_daemon.policy.validator import Conditions, validate
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS

SIZES = ((1_000, 100), (10_000, 1_000), (100_000, 10_000))
ROUNDS = 5
CHANGED = 100
NOW = 10_000.0
GB = 1 << 30
OUTPUT = Path("build/bench/plan.json")

RULES = Rules(
    tree=AccountTree([Entitlement(f"a{i}", Fraction(4)) for i in range(22)]),
    classes=(
        JobClassRule("urgent", partitions=frozenset({"urgent"}), urgent=True),
        JobClassRule("regular", methods=("requeue", "suspend")),
    ),
    quantum=600,
    methods=BUILT_IN_TRAITS,
    unmatched=REGULAR,
)
QUIET = replace(RULES, quantum=float("inf"), classes=RULES.classes[1:])
"""The steady state: no job may be preempted now."""


class Site:
    """A made-up cluster that is full, and its waiting jobs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a benchmark, not a secret
        self.requests: dict[JobRequest, JobRequest] = {}
        self.jobs: dict[int, Job] = {}

    def request(self, wanted: JobRequest) -> JobRequest:
        """Equal requests are one object, as from the parser."""
        return self.requests.setdefault(wanted, wanted)

    def fill(self, node: str, cpus: int) -> None:
        draw = self.random
        while cpus > 0:
            part = min(cpus, draw.choice([1, 4, 8, 16, 32, 64]))
            cpus -= part
            self._add(
                account=f"a{draw.randrange(20)}",
                state=JobState.RUNNING,
                request=self.request(JobRequest(part, partitions=("main",), memory_per_cpu=2 * GB)),
                submit=0.0,
                partition="main",
                start=float(draw.randrange(9000)),
                run_time=100.0,
                time_limit=86_400.0,
                allocations=(Allocation(node, part, part * 2 * GB),),
                comment="omfs:method=requeue" if draw.random() < 0.7 else "",
                priority=draw.randrange(10_000),
            )

    def queue(self) -> None:
        draw = self.random
        nodes = draw.choice([1, 1, 1, 2, 4, 8])
        held = draw.random() < 0.1
        self._add(
            account=f"a{draw.randrange(25)}",
            state=JobState.PENDING,
            request=self.request(
                JobRequest(
                    draw.choice([1, 2, 4, 8, 16, 32, 64]) * nodes,
                    nodes=nodes,
                    max_nodes=nodes,
                    partitions=("urgent",) if draw.random() < 0.002 else ("main",),
                    memory_per_cpu=draw.choice([1, 2, 4]) * GB,
                    gres=(("gpu", draw.choice([1, 2, 4])),) if draw.random() < 0.1 else (),
                )
            ),
            submit=float(draw.randrange(10_000)),
            time_limit=draw.choice([600.0, 3600.0, 86_400.0]),
            comment="" if held else "omfs:method=requeue",
            priority=0 if held else draw.randrange(10_000),
            hold=Hold.ADMIN if held else Hold.NONE,
            reason="JobHeldAdmin" if held else "Priority",
            admin_comment=SUBMIT_MARK if held else "",
        )

    def _add(self, **fields: object) -> None:
        number = len(self.jobs) + 1
        self.jobs[number] = Job(id=number, ref=str(number), user="u", uid=1, **fields)  # type: ignore[arg-type]


def full_cluster(jobs: int, nodes: int) -> Snapshot:
    """Nodes of 64 CPUs and 256 GB, a quarter of them with GPUs, all of them full."""
    site = Site(seed=1)
    cluster_nodes = {
        f"n{i}": Node(f"n{i}", 64, 256 * GB, partitions=("main", "urgent"), gres=(("gpu", 4),) if i % 4 == 0 else ())
        for i in range(nodes)
    }
    for name in cluster_nodes:
        site.fill(name, 64)
    for _ in range(jobs):
        site.queue()
    every = frozenset(cluster_nodes)
    return Snapshot(NOW, site.jobs, cluster_nodes, {name: Partition(name, every) for name in ("main", "urgent")})


def unseen(snapshot: Snapshot) -> Snapshot:
    """An equal snapshot of new job and node objects, so that nothing about them is cached."""
    jobs = {job.id: copy(job) for job in snapshot.jobs.values()}
    return Snapshot(NOW, jobs, dict(snapshot.nodes), dict(snapshot.partitions))


def seconds(call: Callable[[], object], prepare: Callable[[], object] | None = None) -> float:
    """The median over some rounds; garbage is collected between rounds."""
    times = []
    for _ in range(ROUNDS):
        if prepare is not None:
            prepare()
        gc.collect()
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return median(times)


def measure(jobs: int, nodes: int) -> dict[str, float]:
    """All figures of one size; to be called in its own process."""
    snapshot = full_cluster(jobs, nodes)
    fresh = [snapshot]

    def renew() -> None:
        fresh[0] = unseen(snapshot)

    cold = seconds(lambda: make_plan(fresh[0], PreemptionHistory(), RULES, NOW), renew)
    quiet = seconds(lambda: make_plan(fresh[0], PreemptionHistory(), QUIET, NOW), renew)
    draw = random.Random(2)  # noqa: S311
    waiting = [job for job in snapshot.jobs.values() if job.state is JobState.PENDING]
    changed = [replace(job, priority=job.priority + 1) for job in draw.sample(waiting, min(CHANGED, len(waiting)))]
    arrays = SnapshotArrays(snapshot)

    def update() -> None:
        later = snapshot.with_jobs(NOW, changed)
        make_plan(later, PreemptionHistory(), RULES, NOW, SnapshotArrays(later, arrays))

    delta = seconds(update)
    suggested = make_plan(snapshot, PreemptionHistory(), RULES, NOW, arrays)
    validation = seconds(lambda: validate(suggested, snapshot, PreemptionHistory(), RULES, NOW, Conditions(60), arrays))
    refused = len(validate(suggested, snapshot, PreemptionHistory(), RULES, NOW, Conditions(60)).refused)
    sort = seconds(lambda: sorted(waiting, key=lambda job: (-job.priority, job.submit, job.id)))
    return {
        "jobs": jobs,
        "nodes": nodes,
        "cold_s": round(cold, 4),
        "delta_s": round(delta, 4),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "quiet_s": round(quiet, 4),
        "validate_s": round(validation, 4),
        "sort_s": round(sort, 4),
        "refused": refused,
    }


def table(rows: list[dict[str, float]]) -> str:
    heads = ("cold", "delta", "quiet", "validate", "cold/sort", "memory")
    lines = [f"{'waiting jobs':>12} {'nodes':>7} " + " ".join(f"{head:>9}" for head in heads)]
    for row in rows:
        times = " ".join(f"{row[name] * 1000:6.0f} ms" for name in ("cold_s", "delta_s", "quiet_s", "validate_s"))
        ratio = row["cold_s"] / max(row["sort_s"], 1e-6)
        lines.append(f"{row['jobs']:>12,} {row['nodes']:>7,} {times} {ratio:>8.1f}x {row['peak_rss_mb']:>6.0f} MB")
    return "\n".join(lines)


def main() -> int:
    rows = []
    for jobs, nodes in SIZES:
        command = [sys.executable, "-m", "benchmarks.plan", str(jobs), str(nodes)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(f"measured {jobs:,} jobs on {nodes:,} nodes", file=sys.stderr, flush=True)
    print(table(rows))
    print("quiet: no job may be preempted; cold/sort: how often the same jobs could be sorted in that time")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    kept = ("jobs", "nodes", "cold_s", "delta_s", "peak_rss_mb")
    OUTPUT.write_text(json.dumps([{name: row[name] for name in kept} for row in rows], indent=1) + "\n")
    print(f"written to {OUTPUT}")
    return 0 if not any(row["refused"] for row in rows) else 1


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
        sys.exit(0)
    sys.exit(main())
