"""What real-time jobs cost others on a real Slurm: omfsd, by each method, and Slurm's own preempt/qos, on the same
submissions.

Each has a private cluster of four nodes with four CPUs, one after the other, with the same tuned SchedulerParameters:
full of batch jobs of two CPUs that stay, with four more waiting. Twenty real-time jobs come within three minutes: 1 to
4 CPUs for 5 to 20 s, with a time limit of 60 s. omfsd promises them a slowdown of at most 1.5 and acts at 1.2. Under
preempt/qos their QOS may preempt that of the batch jobs, by requeue. In the end, all batch jobs must complete.

Prints a table and writes ``build/bench/realtime.json``: ``own`` as given, ``load``: the machine's at the beginning and
after each kind, and ``rows``: for each kind ``name``, ``jobs``, ``bounds_kept``, ``max_slowdown`` and ``mean_slowdown``
(by slurmctld's times), ``batch_preemptions`` (requeues, as slurmctld counts them; of ``omfs_suspend`` suspensions, as
omfsd does), and ``ratio``: of these to preempt/qos's (None if that was not run). Needs root; about four minutes a kind.

    python -m benchmarks.realtime_starts [--kinds NAME,...] [--jobs N] [--seed N] [--own PERCENT] [OUTPUT]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.termination import exits_on_sigterm
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from omfs_daemon.testing.local_slurm.slurmdbd import Accounting
from tests.support.daemons import Daemon
from tests.support.omfs_run_jobs import Jobs
from tests.support.programs import Programs
from tests.support.real_realtime import BOUND, FullMachine, arrivals

NATIVE = "native_qos"
KINDS = {NATIVE: "requeue", "omfs_requeue": "requeue", "omfs_suspend": "suspend", "omfs_application": "application"}
"""By name: by which method batch jobs are preempted."""

OUTPUT = Path("build/bench/realtime.json")
ACCOUNTS = Accounting(accounts=("bio", "alarm"), users=("root", "nobody"), qos=("realtime", "batch"))


class NativeMachine(FullMachine):
    """Without omfsd: Slurm preempts by QOS."""

    def _start(self) -> None:
        self.slurm.command("sacctmgr", "--immediate", "modify", "qos", "realtime", "set", "preempt=batch")

    def is_as_wanted(self) -> bool:
        return True

    def _ask(self, job: object) -> None:
        """There is nobody to ask."""


def measure(name: str, jobs: int, seed: int, own: int) -> dict[str, Any]:
    """One kind, on a cluster of its own."""
    directory = Path(tempfile.mkdtemp(prefix="omfs-realtime-"))
    directory.chmod(0o755)
    preempt = {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"} if name == NATIVE else {}
    shape = Shape(options={"MinJobAge": "7200", "KillWait": "2", **preempt})
    try:
        with LocalSlurm(directory / "slurm", shape, accounting=ACCOUNTS) as slurm:
            (directory / "omfsd").mkdir()
            daemon = Daemon(slurm, directory / "omfsd")
            try:
                return _play(name, Jobs(daemon, Programs(directory / "programs")), jobs, seed, own)
            finally:
                daemon.kill()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _play(name: str, on: Jobs, jobs: int, seed: int, own: int) -> dict[str, Any]:
    kind = NativeMachine if name == NATIVE else FullMachine
    machine = kind(on, KINDS[name], realtime=("--qos=realtime",), batch_options=("--qos=batch",), own=own)
    machine.fill()
    submitted = machine.play(arrivals(jobs, seed))
    slowdowns = [(60 + start - submit) / 60 for submit, start in map(machine.slurm_times, submitted)]
    if KINDS[name] == "suspend":
        preempted = sum(len(each["victims"]) for each in machine.preemptions())
    else:
        preempted = machine.restarts()
    on.complete(*machine.batch)
    return {
        "name": name,
        "jobs": jobs,
        "bounds_kept": sum(slowdown <= BOUND for slowdown in slowdowns),
        "max_slowdown": round(max(slowdowns), 3),
        "mean_slowdown": round(sum(slowdowns) / jobs, 3),
        "batch_preemptions": preempted,
    }


def compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the ratios to preempt/qos."""
    native = next((row["batch_preemptions"] for row in rows if row["name"] == NATIVE), None)
    return [{**row, "ratio": round(row["batch_preemptions"] / native, 3) if native else None} for row in rows]


def line_of(row: dict[str, Any]) -> str:
    kept = f"{row['bounds_kept']} of {row['jobs']}"
    slowdowns = f"{row['mean_slowdown']:5.2f} {row['max_slowdown']:5.2f}"
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}x"
    return f"{row['name']:18} {kept:>9} {slowdowns} {row['batch_preemptions']:>12} {ratio:>6}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.realtime_starts")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--own", type=int, default=0, help="entitlement of the real-time jobs' account, in percent")
    parser.add_argument("output", nargs="?", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    kinds = options.kinds.split(",")
    if unknown := sorted(set(kinds) - set(KINDS)):
        parser.error(f"no such kind: {unknown[0]}; there are {', '.join(KINDS)}")
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    if not 0 <= options.own <= 100:
        parser.error("--own must be from 0 to 100")
    with exits_on_sigterm():
        loads = [os.getloadavg()[0]]
        print(f"{'kind':18} {'kept':>9} {'mean':>5} {'max':>5} {'preemptions':>12} {'ratio':>6}")
        rows: list[dict[str, Any]] = []
        for name in kinds:
            rows = compared([*rows, measure(name, options.jobs, options.seed, options.own)])
            print(line_of(rows[-1]), flush=True)
            loads.append(os.getloadavg()[0])
    options.output.parent.mkdir(parents=True, exist_ok=True)
    found = {"own": options.own, "load": [round(load, 2) for load in loads], "rows": rows}
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
