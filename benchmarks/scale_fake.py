"""A machine of 10,000 nodes with 100,000 waiting jobs on the built-in fake Slurm: no Slurm of that size fits one host.

Time is virtual: a cycle every half minute, between which a hundred jobs end and as many are submitted, and an urgent
job every ten cycles. What the fake itself computes is not counted; what squeue prints of such a cluster is parsed in
benchmarks.plan instead. To be called in a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from omfs_daemon.cluster.jobs import JobRequest, JobState
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.config.load import load
from omfs_daemon.daemon import log
from omfs_daemon.daemon.process import Service
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.events import Timing
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission

CPUS, MEMORY = 64, 256 << 30
STEP, URGENT_EVERY, CHANGED = 30.0, 10, 100
MOST_CYCLES = 60
"""One a second, in which an urgent job must run."""
SLURMS_OWN = Timing(sched_interval=60.0, bf_interval=30.0)
"""As without tuned parameters: a site of this size has them longer rather than shorter."""
ACCOUNTS = ("bio", "physics")

_CONFIG = """
[daemon]
state_dir = "{0}/state"
run_dir = "{0}/run"
[policy]
quantum_seconds = 0
[metrics]
enabled = false
[entitlements.bio]
percent = 50
[entitlements.physics]
percent = 50
[[class]]
name = "urgent"
partition = ["urgent"]
urgent = true
[[class]]
name = "regular"
methods = ["requeue"]
"""


class TimedGateway:
    """Counts calls, and the processor time that the fake takes for them."""

    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway, self.calls, self.seconds = gateway, 0, 0.0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._gateway, name)
        return self._timed(found) if callable(found) else found

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            began = time.process_time()
            try:
                return call(*arguments, **options)
            finally:
                self.seconds += time.process_time() - began

        return timed


class FakeMachine:
    """Full of jobs of one node, with others that wait."""

    def __init__(self, directory: Path, nodes: int, waiting: int) -> None:
        self.now = 1_750_000_000.0
        machine = [Node(f"n{number}", CPUS, MEMORY) for number in range(1, nodes + 1)]
        names = frozenset(node.name for node in machine)
        partitions = [Partition("main", names), Partition("urgent", names)]
        self.slurm = FakeSlurm(lambda: self.now, machine, partitions, SLURMS_OWN)
        self._count = 0
        self.slurm.submit_all(self._regular(6 * 3600.0) for _ in range(nodes))
        self.pass_by(5)
        self.slurm.submit_all(self._regular(600.0) for _ in range(waiting))
        self.gateway = TimedGateway(FakeGateway(self.slurm))
        config = directory / "omfs.toml"
        config.write_text(_CONFIG.format(directory))
        gateway: Any = self.gateway
        self.service = Service(load(config), config, gateway, clock=lambda: self.now)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.slurm.catch_up()

    def change(self) -> None:
        """Jobs end, and others come."""
        running = (job for job in self.slurm.live() if job.state is JobState.RUNNING)
        for job in list(islice(running, CHANGED)):
            self.slurm.cancel(job.id)
        self.slurm.submit_all(self._regular(600.0) for _ in range(CHANGED))

    def cycle(self) -> float:
        """Processor seconds of omfsd's own."""
        before, of_fake = time.process_time(), self.gateway.seconds
        report = self.service.once()
        if report.error is not None:
            raise RuntimeError(report.error)
        return time.process_time() - before - (self.gateway.seconds - of_fake)

    def start_urgent(self) -> float:
        """Processor seconds of omfsd's own until an urgent job runs."""
        request = JobRequest(CPUS, partitions=("urgent",))
        job, spent = self.slurm.submit(Submission(request, account="alarm", run_time=60.0)), 0.0
        for _ in range(MOST_CYCLES):
            if self.slurm.history[job].starts:
                return spent
            spent += self.cycle()
            self.pass_by(1.0)
        raise RuntimeError(f"an urgent job does not run within {MOST_CYCLES} cycles")

    def _regular(self, seconds: float) -> Submission:
        self._count += 1
        account = ACCOUNTS[self._count % len(ACCOUNTS)]
        request = JobRequest(CPUS, partitions=("main",))
        return Submission(request, account=account, user=account, run_time=seconds, comment="omfs:method=requeue")


def memory() -> float:
    """MB of this process: of omfsd and of the fake."""
    return float(psutil.Process().memory_info().rss / 2**20)


def measure(nodes: int, waiting: int, seconds: float) -> dict[str, Any]:
    """A machine for so many virtual seconds."""
    with tempfile.TemporaryDirectory() as directory, Path(os.devnull).open("w") as nowhere:
        log.set_up("json", "error", nowhere)
        machine = FakeMachine(Path(directory), nodes, waiting)
        first = machine.cycle()
        cycles, polls, urgent = list[float](), list[int](), list[float]()
        began, calls = memory(), machine.gateway.calls
        for turn in range(int(seconds / STEP)):
            machine.change()
            if turn % URGENT_EVERY == 0:
                urgent.append(machine.start_urgent())
            before = machine.gateway.calls
            cycles.append(machine.cycle())
            polls.append(machine.gateway.calls - before)
            machine.pass_by(STEP)
        found = {
            "name": "fake",
            "nodes": nodes,
            "waiting": waiting,
            "virtual_seconds": seconds,
            "first_cycle_cpu_s": round(first, 3),
            "cycle_cpu_s": round(median(cycles), 3),
            "cycle_max_cpu_s": round(max(cycles), 3),
            "urgent_start_cpu_s": round(median(urgent), 3),
            "calls_per_cycle": round(sum(polls) / len(polls), 1),
            "calls": machine.gateway.calls - calls,
            "rss_mb_before": round(began, 1),
            "rss_mb_after": round(memory(), 1),
        }
        machine.service.close()
    return found


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
