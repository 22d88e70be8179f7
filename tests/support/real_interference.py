"""The scenes of ``tests/support/interference.py`` on one private real Slurm, many at once: each has two nodes,
accounts, and partitions of its own, and omfsd is one process for all.

People act while omfsd is stopped (SIGSTOP), so that what Slurm makes of an act can be compared with the fake.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from omfs_daemon.cluster.holds import admin_comment_of, is_held
from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.daemon.effects_runner import AGAIN_AFTER
from omfs_daemon.daemon.store.journal import replay
from omfs_daemon.preemption.state import State
from omfs_daemon.testing.fake_slurm.people import Actor
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, SubmitGate
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from omfs_daemon.testing.local_slurm.slurmdbd import Accounting
from tests.support.daemons import OMFSD, Daemon
from tests.support.interference import Scene, refs_of_victims, wrongs
from tests.support.marked_jobs import DAEMON, MAX_AGE, OPERATOR, PLUGIN, MarkedCluster, uid_of
from tests.support.waiting import LIMIT, wait_until

OWNERS = {"bio": "nobody", "physics": "games", "alarm": "man"}
PARTITIONS = ("main", "urgent", "night")
Step = Callable[[], bool] | None
"""What is waited for; None: for the others, and for omfsd to be stopped or to continue."""

CONFIG = """
[slurm]
conf = "{conf}"
poll_seconds = 0.3
calls_per_second = 1000
[daemon]
user = "{user}"
state_dir = "{directory}/state"
run_dir = "{directory}/run"
[policy]
quantum_seconds = 0
preempt_timeout_seconds = {limit}
start_timeout_seconds = {limit}
[metrics]
enabled = false
{entitlements}
[[class]]
name = "urgent"
partition = [{urgent}]
urgent = true
[[class]]
name = "regular"
methods = ["requeue", "suspend", "dmtcp"]
"""

STAYS = "until [ -e {output}/ends-$SLURM_JOB_ID ]; do sleep 1; done"
LAUNCHED = """#!/bin/bash
say() {{
    run="omfs:run=${{SLURM_RESTART_COUNT:-0}}:$1:method=dmtcp$2"
    scontrol update jobid=$SLURM_JOB_ID comment="omfs:method=dmtcp $run"
}}
checkpoint() {{
    say stopping
    until [ -e {output}/written-$SLURM_JOB_ID ]; do sleep 0.2; done
    say stopped :bytes=1:seconds=1
    exit 101
}}
trap checkpoint USR1
say ready
until [ -e {output}/ends-$SLURM_JOB_ID ]; do sleep 1 & wait $!; done
"""
"""A stand-in for omfs-run."""

LOSES = """#!/bin/sh
# A requeue that never reaches slurmctld.
if [ "$1" = requeue ]; then
    for job in $(echo "$3" | tr , ' '); do
        [ ! -e {output}/loses-$job ] || exit 0
    done
fi
exec {scontrol} "$@"
"""


class SharedCluster:
    """All scenes' cluster, omfsd, and what was seen last: jobs by id, and the state in the journal."""

    def __init__(self, on: MarkedCluster, daemon: Daemon, sites: int) -> None:
        self.on, self.slurm, self.daemon = on, on.slurm, daemon
        self.gateway = self.slurm.gateway()
        self.jobs: dict[int, Job] = {}
        self.state = State()
        self.sites = [RealSite(self, number) for number in range(1, sites + 1)]

    def look(self) -> None:
        self.jobs = {job.id: job for job in self.gateway.jobs()}
        self.state = replay(self.daemon.directory / "state" / "journal").state

    def advance(self, steps: Sequence[Iterator[Step]], what: str) -> None:
        """Let every step go on until it waits for the others, or is over."""
        waiting: dict[int, Callable[[], bool]] = {}
        left = set(range(len(steps)))

        def all_wait() -> bool:
            self.look()
            for number in sorted(left):
                if number in waiting and not waiting[number]():
                    continue
                condition = next(steps[number], None)
                if condition is None:
                    left.discard(number)
                else:
                    waiting[number] = condition
            return not left

        try:
            wait_until(all_wait, what)
        except AssertionError as error:
            where = {number: self.sites[number].observation() for number in sorted(left)}
            raise AssertionError(f"{error}: {where}; log: {self.daemon.tail()}") from None

    def stop_daemon(self) -> None:
        """It decides nothing from now on, and its last order has been carried out."""
        process = self._process()
        process.suspend()
        wait_until(lambda: not _orders_of(process), "omfsd's last order")

    def continue_daemon(self) -> None:
        self._process().resume()

    def wait_two_observations(self) -> None:
        """At which any order could be repeated."""
        seen = time.time() + AGAIN_AFTER
        for _ in range(3):
            seen = wait_until(partial(self._polled_after, seen), "omfsd to look at Slurm")

    def _polled_after(self, moment: float) -> float:
        """When omfsd has last seen Slurm; 0 if that was not after the moment."""
        polled = float(self.daemon.ask("status", check=False).get("last_poll") or 0)
        return polled if polled > moment else 0.0

    def _process(self) -> psutil.Process:
        assert self.daemon.process is not None
        return psutil.Process(self.daemon.process.pid)

    def outcomes(self) -> dict[int, str]:
        """Slurm's words by job."""
        shown = self.slurm.command("scontrol", "-o", "show", "jobs").stdout
        return {int(job): state for job, state in re.findall(r"(?m)^JobId=(\d+) .*? JobState=(\w+)", shown)}


def _orders_of(process: psutil.Process) -> list[psutil.Process]:
    """Commands that it has begun; the process that keeps root stays."""
    return [child for child in process.children() if child.name().startswith("s") and child.status() != "zombie"]


class RealSite:
    """One scene's part of the cluster, in the words of the fake's site: nodes n1 and n2, accounts bio and physics."""

    def __init__(self, cluster: SharedCluster, number: int) -> None:
        self.cluster, self.number = cluster, number
        self.submitted: list[int] = []
        self.gateway = self
        self.journal = self

    @property
    def state(self) -> State:
        return self.cluster.state

    @property
    def now(self) -> float:
        return time.time()

    def real_node(self, name: str) -> str:
        return f"n{2 * self.number - 2 + int(name[1:])}"

    def jobs(self) -> list[Job]:
        return [self._in_words(self.cluster.jobs[job]) for job in self.submitted if job in self.cluster.jobs]

    def job(self, job_id: int) -> Job:
        found = self.cluster.jobs.get(job_id) or self.cluster.gateway.find(job_id)
        assert found is not None, f"job {job_id} is lost"
        return self._in_words(found)

    def _in_words(self, job: Job) -> Job:
        words = {self.real_node(name): name for name in ("n1", "n2")}
        request = replace(
            job.request,
            partitions=tuple(_without_number(name) for name in job.request.partitions),
            required_nodes=frozenset(words.get(name, name) for name in job.request.required_nodes),
        )
        return replace(
            job, account=_without_number(job.account), partition=_without_number(job.partition), request=request
        )

    def runs(self, *job_ids: int) -> bool:
        return all(job in self.cluster.jobs and self.cluster.jobs[job].state is JobState.RUNNING for job in job_ids)

    def is_over(self, kept: set[int]) -> bool:
        """No job is left but these, and no preemption."""
        ours = {str(job) for job in self.submitted}
        return {job.id for job in self.jobs()} <= kept and not any(
            ours.intersection(preemption.refs) for preemption in self.state.preemptions.values()
        )

    def outcomes(self) -> dict[int, str]:
        known = self.cluster.outcomes()
        return {job: known.get(job, "lost") for job in self.submitted}

    def observation(self) -> list[str]:
        return [f"{job.ref} {job.account} {job.state} {job.reason} {job.admin_comment}" for job in self.jobs()]

    # -- jobs ------------------------------------------------------------------------------------------
    def submit(
        self, account: str, method: str = "requeue", *, urgent: bool = False, nodes: int = 1, script: str = STAYS
    ) -> int:
        """Whole nodes; it stays until ``let_end``."""
        job = self.cluster.slurm.submit(
            script.format(output=self.cluster.slurm.output),
            *("-A", f"{account}{self.number}", "-p", f"{'urgent' if urgent else 'main'}{self.number}"),
            *(f"-N{nodes}", f"-n{4 * nodes}", "-o", "/dev/null"),
            *([f"--comment=omfs:method={method}"] if method else []),
            uid=OWNERS[account],
        )
        self.submitted.append(job)
        return job

    def flag(self, name: str, *job_ids: int) -> None:
        """``ends``: it may end; ``written``: its checkpoint; ``loses``: slurmctld never gets its requeue."""
        for job in job_ids:
            (self.cluster.slurm.output / f"{name}-{job}").touch()

    def unflag(self, name: str, *job_ids: int) -> None:
        for job in job_ids:
            (self.cluster.slurm.output / f"{name}-{job}").unlink(missing_ok=True)


def _without_number(name: str) -> str:
    return name.rstrip("0123456789")


class RealPeople:
    """As the fake's ``People``."""

    def __init__(self, site: RealSite) -> None:
        self._site = site

    def _scontrol(self, job_id: int, actor: Actor, *arguments: str) -> bool:
        return self._command(job_id, actor, "scontrol", *arguments)

    def _command(self, job_id: int, actor: Actor, *command: str) -> bool:
        users = {Actor.ROOT: None, Actor.OPERATOR: OPERATOR, Actor.OWNER: self._site.job(job_id).user}
        return self._site.cluster.slurm.command(*command, check=False, uid=users[actor]).code == 0

    def _update(self, job_id: int, actor: Actor, change: str) -> bool:
        return self._scontrol(job_id, actor, "update", f"jobid={job_id}", change)

    def hold(self, job_id: int, actor: Actor, by_user: bool = False) -> bool:
        return self._scontrol(job_id, actor, "uhold" if by_user else "hold", str(job_id))

    def release(self, job_id: int, actor: Actor) -> bool:
        return self._scontrol(job_id, actor, "release", str(job_id))

    def requeue(self, job_id: int, actor: Actor) -> bool:
        return self._scontrol(job_id, actor, "requeue", str(job_id))

    def requeue_hold(self, job_id: int, actor: Actor) -> bool:
        return self._scontrol(job_id, actor, "requeuehold", str(job_id))

    def suspend(self, job_id: int, actor: Actor) -> bool:
        return self._scontrol(job_id, actor, "suspend", str(job_id))

    def resume(self, job_id: int, actor: Actor) -> bool:
        return self._scontrol(job_id, actor, "resume", str(job_id))

    def cancel(self, job_id: int, actor: Actor) -> bool:
        return self._command(job_id, actor, "scancel", str(job_id))

    def top(self, job_id: int, actor: Actor) -> bool:
        return self._scontrol(job_id, actor, "top", str(job_id))

    def set_nice(self, job_id: int, actor: Actor, nice: int) -> bool:
        return self._update(job_id, actor, f"nice={nice}")

    def set_priority(self, job_id: int, actor: Actor, priority: int) -> bool:
        return self._update(job_id, actor, f"priority={priority}")

    def set_partition(self, job_id: int, actor: Actor, name: str) -> bool:
        return self._update(job_id, actor, f"partition={name}{self._site.number}")

    def set_qos(self, job_id: int, actor: Actor, qos: str) -> bool:
        return self._update(job_id, actor, f"qos={qos}")

    def set_account(self, job_id: int, actor: Actor, account: str) -> bool:
        return self._update(job_id, actor, f"account={account}{self._site.number}")

    def set_nodes(self, job_id: int, actor: Actor, *nodes: str) -> bool:
        return self._update(job_id, actor, f"nodelist={','.join(map(self._site.real_node, nodes))}")

    def set_licenses(self, job_id: int, actor: Actor, *licenses: tuple[str, int]) -> bool:
        return self._update(job_id, actor, f"licenses={','.join(f'{name}:{count}' for name, count in licenses)}")

    def set_begin(self, job_id: int, actor: Actor, begin: float) -> bool:
        return self._update(job_id, actor, f"starttime=now+{round(begin - self._site.now)}")

    def set_dependency(self, job_id: int, actor: Actor, after: int) -> bool:
        return self._update(job_id, actor, f"dependency=afterany:{after}")

    def set_time_limit(self, job_id: int, actor: Actor, seconds: float) -> bool:
        return self._update(job_id, actor, f"timelimit={round(seconds / 60)}")

    def set_comment(self, job_id: int, actor: Actor, comment: str) -> bool:
        return self._update(job_id, actor, f"comment={comment}")

    def set_admin_comment(self, job_id: int, actor: Actor, text: str) -> bool:
        return self._update(job_id, actor, f"admincomment={text}")


_REASONS = ("waits: ",)


@dataclass
class RealScene(Scene):
    """``writes``: jobs whose checkpoint is written once the daemon continues."""

    site: Any
    job: int = 0
    writes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.people: Any = RealPeople(self.site)

    @property
    def times_started(self) -> int:
        """Slurm counts a requeue when it is ordered."""
        job = self.site.job(self.job)
        return int(job.restarts) + (job.state not in (JobState.PENDING, JobState.COMPLETING))

    @property
    def state(self) -> JobState:
        return self.site.job(self.job).state  # type: ignore[no-any-return]

    @property
    def hold(self) -> Hold:
        return self.site.job(self.job).hold  # type: ignore[no-any-return]

    def wanted_holds(self, jobs: Sequence[Job]) -> set[str]:
        """Those for which ``omfs why`` gives a reason."""
        why = {job.ref: self.site.cluster.daemon.why(job.id)["now"] for job in jobs if is_held(job)}
        return refs_of_victims(self.site.state) | {ref for ref, text in why.items() if text.startswith(_REASONS)}

    def settle(self, found: list[str]) -> Iterator[Step]:
        """As ``settle`` of the fake's scenes; adds what is wrong to ``found``."""
        site, kept = self.site, set(self.held) | self.suspended
        site.flag("written", *site.submitted)
        site.flag("ends", *site.submitted)
        yield lambda: site.is_over(kept)
        found += wrongs(self)
        for job, actor in self.held.items():
            self.people.release(job, actor)
        for job in self.suspended:
            self.people.resume(job, Actor.ROOT)
        yield lambda: site.is_over(set())
        wanted = {job: "CANCELLED" if job in self.canceled else "COMPLETED" for job in site.submitted}
        found += [f"job {job}: {outcome}" for job, outcome in site.outcomes().items() if outcome != wanted[job]]


# -- states ----------------------------------------------------------------------------------------------------------
# Each: what runs before the daemon looks; what it does; and, while it is stopped, the rest.


def _two(scene: RealScene, account: str, method: str, script: str = STAYS) -> Iterator[Step]:
    site = scene.site
    first, second = (site.submit(account, method, script=script) for _ in range(2))
    yield lambda: site.runs(first, second) and (script is not LAUNCHED or _report(scene, "ready", first, second))
    yield None


def _report(scene: RealScene, state: str, *jobs: int) -> bool:
    return all(f":{state}:" in scene.site.job(job).comment for job in jobs)


def _word(scene: RealScene, job: int) -> MarkWord | None:
    return admin_comment_of(scene.site.job(job)).word


def _is_held_by_us(scene: RealScene, job: int) -> bool:
    return _word(scene, job) is MarkWord.HELD and is_held(scene.site.job(job))


def _any(scene: RealScene, condition: Callable[[int], bool]) -> Step:
    """Some job of the scene, which becomes its job, fulfills the condition."""

    def is_one() -> bool:
        found = [job for job in scene.site.submitted if job in scene.site.cluster.jobs and condition(job)]
        scene.job = found[0] if found else 0
        return bool(found)

    return is_one


def held_at_submit(scene: RealScene) -> Iterator[Step]:
    yield from _two(scene, "physics", "")
    yield None
    scene.job = scene.site.submit("physics", "")
    yield lambda: scene.job in scene.site.cluster.jobs and scene.hold is Hold.USER


def held_by_us(scene: RealScene) -> Iterator[Step]:
    yield from _two(scene, "physics", "")
    scene.job = scene.site.submit("physics", "")
    yield lambda: scene.job in scene.site.cluster.jobs and _is_held_by_us(scene, scene.job)


def _preempted(scene: RealScene, method: str, script: str, slow: str) -> Iterator[Step]:
    site = scene.site
    scene.job = site.submit("bio", method, script=script)
    second = site.submit("bio", method, script=slow)
    both = (scene.job, second)
    yield lambda: site.runs(*both) and (script is not LAUNCHED or _report(scene, "ready", *both))
    yield None
    site.submit("bio", nodes=2)  # a smaller one would be started on the node that is free first
    urgent = site.submit("alarm", "", urgent=True, nodes=2)
    yield lambda: urgent in site.cluster.jobs and bool(site.job(urgent).request.required_nodes)


def preempted_by_requeue(scene: RealScene) -> Iterator[Step]:
    yield from _preempted(scene, "requeue", STAYS, SLOW)
    yield lambda: scene.state is JobState.PENDING and scene.hold is Hold.ADMIN


def exited(scene: RealScene) -> Iterator[Step]:
    yield from _preempted(scene, "dmtcp", LAUNCHED, LAUNCHED)
    yield lambda: _word(scene, scene.job) is MarkWord.STOPPING and _report(scene, "stopping", scene.job)
    yield None
    scene.site.flag("written", scene.job)
    yield lambda: scene.state is JobState.PENDING and scene.hold is Hold.USER


def exited_and_held(scene: RealScene) -> Iterator[Step]:
    yield from _preempted(scene, "dmtcp", LAUNCHED, LAUNCHED)
    scene.site.flag("written", scene.job)
    yield lambda: scene.state is JobState.PENDING and scene.hold is Hold.ADMIN


def about_to_be_requeued(scene: RealScene) -> Iterator[Step]:
    site = scene.site
    yield from _two(scene, "bio", "requeue")
    site.flag("loses", *site.submitted)
    site.submit("physics", "")
    yield _any(scene, lambda job: site.runs(job) and is_held(site.job(job)))


def checkpointing(scene: RealScene) -> Iterator[Step]:
    yield from _two(scene, "bio", "dmtcp", LAUNCHED)
    scene.site.submit("physics", "")
    yield _any(scene, lambda job: _word(scene, job) is MarkWord.STOPPING and _report(scene, "stopping", job))
    scene.writes = [scene.job]


def suspended_by_us(scene: RealScene) -> Iterator[Step]:
    site = scene.site
    yield from _two(scene, "bio", "suspend")
    physics = site.submit("physics", "")
    yield lambda: site.runs(physics) and not refs_of_victims(site.state).intersection(map(str, site.submitted))
    yield _any(scene, lambda job: site.job(job).state is JobState.SUSPENDED)


def pinned(scene: RealScene) -> Iterator[Step]:
    yield from _preempted(scene, "requeue", STAYS, SLOW)
    first = scene.job
    yield lambda: scene.site.job(first).state is JobState.PENDING
    scene.job = scene.site.submitted[-1]


def entitled_and_pinned(scene: RealScene) -> Iterator[Step]:
    yield from _two(scene, "bio", "requeue", SLOW)
    scene.job = scene.site.submit("physics", "")
    yield lambda: scene.job in scene.site.cluster.jobs and bool(scene.site.job(scene.job).request.required_nodes)


def running(scene: RealScene) -> Iterator[Step]:
    site = scene.site
    scene.job = site.submit("bio")
    site.submit("physics")
    yield lambda: site.runs(*site.submitted)
    yield None


SLOW = "trap '' TERM; " + STAYS
REAL_STATES: dict[str, Callable[[RealScene], Iterator[Step]]] = {
    made.__name__: made
    for made in (
        held_at_submit,
        held_by_us,
        about_to_be_requeued,
        preempted_by_requeue,
        checkpointing,
        exited,
        exited_and_held,
        suspended_by_us,
        pinned,
        entitled_and_pinned,
        running,
    )
}


# -- the cluster -----------------------------------------------------------------------------------------------------


@contextmanager
def shared_cluster(sites: int) -> Iterator[SharedCluster]:
    """A cluster for so many scenes; omfsd has a user of its own, and is stopped."""
    directory, numbers = Path(tempfile.mkdtemp(prefix="omfs-acts-")), range(1, sites + 1)
    directory.chmod(0o755)
    urgent = ",".join(f"urgent{number}" for number in numbers)
    settings = {
        "heartbeat": str(directory / "heartbeat"),
        "wake": str(directory / "wake"),
        "max_age": MAX_AGE,
        "daemon_uid": uid_of(DAEMON),
        "operator_uids": uid_of(OPERATOR),
        "class_1": f"partition={urgent};urgent=yes",
        "class_2": "methods=requeue,suspend,dmtcp",
    }
    shape = Shape(
        nodes=2 * sites + 1,  # with the last one, what is a little less than half of two nodes is one node
        partitions=[
            f"PartitionName={name}{number} Nodes=n[{2 * number - 1}-{2 * number}] State=UP"
            for number in numbers
            for name in PARTITIONS
        ],
        options={"SlurmUser": DAEMON, "KillWait": "120", "Licenses": "fluent:1000"},
    )
    accounting = Accounting(
        accounts=[f"{account}{number}" for number in numbers for account in OWNERS],
        users=[*OWNERS.values()],
        operators=[OPERATOR],
        qos=["low"],
    )
    gate = SubmitGate(PLUGIN, settings)
    try:
        with LocalSlurm(directory, shape, gate=gate, accounting=accounting, limit=LIMIT) as slurm:
            cluster = SharedCluster(MarkedCluster(slurm), _daemon(slurm, sites), sites)
            try:
                cluster.daemon.start(_with_losses(slurm))
                cluster.stop_daemon()
                yield cluster
            finally:
                cluster.daemon.kill()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _daemon(slurm: LocalSlurm, sites: int) -> Daemon:
    directory = slurm.directory / "omfsd"
    directory.mkdir()
    daemon = Daemon(slurm, directory)
    percent = f"{49.9 / sites:.6f}"
    accounts = [f"{account}{number}" for number in range(1, sites + 1) for account in ("bio", "physics")]
    daemon.config.write_text(
        CONFIG.format(
            conf=slurm.conf,
            user=daemon.program.user,
            directory=directory,
            limit=LIMIT,
            entitlements="\n".join(f"[entitlements.{account}]\npercent = {percent}" for account in accounts),
            urgent=", ".join(f'"urgent{number}"' for number in range(1, sites + 1)),
        )
    )
    return daemon


def _with_losses(slurm: LocalSlurm) -> str:
    """Code of an omfsd whose requeues of flagged jobs are lost."""
    programs = slurm.directory / "programs"
    programs.mkdir()
    scontrol = programs / "scontrol"
    scontrol.write_text(LOSES.format(output=slurm.output, scontrol=shutil.which("scontrol")))
    scontrol.chmod(0o755)
    return f"import os; os.environ['PATH'] = '{programs}:' + os.environ['PATH']; {OMFSD}"
