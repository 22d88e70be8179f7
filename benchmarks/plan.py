"""How long it takes to understand what Slurm prints of a full cluster, and to plan.

Each case goes the way of the daemon: text as squeue and scontrol print it, the command gateway, a snapshot, its arrays,
a plan. Prints a table and writes ``build/bench/plan.json``: a list with, for each case, its ``name``, ``jobs`` (that
wait) and ``nodes``, and medians of processor seconds: ``parse_cold_s`` and ``cold_s`` (parse and plan with nothing
known), and ``parse_delta_s`` and ``delta_s`` (the same ten seconds later, with a hundred jobs changed; Slurm then shows
another TimeUsed for every running job); ``validate_s``; ``starts_s``, for estimates of all starts (docs/predictions.md;
of 20,000 jobs at most), and ``predict_s``, for the run times alone that they need, with nothing worked out yet; and
``peak_rss_mb``, without these. Each case runs in its own process, so
that it has its own peak memory. Since machines differ, ratios to simpler work in the same process are given:
``parse_ratio`` to splitting the same text into fields, ``plan_ratio`` to sorting the same waiting jobs by priority,
``starts_ratio`` to one future of the same queue by time limits, placed in order with a heap: a hundred are drawn.
"""

from __future__ import annotations

import gc
import heapq
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar
from unittest import mock

import numpy as np

from benchmarks.printed_site import NOW, SECRET, Answers, PrintedSite
from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.snapshot import PreemptionHistory, Snapshot
from omfs_daemon.config.predict_section import PredictSection
from omfs_daemon.daemon.garbage import collect_garbage_seldom
from omfs_daemon.daemon.learning.run_predictions import RunPredictions
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.rules.classes import REGULAR, JobClassRule, Rules
from omfs_daemon.policy.validator import Conditions, validate
from omfs_daemon.predict.job_ends import JobEnd, features_of
from omfs_daemon.predict.ladder import RUNGS
from omfs_daemon.predict.prediction import HowEnded
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.starts.start_estimates import MOST_QUEUED, Predict, start_estimates

ROUNDS = 5
CHANGED = 100
OUTPUT = Path("build/bench/plan.json")
Result = TypeVar("Result")


class Case(NamedTuple):
    """What is measured.

    ``owners``: accounts whose jobs wait; ``borrowers``: accounts whose jobs run; ``most``: preemptions in one plan.
    """

    name: str
    jobs: int
    nodes: int
    owners: int = 25
    borrowers: int = 20
    most: int = 64
    exclude_lists: int = 0
    arrays: int = 0


CASES = (
    Case("small", 1_000, 100),
    Case("medium", 10_000, 1_000),
    Case("large", 100_000, 10_000),
    Case("exclude", 100_000, 10_000, exclude_lists=200),
    Case("arrays", 100_000, 10_000, arrays=50),
    Case("preempt", 100_000, 10_000, borrowers=2, most=1_000),
)
TASKS = 20_000


def rules_of(case: Case) -> Rules:
    return Rules(
        tree=AccountTree([Entitlement(f"a{i}", Fraction(4)) for i in range(22)]),
        classes=(
            JobClassRule("urgent", partitions=frozenset({"urgent"}), urgent=True),
            JobClassRule("regular", methods=("requeue", "suspend")),
        ),
        quantum=600,
        max_preemptions_per_cycle=case.most,
        methods=BUILT_IN_TRAITS,
        unmatched=REGULAR,
    )


def site_of(case: Case) -> PrintedSite:
    site = PrintedSite(case.nodes, case.owners, case.borrowers)
    site.fill()
    site.queue(case.jobs)
    site.queue_arrays(case.arrays, TASKS)
    if case.exclude_lists:
        site.exclude(case.exclude_lists)
    return site


_SAME_SECRET = mock.patch("secrets.token_hex", lambda _: SECRET)  # so that texts can be made beforehand


class Daemon:
    """The part of the daemon's cycle that is measured; ``now`` in seconds."""

    def __init__(self, answers: Answers, rules: Rules) -> None:
        with _SAME_SECRET:
            self._gateway, self._rules = CommandGateway(runner=answers), rules
        self._gateway.settings()
        self._known: Snapshot | None = None
        self._arrays: SnapshotArrays | None = None
        self.now = float(NOW)

    def parse(self) -> Snapshot:
        """All jobs; nodes and partitions only once, since they are seldom polled."""
        with _SAME_SECRET:
            jobs = {job.id: job for job in self._gateway.jobs()}
        if self._known is None:
            nodes = {node.name: node for node in self._gateway.nodes()}
            partitions = {partition.name: partition for partition in self._gateway.partitions()}
            self._known = Snapshot(self.now, jobs, nodes, partitions)
        self._known = replace(self._known, taken=self.now, jobs=jobs)
        return self._known

    def plan(self, snapshot: Snapshot) -> Plan:
        self._arrays = SnapshotArrays(snapshot, self._arrays)
        return make_plan(snapshot, PreemptionHistory(), self._rules, self.now, self._arrays)

    def refused(self, snapshot: Snapshot, plan: Plan) -> int:
        conditions = Conditions(max_age=60)
        verdict = validate(plan, snapshot, PreemptionHistory(), self._rules, self.now, conditions, self._arrays)
        return len(verdict.refused)


def timed(call: Callable[[], Result]) -> tuple[float, Result]:
    """The processor seconds that a call takes, and its result; garbage is collected before."""
    gc.collect()
    begin = time.process_time()
    result = call()
    return time.process_time() - begin, result


def measure(case: Case) -> dict[str, Any]:
    """All figures of one case; to be called in its own process."""
    collect_garbage_seldom()
    site, times, refused = site_of(case), dict[str, list[float]](), 0
    answers, rules = Answers(site), rules_of(case)

    def note(name: str, call: Callable[[], Result]) -> Result:
        seconds, result = timed(call)
        times.setdefault(name, []).append(seconds)
        return result

    daemon = Daemon(answers, rules)
    for _ in range(ROUNDS):
        daemon = Daemon(answers, rules)
        snapshot = note("parse_cold_s", daemon.parse)
        plan = note("cold_s", lambda: daemon.plan(snapshot))  # noqa: B023 - called at once
    for _ in range(ROUNDS):
        site.change(CHANGED)
        answers.update()
        daemon.now += 10
        snapshot = note("parse_delta_s", daemon.parse)
        plan = note("delta_s", lambda: daemon.plan(snapshot))  # noqa: B023
        refused += note("validate_s", lambda: daemon.refused(snapshot, plan))  # noqa: B023
        note("split_s", lambda: [line.split(f"<{SECRET}>") for line in answers.rows.split("\n")])
        waiting = [job for job in snapshot.jobs.values() if job.state is JobState.PENDING]
        note("sort_s", lambda: sorted(waiting, key=lambda job: (-job.priority, job.submit, job.id)))  # noqa: B023
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    queue = [job for job in snapshot.jobs.values() if job.state is JobState.PENDING][:MOST_QUEUED]
    for seed in range(ROUNDS):
        predict = predictions(snapshot)
        note("predict_s", lambda: predict(queue))  # noqa: B023
        note("starts_s", lambda: start_estimates(snapshot, plan, PreemptionHistory(), rules, predict, seed))  # noqa: B023
        note("one_future_s", lambda: by_limits(snapshot, queue))
    medians = {name: round(median(each), 4) for name, each in times.items()}
    return {
        "name": case.name,
        "jobs": case.jobs,
        "nodes": case.nodes,
        **medians,
        "parse_ratio": round(medians["parse_cold_s"] / max(medians.pop("split_s"), 1e-6), 1),
        "plan_ratio": round(medians["cold_s"] / max(medians.pop("sort_s"), 1e-6), 1),
        "starts_ratio": round(medians["starts_s"] / max(medians.pop("one_future_s"), 1e-6), 1),
        "peak_rss_mb": round(peak / 1024, 1),
        "preempted": sum(len(planned.victims) for planned in plan.preemptions),
        "refused": refused,
    }


def predictions(snapshot: Snapshot) -> Predict:
    """Of the default predictor, which has learned from jobs like those of the snapshot."""
    draw = np.random.default_rng(1)
    found = RunPredictions(PredictSection().predictor, RUNGS, False)
    jobs = list(snapshot.jobs.values())[:100_000]
    lengths = draw.lognormal(8, 1.5, len(jobs)).tolist()
    ends = zip(jobs, lengths, strict=True)
    found.learn(JobEnd(job.id, 0.0, run, features_of(job), run, HowEnded.BY_ITSELF) for job, run in ends)
    return found.of


def by_limits(snapshot: Snapshot, queue: Sequence[Job]) -> list[float]:
    """When each of these jobs would start if all ran to their limits: seconds from now, one after the other."""
    free = sum(node.cpus for node in snapshot.nodes.values())
    ends = [(job.remaining(), job.request.cpus) for job in snapshot.jobs.values() if job.runs]
    free -= sum(cpus for _, cpus in ends)
    heapq.heapify(ends)
    now, starts = 0.0, []
    for job in sorted(queue, key=lambda job: (-job.priority, job.submit, job.id)):
        while free < job.request.cpus and ends:
            now, cpus = heapq.heappop(ends)
            free += cpus
        starts.append(now)
        free -= job.request.cpus
        heapq.heappush(ends, (now + job.time_limit, job.request.cpus))
    return starts


def table(rows: list[Mapping[str, Any]]) -> str:
    heads = ("parse", "after", "plan", "after", "validate", "predict", "starts", "p/split", "p/sort", "s/one", "memory")
    lines = [f"{'case':8} {'waiting':>8} {'nodes':>7} " + " ".join(f"{head:>8}" for head in heads)]
    for row in rows:
        names = ("parse_cold_s", "parse_delta_s", "cold_s", "delta_s", "validate_s", "predict_s", "starts_s")
        values = " ".join(f"{row[name] * 1000:5.0f} ms" for name in names)
        ratios = " ".join(f"{row[name]:>7.1f}x" for name in ("parse_ratio", "plan_ratio", "starts_ratio"))
        start = f"{row['name']:8} {row['jobs']:>8,} {row['nodes']:>7,}"
        lines.append(f"{start} {values} {ratios} {row['peak_rss_mb']:>5.0f} MB")
    return "\n".join(lines)


def main() -> int:
    rows = []
    for case in CASES:
        command = [sys.executable, "-m", "benchmarks.plan", case.name]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(f"measured {case.name}", file=sys.stderr, flush=True)
    print(table(rows))
    print(
        "after: with a hundred jobs changed; p/split: parse to splitting the text; p/sort: plan to sorting the jobs; "
        "s/one: starts in a hundred futures to one by limits"
    )
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written to {OUTPUT}")
    return 0 if not any(row["refused"] for row in rows) else 1


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(json.dumps(measure(next(case for case in CASES if case.name == sys.argv[1]))))
        sys.exit(0)
    sys.exit(main())
