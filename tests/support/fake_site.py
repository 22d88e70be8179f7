"""A daemon's cycle on the fake Slurm in virtual time, which can be killed between any two of its acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.cluster.jobs import Hold, Job, JobRequest, JobState
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.daemon.api.cycle_report import CycleReport
from omfs_daemon.daemon.cycle import Cycle
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.policy.rules.classes import REGULAR, JobClassRule, Rules
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.amounts import is_soak
from tests.support.fake_omfs_node import FakeNodeWorkQueue, Nodes, SlurmOnNodes

ORDERS = (
    "hold", "release", "set_nice", "pin", "set_licenses", "signal", "requeue", "suspend", "resume",
    "set_admin_comment",
)  # fmt: skip

FAULTY = (*ORDERS, "end_hold")
"""What can go wrong: the second command of a release, too."""


class Killed(BaseException):
    """The daemon dies here: nothing of ours catches this."""


class Fuse:
    """Counts acts (orders and journal writes, before and after each) and kills at one of them."""

    def __init__(self) -> None:
        self.acts = 0
        self.kill_at: int | None = None
        self.kinds: list[str] = []
        """Of each act so far: before or after which order, or which records."""

    def act(self, kind: str) -> None:
        self.acts += 1
        self.kinds.append(kind)
        if self.acts == self.kill_at:
            raise Killed

    def crash_points(self, step: int = 1) -> Sequence[int]:
        """Acts to be killed at, of those so far: in a soak every ``step``-th, else the first one of each kind."""
        if is_soak():
            return range(1, self.acts + 1, step)
        return sorted(self.kinds.index(kind) + 1 for kind in set(self.kinds))

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def fused(*arguments: Any, **options: Any) -> Any:
            kind = _kind(function.__name__, arguments)
            self.act(f"before {kind}")
            result = function(*arguments, **options)
            self.act(f"after {kind}")
            return result

        return fused


def _kind(order: str, arguments: tuple[Any, ...]) -> str:
    """The order's name; of records in the journal their types, and the steps of the preemptions in them."""
    if order != "write":
        return order
    steps = (getattr(getattr(record, "preemption", None), "step", "") for record in arguments)
    return " ".join(sorted({f"{type(record).__name__}:{step}" for record, step in zip(arguments, steps, strict=True)}))


class FusedGateway:
    """The fake's gateway with a fuse around every order, and within a release."""

    def __init__(self, gateway: FakeGateway, fuse: Fuse) -> None:
        self._gateway = gateway
        self._fuse = fuse
        gateway.between = lambda: fuse.act("within release")

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._gateway, name)
        return self._fuse.around(found) if name in ORDERS else found


def site_rules(
    quantum: float = 0.0, methods: Sequence[str] = ("requeue", "suspend"), last_resort: str = "", **changes: Any
) -> Rules:
    """bio and physics own half each; partition urgent is urgent; users choose their method among these."""
    return Rules(
        tree=AccountTree([Entitlement("bio", 50), Entitlement("physics", 50)]),  # type: ignore[arg-type]
        classes=(
            JobClassRule("urgent", partitions=frozenset(["urgent"]), urgent=True),
            JobClassRule("regular", methods=tuple(methods), last_resort=last_resort),
        ),
        quantum=quantum,
        **{"methods": BUILT_IN_TRAITS, "unmatched": REGULAR, **changes},
    )


class Site:
    """Nodes of four CPUs (four, unless told otherwise), a fake Slurm, one daemon. ``now`` is virtual; the daemon's
    clock is ahead of it by ``clock_error``."""

    slurm_class = SlurmOnNodes

    def __init__(
        self,
        directory: Path,
        rules: Rules | None = None,
        hosts: int = 4,
        licenses: Mapping[str, int] | None = None,
        room: Mapping[str, int] | None = None,
        memory: float = inf,
        plugin: bool = True,
        partitions: Sequence[str] = ("main", "urgent"),
        nodes: Sequence[Node] = (),
        **settings: Any,
    ) -> None:
        """``nodes``: instead of ``hosts`` of four CPUs."""
        self.directory = directory
        self.now, self.clock_error = 1_000_000.0, 0.0
        nodes = nodes or [Node(f"n{number}", 4, 8000 << 20) for number in range(1, hosts + 1)]
        parts = [Partition(name, frozenset(node.name for node in nodes)) for name in partitions]
        self.slurm = self.slurm_class(lambda: self.now, nodes, parts, licenses=licenses, plugin=plugin)
        self.nodes = Nodes(self.slurm, room, memory)
        self.gateway = FakeGateway(self.slurm)
        self.settings = Settings(rules=rules or site_rules(), **settings)
        self.fuse = Fuse()
        self.reports: list[CycleReport] = []
        self.submitted: list[int] = []
        self.start_daemon()

    # -- the daemon -------------------------------------------------------------------------------
    def start_daemon(self) -> None:
        """A new process: nothing but the directory and Slurm survives from before."""
        self.journal = Journal(self.directory / "journal")
        self.journal.write = self.fuse.around(self.journal.write)  # type: ignore[method-assign]
        self.history_database = HistoryDatabase(self.directory / "history.sqlite")
        gateway: Any = FusedGateway(self.gateway, self.fuse)
        self.work_queue = FakeNodeWorkQueue(self.nodes)
        self.work_queue.ask = self.fuse.around(self.work_queue.ask)  # type: ignore[method-assign]
        self.metrics = Metrics("test")
        self.cycle = Cycle(
            gateway,
            self.journal,
            self.history_database,
            self.metrics,
            lambda: self.settings,
            lambda: self.now + self.clock_error,
            self.work_queue,
            self.nodes.facts,
        )

    def die(self) -> None:
        self.work_queue.close()
        self.journal.close()
        self.history_database.close()

    def step(self, seconds: float = 0.5) -> CycleReport:
        report = self.cycle.run()
        self.reports.append(report)
        self.nodes.check()
        self.now += seconds
        return report

    def run(self, seconds: float, step: float = 0.5) -> None:
        end = self.now + seconds
        while self.now < end:
            self.step(step)

    def run_until(self, condition: Callable[[], bool], limit: float = 600.0, step: float = 0.5) -> None:
        end = self.now + limit
        while not condition():
            assert self.now < end, f"not within {limit} s; last: {self.reports[-1].summary}; {self.observation()}"
            self.step(step)

    def rest(self, limit: float = 3600.0) -> None:
        """Until every job has ended and the daemon has nothing left to remember of a preemption."""
        self.run_until(lambda: not self.gateway.jobs() and not self.journal.state.preemptions, limit, step=1.0)

    # -- users -------------------------------------------------------------------------------------
    def submit(
        self,
        account: str,
        cpus: int = 4,
        method: str = "requeue",
        run_time: float = 60.0,
        urgent: bool = False,
        user: str = "",
        hosts: int = 1,
        on: str = "",
        size: int = 0,
        memory: int = 0,
        **more: Any,
    ) -> int:
        """``on``: the node that it must have; ``size``: bytes that it has on each of its ``hosts`` nodes; ``memory``:
        those that it asks for."""
        request = JobRequest(
            cpus=cpus,
            nodes=hosts,
            max_nodes=hosts,
            partitions=("urgent",) if urgent else ("main",),
            required_nodes=frozenset([on] if on else []),
            memory_per_node=memory,
        )
        comment = f"omfs:method={method}" if method else ""
        job_id = self.slurm.submit(
            Submission(
                user=user or account, account=account, request=request, run_time=run_time, comment=comment, **more
            )
        )
        self.nodes.sizes[job_id] = size
        self.submitted.append(job_id)
        return job_id

    # -- looking -----------------------------------------------------------------------------------
    def job(self, job_id: int) -> Job:
        found = self.gateway.find(job_id)
        assert found is not None, f"job {job_id} is lost"
        return found

    def state(self, job_id: int) -> JobState:
        return self.job(job_id).state

    def runs(self, *job_ids: int) -> bool:
        return all(self.state(job_id) is JobState.RUNNING for job_id in job_ids)

    def outcomes(self) -> dict[int, str]:
        history = self.slurm.history
        return {job_id: history[job_id].outcome for job_id in self.submitted}

    def held(self) -> list[str]:
        return [job.ref for job in self.gateway.jobs() if job.hold is not Hold.NONE]

    def observation(self) -> list[str]:
        return [
            f"{job.ref} {job.account} {job.state} {job.reason} nice={job.nice} on={job.on_nodes} {job.admin_comment}"
            for job in self.gateway.jobs()
        ]
