"""Root, an Operator, owners, crashes, and drained nodes on a private real Slurm, at random; and a judge who knows what
people did.

Not judged, because nobody can tell: a hold on a suspended job, which Slurm forgets when that is resumed.
"""

from __future__ import annotations

import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from omfs_daemon.cluster.holds import is_held, is_held_by_us
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.daemon.effects_runner import AGAIN_AFTER
from omfs_daemon.daemon.store.journal import replay
from omfs_daemon.errors import GatewayError
from tests.support.daemons import Daemon, with_clock_of
from tests.support.interference import refs_of_victims
from tests.support.marked_jobs import OPERATOR, MarkedCluster
from tests.support.waiting import wait_until

OWNERS = {"bio": "nobody", "physics": "games", "alarm": "man"}
ROOT = "root"
NODES = ("n1", "n2", "n3", "n4")
MOST = 14
"""Jobs at a time, on four nodes of four CPUs."""

CHECK_EVERY = 10.0
ENDS = "i=0; until [ -e {output}/all-end ] || [ $i -ge {seconds} ]; do i=$((i+1)); sleep 1 & wait $!; done"
LAUNCHED = """#!/bin/bash
say() {
    run="omfs:run=${SLURM_RESTART_COUNT:-0}:$1:method=dmtcp$2"
    scontrol update jobid=$SLURM_JOB_ID comment="omfs:method=dmtcp $run"
}
checkpoint() { say stopping; sleep 0.3; say stopped :bytes=1:seconds=1; exit 101; }
trap checkpoint USR1
say ready
"""
"""A stand-in for omfs-run."""


class Stress:
    """``faults``: what must not have happened. ``counts``: of each act, taken and refused."""

    def __init__(self, on: MarkedCluster, daemon: Daemon, seed: int) -> None:
        self.on, self.slurm, self.daemon = on, on.slurm, daemon
        self.gateway = self.slurm.gateway()
        self.random = random.Random(seed)
        self.submitted: list[int] = []
        self.canceled: set[int] = set()
        self.held_by_root: set[int] = set()  # for certain
        self.touched: set[int] = set()  # held, requeued, or suspended by people: a hold or a suspension may be theirs
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.acts: list[tuple[int, str]] = []
        self.clock = daemon.directory / "clock"
        self.clock.write_text("0")

    # -- the trial ---------------------------------------------------------------------------------
    def run(self, seconds: float, crashes: Sequence[Crash]) -> None:
        """``crashes``: at even distances over the time; the last one has its share of it, too."""
        begin, check_at, left = time.monotonic(), time.monotonic() + CHECK_EVERY, list(crashes)
        while time.monotonic() < begin + seconds and not self.faults:
            self.on.beat()
            jobs = self._jobs()
            crash_at = begin + seconds * (len(crashes) - len(left) + 1) / (len(crashes) + 1)
            if len(jobs) < MOST:
                self._submit()
            elif left and time.monotonic() > crash_at:
                self._crash(left.pop(0))
            elif self.random.random() < 0.5:
                self._act(self.random.choice(jobs))
            if time.monotonic() > check_at:
                self._check()
                check_at = time.monotonic() + CHECK_EVERY

    def settle(self) -> None:
        """All jobs may end; what people keep waiting does so when they take that back."""
        (self.slurm.output / "all-end").touch()
        self._wait(lambda: all(job.id in self.touched for job in self._jobs()), "all to end but what people hold")
        self._check()
        self._wait(self._nothing_left, "all to end")
        outcomes = self._outcomes()
        for job in self.submitted:
            wanted = ("COMPLETED", "CANCELLED") if job in self.canceled else ("COMPLETED",)
            if outcomes.get(job) not in wanted:
                self.faults.append(f"job {job}: {outcomes.get(job, 'lost')}\n{self._story_of(job)}")

    # -- what happens ------------------------------------------------------------------------------
    def _submit(self) -> None:
        account = self.random.choices(list(OWNERS), [5, 3, 2])[0]
        urgent = account == "alarm"
        method = "" if urgent else self.random.choice(("requeue", "requeue", "suspend", "dmtcp", ""))
        script = ENDS.format(output=self.slurm.output, seconds=self.random.randint(2, 15))
        if method == "dmtcp":
            script = LAUNCHED + script
        nodes = 1 if method == "dmtcp" else self.random.choice((1, 1, 1, 2))  # the gate refuses it for more
        job = self.slurm.submit(
            script if script.startswith("#!") else f"#!/bin/sh\n{script}",
            *("-A", account, "-p", "urgent" if urgent else "main", f"-N{nodes}", f"-n{nodes * self._cpus()}"),
            *("-o", "/dev/null", f"--comment=omfs:method={method}" if method else "--comment=none"),
            uid=OWNERS[account],
        )
        self.submitted.append(job)
        self._note("submit", job, f"{account} {method} {nodes}", True)

    def _cpus(self) -> int:
        return self.random.choice((1, 2, 4))

    def _act(self, job: Job) -> None:
        user = self.random.choice((ROOT, OPERATOR, OWNERS.get(job.account, ROOT)))
        what = self.random.choices(list(COMMANDS), OFTEN)[0]
        command = [part.format(job=job.id) for part in COMMANDS[what]]
        is_taken = self.slurm.command(*command, check=False, uid=user).code == 0
        self._note(f"{user} {what}", job.id, str(job.state), is_taken)
        if what in KEEPS_WAITING:
            self.touched.add(job.id)  # even if it was refused: a killed slurmctld may have lost its answer
        if is_taken and what == "cancel":
            self.canceled.add(job.id)
        if is_taken and what in (*KEEPS_WAITING, "release"):
            self.held_by_root.discard(job.id)
        if is_taken and what == "hold" and user == ROOT and job.state is JobState.PENDING:
            self.held_by_root.add(job.id)

    def _crash(self, crash: Crash) -> None:
        crash(self)
        self._note(crash.__name__, 0, "", True)

    def _note(self, what: str, job: int, about: str, is_taken: bool) -> None:
        self.counts[what + ("" if is_taken else " refused")] += 1
        self.acts.append((job, f"{time.time():.1f} {what} {job or ''} {about}{'' if is_taken else ': refused'}"))

    def _last_acts(self) -> list[str]:
        return [text for _, text in self.acts[-LAST_ACTS:]]

    def _story_of(self, job: int) -> str:
        """What was done to it, and to the daemons meanwhile; what omfsd and Slurm say of it."""
        acts = [text for about, text in self.acts if about in (0, job)]
        shown = self.slurm.command("scontrol", "-o", "show", "job", str(job), check=False).stdout
        return "\n".join([*acts, self.daemon.why_text(job), shown])

    # -- the judge ---------------------------------------------------------------------------------
    def _check(self) -> None:
        """After two observations of omfsd's nobody holds, pins, or suspends without a reason."""
        since = time.monotonic()
        self._wait(lambda: time.monotonic() > since + AGAIN_AFTER, "omfsd to try again what failed")
        for _ in range(3):
            seen = (0.0, self._last_poll())  # by its own clock, which may have been set
            self._wait(lambda seen=seen: self._last_poll() not in seen, "omfsd to look at Slurm")  # type: ignore[misc]
        wrong: list[str] = []

        def is_right() -> bool:
            wrong[:] = list(self._wrongs())
            return not wrong

        try:
            wait_until(is_right, "all to be as somebody wants it", SETTLES)
        except AssertionError:
            self.faults += ["\n".join([*wrong, *self._last_acts()])]
        self.touched -= {job.id for job in self._jobs() if is_free(job)}

    def _wrongs(self) -> Iterator[str]:
        jobs = self._jobs()
        state = replay(self.daemon.directory / "state" / "journal").state
        victims = refs_of_victims(state)
        for job in jobs:
            about = f"job {job.id} [{job.state} {job.hold} {job.reason} {job.admin_comment}]"
            if job.id in self.held_by_root and job.state is JobState.PENDING and not is_held(job):
                yield f"{about}: root's hold is over"
            if job.id in self.touched or job.reason in SLURMS_OWN:
                continue
            if is_held(job) and not is_held_by_us(job):
                yield f"{about}: nobody knows its hold"
            if job.state is JobState.SUSPENDED and job.ref not in victims and job.ref not in state.preempted:
                yield f"{about}: nobody knows its suspension"
            if job.state is JobState.PENDING and job.request.required_nodes and job.ref not in state.owned:
                yield f"{about}: nobody wants its nodes"
        yield from self._shared_cpus()

    def _shared_cpus(self) -> Iterator[str]:
        shown = self.slurm.command("scontrol", "-d", "show", "jobs", check=False).stdout
        owners: dict[tuple[str, int], str] = {}
        for text in shown.split("\n\n"):
            if "JobState=RUNNING" not in text:
                continue
            job = text.partition("JobId=")[2].split()[0]
            for nodes, cpus in re.findall(r"(?m)^\s+Nodes=(\S+) CPU_IDs=(\S+)", text):
                for cpu in _numbers(cpus):
                    for node in _names(nodes):
                        other = owners.setdefault((node, cpu), job)
                        if other != job:
                            yield f"jobs {other} and {job} have CPU {cpu} of {node}"

    def _nothing_left(self) -> bool:
        """People take back what they did, as root, who may."""
        left = [job for job in self._jobs() if job.id in self.touched]
        for job in left:
            what = "resume" if job.state is JobState.SUSPENDED else "release"
            if is_held(job) or job.state is JobState.SUSPENDED:
                self.slurm.command("scontrol", what, str(job.id), check=False)
        return not self._jobs()

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_until(lambda: self._tend() and condition(), what)
        except AssertionError as error:
            seen = [f"{job.id} {job.state} {job.hold} {job.reason} {job.admin_comment}" for job in self._jobs()]
            raise AssertionError("\n".join([str(error), *seen, *self._last_acts(), self.daemon.tail()])) from None

    def _tend(self) -> bool:
        """What Slurm breaks of its own when it is killed: it drains nodes, holds jobs that it had just started,
        forgets that a job has ended by itself, which it then shows as running for ever, and waits for a job's index
        from a slurmdbd that was killed, too, without which nobody can change the job. And omfsd's clock."""
        self.on.beat()
        self.clock.write_text("0")
        self.slurm.command("scontrol", "update", "nodename=n[1-4]", "state=resume", check=False)
        log = self.daemon.log.read_text(errors="replace")
        for job in self._jobs():
            if job.reason in SLURMS_OWN:
                self.slurm.command("scontrol", "release", str(job.id), check=False)
            elif self._is_end_forgotten(job):
                self._cancel(job, "end_forgotten")
            elif self._is_index_lost(job, log):
                self._cancel(job, "index_lost")
        return True

    def _cancel(self, job: Job, why: str) -> None:
        """What only this helps; it is in the figures."""
        if job.id not in self.canceled:
            self._note(why, job.id, str(job.state), True)
        self.canceled.add(job.id)
        self.slurm.command("scancel", str(job.id), check=False)

    def _is_end_forgotten(self, job: Job) -> bool:
        if job.state is not JobState.RUNNING or list((self.slurm.directory / "spool").glob(f"*/job{job.id:05}")):
            return False
        log = (self.slurm.directory / "log" / "slurmctld.log").read_text(errors="replace")
        return f"_job_complete: JobId={job.id} WEXITSTATUS 0" in log

    def _is_index_lost(self, job: Job, log: str) -> bool:
        """Whether slurmctld refuses all changes of it until slurmdbd has given it an index (ESLURM_JOB_SETTING_DB_INX):
        seen for ten minutes after both were killed within seconds, until the end of the trial."""
        if job.state is not JobState.PENDING:
            return False
        refusal = f'"job": "{job.id}", "error": "Job update not available right now'
        if log.count(refusal) < REFUSALS:
            return False
        said = self.slurm.command("scontrol", "update", f"jobid={job.id}", "nice=0", check=False)
        return "DB index" in said.stdout + said.stderr

    def _last_poll(self) -> float:
        return float(self.daemon.ask("status", check=False).get("last_poll") or 0)

    def _jobs(self) -> list[Job]:
        try:
            return list(self.gateway.jobs())
        except GatewayError:
            return []

    def _outcomes(self) -> dict[int, str]:
        shown = self.slurm.command("scontrol", "-o", "show", "jobs").stdout
        return {int(job): state for job, state in re.findall(r"(?m)^JobId=(\d+) .*? JobState=(\w+)", shown)}


LAST_ACTS = 40
"""How many acts a fault tells."""

REFUSALS = 3
"""So often omfsd was told that Slurm waits for a job's index: meanwhile slurmdbd has been started again."""

SETTLES = 30.0
"""Seconds in which two jobs may have the same CPUs after somebody has resumed one by hand."""

SLURMS_OWN = ("launch_failed_requeued_held", "launch failed requeued held")
COMMANDS = {
    "hold": ("scontrol", "hold", "{job}"),
    "uhold": ("scontrol", "uhold", "{job}"),
    "release": ("scontrol", "release", "{job}"),
    "requeue": ("scontrol", "requeue", "{job}"),
    "requeuehold": ("scontrol", "requeuehold", "{job}"),
    "suspend": ("scontrol", "suspend", "{job}"),
    "resume": ("scontrol", "resume", "{job}"),
    "cancel": ("scancel", "{job}"),
    "nice": ("scontrol", "update", "jobid={job}", "nice=10"),
    "nodes": ("scontrol", "update", "jobid={job}", "nodelist="),
    "text": ("scontrol", "update", "jobid={job}", "admincomment=statistics"),
}
OFTEN = (1, 1, 4, 2, 1, 1, 3, 1, 2, 2, 2)
"""How often people do each."""

KEEPS_WAITING = ("hold", "uhold", "requeue", "requeuehold", "suspend")


def is_free(job: Job) -> bool:
    """Whether it waits or runs, and nobody holds it."""
    return job.state in (JobState.PENDING, JobState.RUNNING) and not is_held(job)


def _numbers(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _names(text: str) -> Iterator[str]:
    """``n1``, ``n[1-2]``, or ``n[1,3]``."""
    inside = re.fullmatch(r"n\[(.*)\]", text)
    yield from (f"n{number}" for number in _numbers(inside[1])) if inside else [text]


# -- crashes -----------------------------------------------------------------------------------------

Crash = Callable[[Stress], None]


def kill_omfsd(stress: Stress) -> None:
    stress.daemon.kill()
    stress.daemon.start(with_clock_of(stress.clock), ready=False)


def kill_slurmctld(stress: Stress) -> None:
    """Once it has saved what people did: the orders of omfsd that it forgets are those that are given meanwhile."""
    saved, now = stress.slurm.directory / "state" / "job_state", time.time()
    wait_until(lambda: saved.stat().st_mtime > now, "slurmctld to save its state")
    stress.slurm.kill_controller()
    stress.slurm.start_controller()


def kill_slurmd(stress: Stress) -> None:
    """The node's jobs run on meanwhile."""
    node = stress.random.choice(NODES)
    stress.slurm.command("scontrol", "update", f"nodename={node}", "state=resume", check=False)
    stress.slurm.stop_node(node, signal.SIGKILL)
    stress.slurm.start_node(node)


def kill_slurmdbd(stress: Stress) -> None:
    stress.slurm.kill_slurmdbd()
    stress.slurm.start_slurmdbd()


def step_clock(stress: Stress) -> None:
    """omfsd's, by up to an hour, to and fro; the judge sets it right."""
    stress.clock.write_text(str(stress.random.randint(-3600, 3600)))


def drain_node(stress: Stress) -> None:
    """The judge returns it."""
    node = stress.random.choice(NODES)
    stress.slurm.command("scontrol", "update", f"nodename={node}", "state=drain", "reason=stress", check=False)
