"""A cluster as the contract sees it: the fake with a virtual clock, and a private real Slurm; each by its own gateway
and through PySlurm.

All are four nodes n1 to n4 of four CPUs and 8000 MB, with two ``ve`` and two GPUs each; n1 and n2 are ``fast``;
partition ``main`` has all nodes, ``small`` n3 and n4. There are licenses, and a batch script that exits 101 is
requeued, held.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from math import ceil, inf
from typing import cast

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.limits import SiteReservation
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.pyslurm.pyslurm_gateway import PySlurmGateway
from omfs_daemon.slurm.pyslurm.pyslurm_process import PySlurmProcess
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior, OnUsr1
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.pyslurm_stand_in.commands import FakeCommands
from tests.support.pyslurm_stand_in.server import StandInServer
from tests.support.waiting import LIMIT

MB = 1 << 20
NODES = ("n1", "n2", "n3", "n4")
GRES = "ve:2,gpu:2"
FAST = {"n1": "fast", "n2": "fast"}
LICENSES = {"ve_n1": 2, "ve_n2": 2, "mem_n1": 8, "ve": 9999}
SHAPE = Shape(
    gres=GRES,
    features=FAST,
    partitions=("PartitionName=small Nodes=n[3-4] State=UP",),
    options={
        "Licenses": ",".join(f"{name}:{count}" for name, count in LICENSES.items()),
        "RequeueExitHold": "101-109",
        "KillWait": "20",  # long enough for a busy machine to observe what is completing
    },
)
OWNER = "nobody"
_PARTITION_DEFAULTS = {"State": "UP", "MaxTime": "UNLIMITED", "PriorityTier": "1"}


class World(ABC):
    """One cluster, its users, and time."""

    gateway: Gateway
    looks_at_all = False
    """Whether ``job`` takes a job from the list of all jobs while it is there: where that list is made another way."""

    @abstractmethod
    def submit(self, what: Submission) -> int:
        """As the user ``nobody``; the raw id."""

    @abstractmethod
    def cancel(self, job_id: int) -> None: ...

    @abstractmethod
    def cancel_part(self, job_id: int, at: int) -> None:
        """scancel of one part of a running heterogeneous job."""

    @abstractmethod
    def user_hold(self, job_id: int) -> bool: ...

    @abstractmethod
    def user_release(self, job_id: int) -> bool:
        """``scontrol release`` by the owner: whether Slurm accepted it."""

    @abstractmethod
    def requeue_hold(self, job_id: int) -> None:
        """``scontrol requeuehold`` by an administrator, which we never order."""

    @abstractmethod
    def admin_hold(self, job_id: int) -> None:
        """``scontrol hold`` by an administrator."""

    @abstractmethod
    def admin_release(self, job_id: int) -> None: ...

    @abstractmethod
    def drain(self, node: str) -> None: ...

    @abstractmethod
    def undrain(self, node: str) -> None: ...

    @abstractmethod
    def update_partition(self, name: str, option: str, value: str) -> None:
        """An option of a partition, as ``scontrol update`` names it: State, MaxTime (minutes), or PriorityTier."""

    @abstractmethod
    def reserve(self, name: str, node: str, is_now: bool) -> None:
        """A node for root, from now on or from tomorrow on, for ten minutes."""

    @abstractmethod
    def end_reservation(self, name: str) -> None: ...

    @abstractmethod
    def now(self) -> float:
        """The seconds that have passed since some moment."""

    @abstractmethod
    def _moments(self, limit: float) -> Iterator[None]:
        """Moments to observe the cluster again, up to ``limit`` seconds from now."""

    def until(self, condition: Callable[[], bool], limit: float = LIMIT) -> None:
        """Let time pass until the condition holds; AssertionError after ``limit`` seconds."""
        for _ in self._moments(limit):
            if condition():
                return
        raise AssertionError(f"not within {limit:g} s; jobs: {self.gateway.jobs()}")

    def soon(self, condition: Callable[[], bool], seconds: float) -> None:
        """As ``until``: within these ``seconds`` where a busy machine cannot make them longer."""
        self.until(condition, seconds)

    def stays(self, condition: Callable[[], bool], seconds: float = 2.5) -> bool:
        """Whether the condition holds all the time, longer than Slurm's background tick takes."""
        return all(condition() for _ in self._moments(seconds))

    def job(self, job_id: int) -> Job:
        found = (self.listed(job_id) if self.looks_at_all else None) or self.gateway.find(job_id)
        assert found is not None, f"job {job_id} is not known"
        return found

    def listed(self, job_id: int) -> Job | None:
        return next((job for job in self.gateway.jobs() if job.id == job_id), None)

    def tasks(self, array_id: int) -> dict[int, Job]:
        """The live jobs of an array by task."""
        return {task: job for job in self.gateway.jobs() if job.array_id == array_id for task in job.task_ids}

    def node(self, name: str) -> Node:
        (found,) = self.gateway.nodes([name])
        return found

    def is_in(self, job_id: int, *states: JobState) -> bool:
        return self.job(job_id).state in states

    def running(self, what: Submission) -> int:
        """A job that runs."""
        job_id = self.submit(what)
        self.until(lambda: self.is_in(job_id, JobState.RUNNING))
        return job_id

    def waits(self, job_id: int) -> bool:
        return self.is_in(job_id, JobState.PENDING)

    def runs(self, job_id: int) -> bool:
        return self.is_in(job_id, JobState.RUNNING)


class FakeWorld(World):
    """Time passes by looking, a fifth of a second each."""

    def __init__(self) -> None:
        self._now = 1_000_000.0
        nodes = [
            Node(name, 4, 8000 * MB, gres=(("gpu", 2), ("ve", 2)), features=frozenset(FAST.get(name, "").split()))
            for name in NODES
        ]
        partitions = [Partition("main", frozenset(NODES)), Partition("small", frozenset(NODES[2:]))]
        self._slurm = FakeSlurm(lambda: self._now, nodes, partitions, licenses=LICENSES)
        self.gateway = FakeGateway(self._slurm)

    def through_pyslurm(self, process: PySlurmProcess, server: StandInServer) -> None:
        """From now on by the PySlurm adapter, whose ``process`` has the stand-in of ``server``."""
        fake = FakeGateway(self._slurm)
        server.gateway = fake
        commands = cast(CommandGateway, FakeCommands(fake))
        self.gateway = PySlurmGateway(process, commands, clock=lambda: self._now)
        self.looks_at_all = True

    def submit(self, what: Submission) -> int:
        return self._slurm.submit(what)

    def cancel(self, job_id: int) -> None:
        self._slurm.cancel(job_id)

    def cancel_part(self, job_id: int, at: int) -> None:
        self._slurm.catch_up()
        self._slurm.end_part(self._slurm.records[job_id], at)

    def user_hold(self, job_id: int) -> bool:
        return self._slurm.user_hold(job_id)

    def user_release(self, job_id: int) -> bool:
        return self._slurm.user_release(job_id)

    def requeue_hold(self, job_id: int) -> None:
        self._slurm.requeue_hold(job_id)

    def admin_hold(self, job_id: int) -> None:
        self._slurm.admin_hold(job_id)

    def admin_release(self, job_id: int) -> None:
        self._slurm.admin_release(job_id)

    def drain(self, node: str) -> None:
        self._slurm.drain(node)

    def undrain(self, node: str) -> None:
        self._slurm.node_up(node)

    def update_partition(self, name: str, option: str, value: str) -> None:
        match option:
            case "State":
                self._slurm.update_partition(name, up=value in ("UP", "DRAIN"), state=value)
            case "MaxTime":
                self._slurm.update_partition(name, max_time=inf if value == "UNLIMITED" else 60.0 * float(value))
            case "PriorityTier":
                self._slurm.update_partition(name, priority_tier=int(value))

    def reserve(self, name: str, node: str, is_now: bool) -> None:
        start = self._now if is_now else self._now + 86400
        made = SiteReservation(name, start, start + 600, frozenset([node]), frozenset(["root"]))
        self._set_reservations([*self._reservations, made])

    def end_reservation(self, name: str) -> None:
        self._set_reservations([one for one in self._reservations if one.name != name])

    @property
    def _reservations(self) -> tuple[SiteReservation, ...]:
        return self._slurm.site_limits().reservations or ()

    def _set_reservations(self, reservations: list[SiteReservation]) -> None:
        self._slurm.set_limits(replace(self._slurm.site_limits(), reservations=tuple(reservations)))

    def now(self) -> float:
        return self._now

    def _moments(self, limit: float) -> Iterator[None]:
        for step in count():
            if step * 0.2 > limit:
                return
            yield
            self._now += 0.2


class RealWorld(World):
    """Time passes by itself."""

    def __init__(self, slurm: LocalSlurm) -> None:
        self._slurm = slurm
        self._drained: set[str] = set()
        self._reserved: set[str] = set()
        self._changed: dict[tuple[str, str], str] = {}
        self.gateway = slurm.gateway()

    def through_pyslurm(self, process: PySlurmProcess) -> None:
        """From now on by the PySlurm adapter."""
        self.gateway = PySlurmGateway(process, self._slurm.gateway())
        self.looks_at_all = True

    def submit(self, what: Submission) -> int:
        return self._slurm.submit(_script(what), *_arguments(what), uid=OWNER)

    def running(self, what: Submission) -> int:
        """Slurm says so before the node has started anything; what becomes of a job that is stopped or ended in between
        is a race inside Slurm, which nobody here asks about."""
        job_id = super().running(what)
        least = 2 if what.ignores_term else 1  # its shell begins the second one when it has set its trap
        self.until(lambda: not self.runs(job_id) or self._processes(job_id) >= least)
        return job_id

    def _processes(self, job_id: int) -> int:
        node = self.job(job_id).on_nodes[0]
        printed = self._slurm.command("scontrol", "listpids", str(job_id), node, check=False).stdout
        return len(printed.splitlines()[1:])

    def cancel(self, job_id: int) -> None:
        self._slurm.command("scancel", str(job_id))

    def cancel_part(self, job_id: int, at: int) -> None:
        self._slurm.command("scancel", str(job_id + at))

    def user_hold(self, job_id: int) -> bool:
        return self._as_owner("hold", job_id)

    def user_release(self, job_id: int) -> bool:
        return self._as_owner("release", job_id)

    def requeue_hold(self, job_id: int) -> None:
        self._slurm.command("scontrol", "requeuehold", "incomplete", str(job_id))

    def admin_hold(self, job_id: int) -> None:
        self._slurm.command("scontrol", "hold", str(job_id))

    def admin_release(self, job_id: int) -> None:
        self._slurm.command("scontrol", "release", str(job_id))

    def drain(self, node: str) -> None:
        self._drained.add(node)
        self._slurm.command("scontrol", "update", f"nodename={node}", "state=drain", "reason=contract")

    def undrain(self, node: str) -> None:
        self._drained.discard(node)
        self._slurm.command("scontrol", "update", f"nodename={node}", "state=resume")

    def update_partition(self, name: str, option: str, value: str) -> None:
        self._changed[name, option] = _PARTITION_DEFAULTS[option]
        self._slurm.command("scontrol", "update", f"partitionname={name}", f"{option}={value}")

    def reserve(self, name: str, node: str, is_now: bool) -> None:
        start = "now" if is_now else "now+1day"
        self._reserved.add(name)
        words = (f"reservationname={name}", f"nodes={node}", "users=root", f"starttime={start}", "duration=10")
        self._slurm.command("scontrol", "create", *words)

    def end_reservation(self, name: str) -> None:
        self._reserved.discard(name)
        self._slurm.command("scontrol", "delete", f"reservationname={name}")

    def clear(self) -> None:
        """Make the cluster empty again for the next test."""
        for node in sorted(self._drained):
            self.undrain(node)
        for name in sorted(self._reserved):
            self.end_reservation(name)
        for (name, option), value in self._changed.items():
            self._slurm.command("scontrol", "update", f"partitionname={name}", f"{option}={value}")
        self.until(self._nothing_left)
        self.until(lambda: all(node.up and not node.cpus_taken for node in self.gateway.nodes()))

    def _nothing_left(self) -> bool:
        # By their ids: scancel of 26.05 takes "nobody" for no user.
        listed = [str(job.id) for job in self.gateway.jobs()]
        if listed:
            self._slurm.command("scancel", *listed, check=False)
            self._slurm.command("scancel", "--signal=KILL", "--full", *listed, check=False)
        return not listed

    def _as_owner(self, order: str, job_id: int) -> bool:
        printed = self._slurm.command("scontrol", order, str(job_id), uid=OWNER, check=False)
        return printed.code == 0

    def soon(self, condition: Callable[[], bool], seconds: float) -> None:
        self.until(condition)

    def now(self) -> float:
        return time.monotonic()

    def _moments(self, limit: float) -> Iterator[None]:
        started = time.monotonic()
        while time.monotonic() - started <= limit:
            yield
            time.sleep(0.1)


def _script(what: Submission) -> str:
    seconds = 3600 if what.run_time == inf else what.run_time
    if what.launched is not None:
        return _launched_script(what, what.launched)
    if what.ignores_term:
        return f"trap '' TERM; end=$(($(date +%s) + {seconds:g})); while [ $(date +%s) -lt $end ]; do sleep 0.2; done"
    return f"sleep {seconds:g}"


def _launched_script(what: Submission, launched: OmfsRunBehavior) -> str:
    """A stand-in for omfs-run: its words and its exit code."""
    method, seconds = f"method={launched.method}", f"{launched.seconds:g}"
    answers = {
        OnUsr1.CHECKPOINT: f"say stopping:{method}; sleep {seconds}; say stopped:{method}:bytes=1:seconds=1; exit 101",
        OnUsr1.FAIL: f"say stopping:{method}; sleep {seconds}; say failed:{method}:why={launched.why}",
        OnUsr1.IGNORE: "",
    }
    trap = f"trap '{answers[launched.on_usr1]}' USR1" if launched.on_usr1 in answers else ""
    return f"""#!/bin/bash
say() {{ scontrol update jobid=$SLURM_JOB_ID comment="{what.comment} omfs:run=${{SLURM_RESTART_COUNT:-0}}:$1"; }}
{trap}
say ready:{method}
while true; do sleep 0.1; done
"""


def _array(what: Submission) -> str:
    tasks = ",".join(map(str, what.array))
    return f"{tasks}%{what.array_throttle}" if what.array_throttle else tasks


def _arguments(what: Submission) -> list[str]:
    parts = (_arguments_of(replace(what, request=part)) for part in what.parts)
    return [*_arguments_of(what), *(argument for part in parts for argument in (":", *part))]


def _arguments_of(what: Submission) -> list[str]:
    request = what.request
    nodes = f"{request.nodes}-{request.max_nodes}" if request.max_nodes else str(request.nodes)
    chosen = {
        f"--ntasks={request.cpus}": not what.open_tasks,
        f"--nodes={nodes}": request.nodes > 1 or request.max_nodes > 0,
        f"--mincpus={request.min_cpus_per_node}": request.min_cpus_per_node > 1,
        f"--mem-per-cpu={request.memory_per_cpu // MB}M": request.memory_per_cpu > 0,
        f"--mem={request.memory_per_node // MB}M": request.memory_per_node > 0,
        f"--gres={','.join(f'{name}:{number}' for name, number in request.gres)}": bool(request.gres),
        f"--constraint={request.features}": bool(request.features),
        "--exclusive": request.exclusive,
        f"--partition={','.join(request.partitions)}": bool(request.partitions),
        f"--nodelist={','.join(sorted(request.required_nodes))}": bool(request.required_nodes),
        f"--exclude={','.join(sorted(request.excluded_nodes))}": bool(request.excluded_nodes),
        f"--time={ceil(what.time_limit / 60) if what.time_limit < inf else 0}": what.time_limit < inf,
        f"--deadline=now+{what.deadline:g}seconds": what.deadline < inf,
        f"--comment={what.comment}": bool(what.comment),
        f"--job-name={what.name}": bool(what.name),
        "--hold": what.hold is Hold.USER,
        f"--nice={what.nice}": what.nice != 0,
        f"--dependency=afterany:{':'.join(map(str, what.after))}": bool(what.after),
        f"--array={_array(what)}": bool(what.array),
        f"--licenses={','.join(f'{name}:{number}' for name, number in what.licenses)}": bool(what.licenses),
        "--requeue" if what.requeue else "--no-requeue": True,
        "--output=/dev/null": True,
    }
    return [argument for argument, wanted in chosen.items() if wanted]
