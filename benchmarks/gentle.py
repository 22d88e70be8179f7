"""What omfsd costs slurmctld: calls and processor time on a busy cluster, with omfsd and without, side by side.

Two private real clusters of four nodes with four CPUs get the same jobs at the same moments: a regular one every two
seconds on average, an urgent one every half minute, with 500 others waiting. One has omfsd and its plug-in. Prints a
table and writes ``build/bench/gentle.json``: ``seconds``, and for each of ``without`` and ``with`` the ``calls`` that
slurmctld had (sdiag), in all and by kind, its ``cpu_seconds``, the jobs that were ``started``, and with omfsd its own
``omfsd_cpu_seconds``, the number of its ``polls`` and of ``urgent_polls``, those for urgent jobs alone. Needs root.

    python -m benchmarks.gentle [--seconds N] [--backlog N] [OUTPUT]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from benchmarks.latency_clusters import CPUS, HIGH, LOW, Cluster
from benchmarks.termination import exits_on_sigterm

SECONDS = 600
BACKLOG = 500
EVERY, URGENT_EVERY = 2.0, 30.0
OUTPUT = Path("build/bench/gentle.json")
MOST = 8
"""Kinds of calls in the table."""


class Submission(NamedTuple):
    """``at``: seconds after the start."""

    at: float
    cpus: int
    seconds: float
    urgent: bool


def workload(seconds: float) -> Iterator[Submission]:
    """The same each time."""
    draw = random.Random(1)  # noqa: S311 - a benchmark, not a secret
    at = 0.0
    while (at := at + draw.expovariate(1 / EVERY)) < seconds:
        yield Submission(at, draw.choice([1, 2, CPUS]), draw.uniform(5, 20), draw.random() < EVERY / URGENT_EVERY)


def carry_out(cluster: Cluster, seconds: float) -> None:
    """Submit it all at its moments."""
    began = time.monotonic()
    for one in workload(seconds):
        time.sleep(max(0.0, began + one.at - time.monotonic()))
        options = [f"--partition={HIGH if one.urgent else LOW}", f"--ntasks={one.cpus}", "--nodes=1", "--requeue"]
        options += ["--account=alarm"] if one.urgent else ["--account=regular", "--comment=omfs:method=requeue"]
        cluster.submit(f"#!/bin/bash\nexec sleep {one.seconds:.1f}\n", *options)
    time.sleep(max(0.0, began + seconds - time.monotonic()))


def measured(clusters: Sequence[Cluster], seconds: float) -> list[dict[str, Any]]:
    before = [(Counter(one.calls()), one.controller_seconds(), one.started()) for one in clusters]
    own = [one.omfsd.cpu_seconds() if one.omfsd else 0.0 for one in clusters]
    threads = [Thread(target=carry_out, args=(one, seconds)) for one in clusters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = []
    for one, (calls, cpu, started), own_before in zip(clusters, before, own, strict=True):
        made = Counter(one.calls())
        made.subtract(calls)
        row: dict[str, Any] = {
            "calls": made.total(),
            "cpu_seconds": round(one.controller_seconds() - cpu, 2),
            "started": one.started() - started,
            "by_kind": {name: count for name, count in made.most_common() if count},
        }
        if one.omfsd is not None:
            cycles = one.omfsd.events("cycle_timed")
            row |= {
                "omfsd_cpu_seconds": round(one.omfsd.cpu_seconds() - own_before, 2),
                "polls": len(cycles),
                "urgent_polls": sum(cycle["poll"] == "urgent" for cycle in cycles),
            }
        rows.append(row)
    return rows


def summary(found: dict[str, Any]) -> str:
    """The table."""
    without, with_us, seconds = found["without"], found["with"], found["seconds"]
    extra = (with_us["calls"] - without["calls"]) / seconds
    fraction = (with_us["cpu_seconds"] - without["cpu_seconds"]) / seconds
    own = with_us["omfsd_cpu_seconds"] / seconds
    kinds = [
        f"  {name:<38}{without['by_kind'].get(name, 0):>10}{count:>10}"
        for name, count in list(with_us["by_kind"].items())[:MOST]
    ]
    return "\n".join(
        [
            f"{f'{seconds:g} s':<40}{'without':>10}{'with':>10}",
            *(f"{name:<40}{without[name]:>10}{with_us[name]:>10}" for name in ("calls", "cpu_seconds", "started")),
            *kinds,
            f"omfsd adds {extra:.1f} calls a second, and {fraction:.1%} of a processor in slurmctld;",
            f"it polled {with_us['polls']} times, and used {own:.1%} of a processor itself",
        ]
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gentle")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--backlog", type=int, default=BACKLOG, help="number of waiting jobs at the start")
    parser.add_argument("output", nargs="?", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    with exits_on_sigterm(), contextlib.ExitStack() as stack:
        clusters = [stack.enter_context(Cluster()), stack.enter_context(Cluster(daemon=True))]
        for one in clusters:
            one.fill("requeue", 15)
            one.queue(options.backlog, "requeue", 15)
        without, with_us = measured(clusters, options.seconds)
    found = {"seconds": options.seconds, "backlog": options.backlog, "without": without, "with": with_us}
    print(summary(found))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
