"""omfsd beside large clusters: a real Slurm of many slurmd on this host, and the built-in fake with still more nodes.

The real one has ``--nodes`` nodes of 64 CPUs, each with a job that runs, and ``--waiting`` others, each with a record
of its own; jobs end and are submitted for ``--seconds``, and an urgent one comes every minute. The fake: see
``benchmarks.scale_fake``. Prints a table and writes ``build/bench/scale.json``: a list of two rows. Needs root.

Of the fake: what ``scale_fake.measure`` returns. Of the real one:

ready_s                      from omfsd's start to its first look
cycle_s, cycle_max_s         from a poll of all jobs to the last order; observe_s and decide_s are two parts of it
urgent_s, urgent_max_s       from an urgent job's submission until it runs; native_urgent_s: on the same cluster with
                             Slurm's own tuned preemption instead of omfsd
calls_per_second             to slurmctld, with those of this benchmark itself; idle_calls_per_second: with neither
cpu_share                    of a processor, that omfsd uses; controller_cpu_share: that slurmctld uses meanwhile
rss_mb_before, after, max    omfsd's memory

    python -m benchmarks.scale [--nodes N] [--waiting N] [--seconds N] [--fake NODES,WAITING,SECONDS] [OUTPUT]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.latency_clusters import Cluster, Omfsd, regular
from benchmarks.termination import exits_on_sigterm

NODES, CPUS, WAITING, SECONDS = 200, 64, 20_000, 3600.0
FAKE = "10000,100000,3600"
OUTPUT = Path("build/bench/scale.json")
METHOD = "requeue"
URGENT_EVERY = 60.0
EVERY = 2.0
"""Seconds between two submissions of regular jobs."""
IDLE = 30.0
"""Seconds in which slurmctld is watched without omfsd."""


class Watched:
    """What a cluster with omfsd does in a span of time."""

    def __init__(self, cluster: Cluster, omfsd: Omfsd) -> None:
        self._cluster, self._omfsd = cluster, omfsd
        self._began = time.time()
        self._before = self._counters()
        self.memory = [self._omfsd.memory()]
        self.urgent: list[float] = []

    def _counters(self) -> tuple[float, float, float]:
        return (
            float(sum(self._cluster.calls().values())),
            self._omfsd.cpu_seconds(),
            self._cluster.controller_seconds(),
        )

    def go_on(self, seconds: float) -> None:
        """Jobs are submitted and end; urgent ones come, and go."""
        end = time.monotonic() + seconds
        next_urgent = time.monotonic()
        while time.monotonic() < end:
            if time.monotonic() >= next_urgent:
                next_urgent += URGENT_EVERY
                start = self._cluster.start_urgent()
                self.urgent.append(start.seconds)
                self._cluster.end_urgent(start.job, METHOD, backlog=True)
            self._cluster.submit("#!/bin/bash\nexec sleep 20\n", *regular(METHOD, CPUS))
            self.memory.append(self._omfsd.memory())
            time.sleep(EVERY)

    def row(self) -> dict[str, Any]:
        took = time.time() - self._began
        calls, own, controller = (
            (now - before) / took for now, before in zip(self._counters(), self._before, strict=True)
        )
        cycles = [
            cycle
            for cycle in self._omfsd.events("cycle_timed")
            if cycle["poll"] == "full" and cycle["polled"] >= self._began
        ]
        whole = [cycle["ordered"] - cycle["polled"] for cycle in cycles]
        return {
            "seconds": round(took, 1),
            "cycles": len(cycles),
            "cycle_s": round(median(whole), 3),
            "cycle_max_s": round(max(whole), 3),
            "observe_s": round(median(cycle["observed"] - cycle["polled"] for cycle in cycles), 3),
            "decide_s": round(median(cycle["decided"] - cycle["observed"] for cycle in cycles), 3),
            "urgent": len(self.urgent),
            "urgent_s": round(median(self.urgent), 3),
            "urgent_max_s": round(max(self.urgent), 3),
            "calls_per_second": round(calls, 2),
            "cpu_share": round(own, 3),
            "controller_cpu_share": round(controller, 3),
            "rss_mb_before": round(self.memory[0] / 2**20, 1),
            "rss_mb_after": round(self.memory[-1] / 2**20, 1),
            "rss_mb_max": round(max(self.memory) / 2**20, 1),
        }


def real(nodes: int, waiting: int, seconds: float) -> dict[str, Any]:
    """The row of the real Slurm."""
    found: dict[str, Any] = {"name": "real", "nodes": nodes, "waiting": waiting}
    with Cluster(daemon=True, nodes=nodes, cpus=CPUS) as cluster:
        omfsd = cluster.omfsd
        if omfsd is None:
            raise RuntimeError("a cluster without omfsd")
        cluster.fill(METHOD)
        omfsd.end()
        cluster.queue(waiting, METHOD)
        calls = sum(cluster.calls().values())
        time.sleep(IDLE)
        found["idle_calls_per_second"] = round((sum(cluster.calls().values()) - calls) / IDLE, 2)
        began = time.monotonic()
        omfsd.start()
        found["ready_s"] = round(time.monotonic() - began, 2)
        watched = Watched(cluster, omfsd)
        watched.go_on(seconds)
        found |= watched.row()
    with Cluster(METHOD, nodes=nodes, cpus=CPUS) as native:
        native.fill(METHOD)
        native.queue(waiting, METHOD)
        starts = []
        for _ in range(max(3, min(10, found["urgent"]))):
            start = native.start_urgent()
            starts.append(start.seconds)
            native.end_urgent(start.job, METHOD, backlog=True)
    found["native_urgent_s"] = round(median(starts), 3)
    found["urgent_ratio_to_native"] = round(found["urgent_s"] / found["native_urgent_s"], 2)
    return found


def fake(numbers: str) -> dict[str, Any]:
    """The row of the fake, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale_fake", *numbers.split(",")]
    row: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return row


def table(row: Mapping[str, Any]) -> str:
    head = f"{row['name']}: {row['nodes']:,} nodes, {row['waiting']:,} waiting jobs"
    figures = [f"  {name:<26}{value:>12,}" for name, value in row.items() if name not in ("name", "nodes", "waiting")]
    return "\n".join([head, *figures])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--waiting", type=int, default=WAITING)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--fake", default=FAKE, help="nodes, waiting jobs, and virtual seconds of the fake")
    parser.add_argument("output", nargs="?", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    with exits_on_sigterm():
        rows.append(fake(options.fake))
        print(table(rows[-1]), flush=True)
        rows.append(real(options.nodes, options.waiting, options.seconds))
        print(table(rows[-1]), flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
