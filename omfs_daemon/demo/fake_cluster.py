"""The demo without Slurm: the built-in fake, omfsd's cycles in this process, and a fast clock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from omfs_daemon.cluster.jobs import Job, JobRequest
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.config.load import load
from omfs_daemon.daemon import log
from omfs_daemon.daemon.api.callers import Caller, Role, user_name
from omfs_daemon.daemon.api.history_view import PastPreemptionView
from omfs_daemon.daemon.api.status_view import StatusView
from omfs_daemon.daemon.process import Service
from omfs_daemon.demo.demo_cluster import CPUS_PER_NODE, LONGEST_HISTORY, NODES, DemoJob, DemoJobResult, write_config
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission

SPEED = 3.0
_TICK = 0.1
_MEMORY = 8000 << 20


class FakeDemoCluster:
    """Time passes in :meth:`tick` only, ``SPEED`` times as fast as real time."""

    name = f"the built-in fake Slurm, {SPEED:g} times as fast as real time"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._now = time.time()
        self._began = self._now
        self._caller = Caller(os.getuid(), os.getgid(), user_name(os.getuid()), Role.OPERATOR)
        self._open = ExitStack()

    def start(self) -> None:
        stream = self._open.enter_context((self._directory / "omfsd.log").open("w", encoding="utf-8"))
        path = write_config(self._directory)
        config = load(path)
        log.set_up(config.daemon.log_format, config.daemon.log_level, stream)
        self._slurm = _cluster(self.now)
        self._service = Service(config, path, FakeGateway(self._slurm), clock=self.now)
        self._open.callback(self._service.close)
        self.tick()

    def close(self) -> None:
        self._open.close()

    def now(self) -> float:
        return self._now

    def tick(self) -> None:
        self._service.once()
        time.sleep(_TICK / SPEED)
        self._now += _TICK

    def submit(self, job: DemoJob) -> int:
        return self._slurm.submit(
            Submission(
                JobRequest(CPUS_PER_NODE, partitions=(job.partition,)),
                account=job.account,
                run_time=job.work,
                comment=job.comment,
                name=job.name,
            )
        )

    def jobs(self) -> list[Job]:
        self._slurm.catch_up()
        return self._slurm.live()

    def status(self) -> StatusView:
        return self._service.answers.status(self._caller)

    def preemptions(self) -> list[PastPreemptionView]:
        return self._service.answers.history(self._caller, LONGEST_HISTORY, self._began)["preemptions"]

    def result(self, job: DemoJob, job_id: int) -> DemoJobResult:
        history = self._slurm.history[job_id]
        return DemoJobResult(
            outcome=history.outcome,
            restarts=self._slurm.records[job_id].restarts,
            starts=len(history.starts),
            steps=round(history.done + history.lost),
            finished=history.done >= job.work,
        )


def _cluster(clock: Callable[[], float]) -> FakeSlurm:
    nodes = [Node(f"n{number}", CPUS_PER_NODE, _MEMORY) for number in range(1, NODES + 1)]
    names = frozenset(node.name for node in nodes)
    return FakeSlurm(clock, nodes, [Partition("main", names), Partition("urgent", names)])
