"""How long an urgent job waits on a full machine: Slurm's own preemption, tuned and not, and omfsd's, side by side.

Four CPUs are asked for on four nodes of four CPUs that are full of four-CPU jobs, with none, 5,000, and 20,000 jobs
waiting behind them. The kinds take turns in four blocks, each on a new private real cluster that has the machine for
itself, since a second one costs a start time even at rest. The stopwatch runs from the start of the ``sbatch`` process
until the first line of the urgent job's script, which writes down the time; then it is made sure that the job has CPUs
of its own.

Prints a table and writes ``build/bench/latency.json``: a list with, for each kind and backlog, ``name``, ``backlog``,
``n``, ``min``, ``median``, ``p95``, ``max`` (seconds), ``ratio_to_native_tuned`` (of the medians, to Slurm's own tuned
preemption in the same way; None where that was not run), ``max_ratio_to_native_tuned``, and ``split``: the medians of
the parts, in seconds. Rows ``sbatch_alive``, ``sbatch_stopped`` and ``sbatch_dead`` have what a submit itself takes
with our plug-in and the daemon in that state, beside one where there is no plug-in (``median_without``; the ratio is to
that).
Exit code 0 whatever the figures are: other work on the machine changes them. Needs root.

    python -m benchmarks.latency [--repetitions N] [--backlog N,N...] [--kinds NAME,...] [OUTPUT]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.latency_clusters import Cluster, Start
from benchmarks.latency_submits import submits
from benchmarks.termination import exits_on_sigterm

REPETITIONS = 20
BACKLOGS = (0, 5000, 20000)
BLOCKS = 4
REST = 1.3
"""Seconds, and up to one more, from the end of one start to the next: slurmctld has done something else since."""
OUTPUT = Path("build/bench/latency.json")


class Kind(NamedTuple):
    """Who stops jobs ("native" or "omfs"), how, and whether scheduler parameters are as recommended or Slurm's own."""

    who: str
    method: str
    tuned: bool

    @property
    def rival(self) -> str:
        """The name of Slurm's own, tuned, in the same way."""
        return f"native_{self.method}_tuned"

    def cluster(self) -> Cluster:
        return Cluster(self.method if self.who == "native" else "", self.tuned, daemon=self.who == "omfs")


KINDS: Mapping[str, Kind] = {
    "native_requeue_tuned": Kind("native", "requeue", True),
    "native_suspend_tuned": Kind("native", "suspend", True),
    "native_requeue_default": Kind("native", "requeue", False),
    "omfs_requeue": Kind("omfs", "requeue", True),
    "omfs_suspend": Kind("omfs", "suspend", True),
}

PARTS = ("submit", "wake", "poll", "decide", "command", "slurm")
"""Until the daemon was woken, began to poll, had polled, had decided, and had given the last order, and until the job
ran."""


class Turns:
    """All starts of one kind with one backlog, and the parts of each."""

    def __init__(self, name: str, backlog: int) -> None:
        self.name, self.backlog = name, backlog
        self.kind = KINDS[name]
        self.starts: list[Start] = []
        self._parts: list[dict[str, float]] = []

    def measure(self, cluster: Cluster, moments: Sequence[float]) -> None:
        """A start on this cluster, which is new, after each of these seconds of rest."""
        omfsd = cluster.omfsd
        cluster.fill(self.kind.method)
        cluster.queue(self.backlog + len(moments) + 1 if self.backlog else 0, self.kind.method)
        queued = time.time()
        cluster.wait(lambda: omfsd is None or omfsd.has_polled(queued), "a full poll")
        self._turn(cluster, REST)  # not counted: the first one of new daemons
        starts = [self._turn(cluster, moment) for moment in moments]
        self.starts += starts
        # Slurm alone has two parts: the sbatch process, and all the rest.
        cycles = [] if omfsd is None else omfsd.events("cycle_timed")
        self._parts += (
            [{"submit": start.taken - start.submitted, "slurm": start.ran - start.taken} for start in starts]
            if omfsd is None
            else [found for start in starts if (found := parts_of(start, cycles))]
        )

    def _turn(self, cluster: Cluster, rest: float) -> Start:
        time.sleep(rest)
        start = cluster.start_urgent()
        cluster.end_urgent(start.job, self.kind.method, bool(self.backlog))
        return start

    def row(self) -> dict[str, Any]:
        seconds = [start.seconds for start in self.starts]
        return {"name": self.name, "backlog": self.backlog, **summary(seconds), "split": self.split()}

    def split(self) -> dict[str, float]:
        """Medians of the parts."""
        return {name: round(median(part[name] for part in self._parts), 4) for name in next(iter(self._parts), ())}


def parts_of(start: Start, cycles: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Of one start, from the cycle that began a preemption in its time."""
    for cycle in cycles:
        if cycle["preemptions"] and start.submitted <= cycle["ordered"] and cycle["polled"] <= start.ran:
            woken = max(start.submitted, cycle["woken"] or cycle["polled"])
            times = [start.submitted, woken, *(cycle[name] for name in ("polled", "observed", "decided", "ordered"))]
            return dict(zip(PARTS, (later - former for former, later in pairwise([*times, start.ran])), strict=True))
    return {}


def summary(seconds: Sequence[float]) -> dict[str, Any]:
    ranked = sorted(seconds)
    figures = {
        "min": ranked[0],
        "median": median(ranked),
        "p95": ranked[ceil(0.95 * len(ranked)) - 1],
        "max": ranked[-1],
    }
    return {"n": len(ranked), **{name: round(value, 4) for name, value in figures.items()}}


def compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, with the ratios to their rivals'."""
    by_key = {(row["name"], row["backlog"]): row for row in rows}

    def ratio(row: Mapping[str, Any], figure: str) -> float | None:
        rival = by_key.get((KINDS[row["name"]].rival, row["backlog"]))
        return round(row[figure] / rival[figure], 3) if rival else None

    return [
        {**row, "ratio_to_native_tuned": ratio(row, "median"), "max_ratio_to_native_tuned": ratio(row, "max")}
        for row in rows
    ]


def submit_rows(repetitions: int) -> list[dict[str, Any]]:
    """What sbatch takes, by state of omfsd; the ratio is of the medians, to sbatch where there is no plug-in."""
    rows: list[dict[str, Any]] = []
    with KINDS["native_requeue_tuned"].cluster() as without, KINDS["omfs_requeue"].cluster() as with_us:
        found = submits(without, with_us, repetitions)
    for state, pairs in found.items():
        ours, bare = summary([pair[0] for pair in pairs]), summary([pair[1] for pair in pairs])
        ratio = {"ratio_to_native_tuned": round(ours["median"] / bare["median"], 3)}
        rows.append({"name": f"sbatch_{state}", "backlog": 0, **ours, **ratio, "median_without": bare["median"]})
    return rows


def line_of(row: Mapping[str, Any]) -> str:
    """A line of the table."""
    figures = "  ".join(f"{name} {row[name]:6.3f}" for name in ("min", "median", "p95", "max"))
    ratio = row["ratio_to_native_tuned"]
    text = f"{row['name']:<24}{row['backlog']:>6} waiting  {figures}  x {ratio if ratio is not None else '-':<6}"
    split = "  ".join(f"{name} {1000 * seconds:.0f}" for name, seconds in row.get("split", {}).items())
    return f"{text}\n{'':<32}ms: {split}" if split else text


def starts(names: Sequence[str], backlog: int, repetitions: int) -> list[Turns]:
    """So many starts of each kind, which take turns block by block."""
    every = [Turns(name, backlog) for name in names]
    # What ended before is in step with Slurm's background loop of a second: each kind begins at all moments of it.
    order = random.Random(repetitions).sample(range(repetitions), repetitions)  # noqa: S311 - no secret
    moments = [REST + (position + 0.5) / repetitions for position in order]
    for block in range(min(BLOCKS, repetitions)):
        for turns in every:
            with turns.kind.cluster() as cluster:
                turns.measure(cluster, moments[block::BLOCKS])
    return every


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--backlog", default=",".join(map(str, BACKLOGS)), help="numbers of waiting jobs")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("output", nargs="?", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    kinds = list(dict.fromkeys(options.kinds.split(",")))
    if unknown := sorted(set(kinds) - set(KINDS)):
        parser.error(f"no such kind: {unknown[0]}; there are {', '.join(KINDS)}")
    rows: list[dict[str, Any]] = []
    with exits_on_sigterm():
        for backlog in map(int, options.backlog.split(",")):
            found = compared([turns.row() for turns in starts(kinds, backlog, options.repetitions)])
            for row in found:
                print(line_of(row), flush=True)
            rows += found
        if {"native_requeue_tuned", "omfs_requeue"} <= set(kinds):
            found = submit_rows(options.repetitions)
            for row in found:
                print(line_of(row), flush=True)
            rows += found
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
