"""How many jobs a second the simulator replays, beside plain Python, and what all of Curie takes.

Prints a table and writes ``build/bench/sim.json``: a list of ``name``, ``workload``, ``jobs``, ``jobs_per_second``
(median of the runs; a run is from the workload in memory to its outcome in memory, compiled before), ``ratio_to_plain``
(how many times as fast as ``benchmarks/plain.py`` on the same work in the same process; null where there is none) and
``runs``. WCJS, flat and on the places of Mira, has ``ratio_to_easy``: its speed over that of flat EASY on the same
jobs, in runs that take turns. Curie under the policies with preemption has ``seconds`` and ``peak_rss_mb`` too, and
runs once, in a process of its own. All seconds are processor time, so that other work on the machine counts little.
Traces: in the directory OMFS_TRACES, else in ``../shared/traces``.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import plain
from omfs_daemon.accounting.trace_files import VARIABLE, trace
from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.policy.rules.checkpoint_laws import ACT_AT
from omfs_daemon.policy.rules.classes import REGULAR, Rules
from omfs_daemon.policy.rules.realtime_terms import RealtimeTerms
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS
from omfs_daemon.simulate.engine.conventions import Conventions, Jobs, UserLimits
from omfs_daemon.simulate.engine.machine_units import counted
from omfs_daemon.simulate.engine.places import layout_named
from omfs_daemon.simulate.engine.realtime_setting import RealtimeSetting
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.workload.load_trace import load_trace
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload

RUNS = 5
OUTPUT = Path("build/bench/sim.json")
ESTIMATES = {"user": UserLimits()}
LEARNED = ("last2", "alike2", "similar")
PLAIN: dict[str, Callable[[Jobs, int], list[float]]] = {"fcfs": plain.fcfs, "easy": plain.easy}
QUEUED = (
    *(("fcfs", "exact"), ("easy", "user"), ("easy", "exact"), *(("easy", name) for name in LEARNED)),
    *(("conservative", "user"), ("conservative", "exact")),
)
PREEMPTING = ("ujfb", "omfs")
LAYOUTS = ("flat", "mira")
MIRA_CPUS, REALTIME = 49_152, 0.1
URGENT = 0.01
OWNERS = 10


def recorded(name: str, squeeze: float = 1.0) -> Workload:
    """The trace with all times between submissions multiplied by ``squeeze``."""
    directory = None if os.environ.get(VARIABLE) else Path("../shared/traces")
    workload = load_trace(trace(name, directory, os.environ)).workload
    return replace(workload, submit=workload.submit * squeeze)


def machines() -> dict[str, Scenario]:
    """What the policies without preemption are measured on; the second has queues of thousands."""
    return {
        "hpc2n": Scenario(recorded("hpc2n-excerpt.swf.gz"), Machine(240)),
        "KTH-SP2 x0.7": Scenario(recorded("KTH-SP2-1996-2.1-cln.swf.gz", 0.7), Machine(100)),
    }


def curie() -> Scenario:
    """All of Curie, with one job in a hundred urgent, and ten owners: the groups that used most, with 8 % each."""
    jobs = recorded("CEA-Curie-2011-2.1-cln.swf.gz")
    urgent = np.random.default_rng(1).random(len(jobs)) < URGENT
    used = np.bincount(jobs.account, jobs.cpus * jobs.run, len(jobs.accounts))
    owners = [Entitlement(jobs.accounts[index], Fraction(8)) for index in np.argsort(-used)[:OWNERS]]
    jobs = replace(jobs, urgent=urgent, mode=np.where(urgent, PreemptMode.NEVER, jobs.mode))
    return Scenario(
        jobs,
        Machine(93312),
        Conventions(estimates=UserLimits()),
        rules=Rules(tree=AccountTree(owners), methods=BUILT_IN_TRAITS, unmatched=REGULAR),
    )


def mira(layout: str) -> Scenario:
    """126 days of Mira, with one job in ten real-time."""
    jobs = recorded("mira-2018.csv.gz")
    jobs = replace(jobs, realtime=np.random.default_rng(1).random(len(jobs)) < REALTIME)
    setting = RealtimeSetting(layout=layout_named(layout, MIRA_CPUS), terms=RealtimeTerms(act_at=ACT_AT))
    return Scenario(jobs, Machine(MIRA_CPUS), Conventions(UserLimits(), kill=False), realtime=setting)


def conventions_named(estimates: str) -> Conventions:
    """Those with these estimates."""
    return Conventions(ESTIMATES.get(estimates), learning=estimates if estimates in LEARNED else None)


def seconds(call: Callable[[], object]) -> float:
    """The median of some runs."""
    return median(seconds_of(call) for _ in range(RUNS))


def seconds_of(call: Callable[[], object]) -> float:
    """Of one run; the garbage of the one before is not paid for."""
    gc.collect()
    begin = time.process_time()
    call()
    return time.process_time() - begin


def measured(name: str, estimates: str, place: str, scenario: Scenario) -> dict[str, Any]:
    """One row of a policy without preemption, beside plain Python; AssertionError if they disagree."""
    policy = policy_named(name)
    scenario = replace(scenario, conventions=conventions_named(estimates))
    count, outcome = len(scenario.workload), policy.simulate(scenario)
    taken, ratio = seconds(lambda: policy.simulate(scenario)), None
    if name in PLAIN and estimates not in LEARNED:
        jobs, capacity = counted(scenario)
        if not np.array_equal(outcome.start, PLAIN[name](jobs, capacity)):
            raise AssertionError(f"{name} on {place}: plain Python and the compiled policy disagree")
        ratio = round(seconds(lambda: PLAIN[name](jobs, capacity)) / taken, 1)
    title = name if name == "fcfs" else f"{name} ({estimates})"
    return {
        "name": title,
        "workload": place,
        "jobs": count,
        "jobs_per_second": round(count / taken),
        "ratio_to_plain": ratio,
        "runs": RUNS,
    }


def preempting(name: str) -> dict[str, Any]:
    """Curie's row of a policy with preemption; to be called in a process of its own, so that its memory is its own."""
    policy, scenario = policy_named(name), curie()
    policy.simulate(replace(scenario, workload=scenario.workload.take(np.arange(100))))
    begin = time.process_time()
    policy.simulate(scenario)
    taken = time.process_time() - begin
    return {
        "name": name,
        "workload": "Curie",
        "jobs": len(scenario.workload),
        "jobs_per_second": round(len(scenario.workload) / taken),
        "ratio_to_plain": None,
        "runs": 1,
        "seconds": round(taken, 2),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def realtime(layout: str) -> dict[str, Any]:
    """WCJS on Mira beside EASY on a counter of CPUs."""
    ours, rival = mira(layout), mira("flat")
    both = [lambda: policy_named("wcjs").simulate(ours), lambda: policy_named("easy").simulate(rival)]
    for call in both:
        call()
    pairs = [[seconds_of(call) for call in both] for _ in range(RUNS)]
    taken, count = median(pair[0] for pair in pairs), len(ours.workload)
    return {
        "name": f"wcjs ({layout})",
        "workload": "Mira",
        "jobs": count,
        "jobs_per_second": round(count / taken),
        "ratio_to_plain": None,
        "ratio_to_easy": round(median(easy / wcjs for wcjs, easy in pairs), 3),
        "runs": RUNS,
    }


def table_line(row: dict[str, Any]) -> str:
    """A line of the table."""
    beside = "" if row["ratio_to_plain"] is None else f"{row['ratio_to_plain']:6.1f} x plain Python"
    if "ratio_to_easy" in row:
        beside = f"{row['ratio_to_easy']:6.3f} x flat EASY"
    if "seconds" in row:
        beside = f"{row['seconds']:6.1f} s, {row['peak_rss_mb']:,} MB"
    return (
        f"{row['name']:<22}{row['workload']:<14}{row['jobs']:>8,} jobs {row['jobs_per_second']:>11,} jobs/s  {beside}"
    )


def beside_limits(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """How fast EASY with learned estimates is beside EASY with the users' limits."""
    if not any(row["name"] == f"easy ({name})" for name in LEARNED):
        return ""
    other = next(one for one in rows if one["name"] == "easy (user)" and one["workload"] == row["workload"])
    return f"{row['jobs_per_second'] / other['jobs_per_second']:6.0%} of the speed with limits"


def main() -> int:
    rows = []
    for place, scenario in machines().items():
        for name, estimates in QUEUED:
            rows.append(measured(name, estimates, place, scenario))
            print(table_line(rows[-1]) + beside_limits(rows[-1], rows), flush=True)
    for layout in LAYOUTS:
        rows.append(realtime(layout))
        print(table_line(rows[-1]), flush=True)
    for name in PREEMPTING:
        command = [sys.executable, "-m", "benchmarks.simulate", name]
        rows.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))
        print(table_line(rows[-1]), flush=True)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written to {OUTPUT}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(json.dumps(preempting(sys.argv[1])))
        sys.exit(0)
    sys.exit(main())
