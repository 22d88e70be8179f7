"""A full machine of a private real Slurm, real-time jobs that are submitted to it, and what has become of both."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from omfs_daemon.cluster.jobs import Job
from tests.support.daemons import OMFSD, Daemon, dying_at
from tests.support.omfs_run_jobs import Jobs
from tests.support.waiting import LIMIT

LIMIT_SECONDS = 60.0
"""Slurm's time limits are whole minutes, so this is the shortest."""
BOUND, ACT_AT = 1.5, 1.2
DUE = (ACT_AT - 1) * LIMIT_SECONDS
POLL = 3.0
"""Seconds between two polls while nothing happens: a crossing lies between two of them."""

CONFIG = """
[slurm]
conf = "{conf}"
poll_seconds = {poll}
[daemon]
user = "{user}"
state_dir = "{directory}/state"
run_dir = "{directory}/run"
[policy]
retry_after_seconds = 1
preempt_timeout_seconds = {limit}
start_timeout_seconds = {limit}
[metrics]
enabled = false
[entitlements.bio]
percent = {others}
[entitlements.alarm]
percent = {own}
[methods.application]
preempt_timeout_seconds = {limit}
[[class]]
name = "beamline"
account = ["alarm"]
realtime = true
slowdown_bound = {bound}
act_at = {act_at}
[[class]]
name = "regular"
methods = ["requeue", "suspend", "application"]
"""


def configure(daemon: Daemon, bound: float = BOUND, poll: float = POLL, own: int = 0) -> None:
    """``own``: what the account of the real-time jobs is entitled to, in percent."""
    daemon.config.write_text(
        CONFIG.format(
            conf=daemon.slurm.conf,
            user=daemon.program.user,
            directory=daemon.directory,
            limit=LIMIT,
            poll=poll,
            bound=bound,
            act_at=ACT_AT,
            own=own,
            others=100 - own,
        )
    )


STAYS = "#!/bin/bash\nwhile [ ! -e finish ]; do sleep 0.1; done\nexit 7\n"

DEATHS = (("stopping", True), ("starting", False), ("done", False))
"""Where omfsd is killed: at which step of a preemption, and whether with that step's orders sent."""


class Arrival(NamedTuple):
    """A real-time job: ``at``: seconds from the first one on; so many CPUs of one node for so many seconds."""

    at: float
    cpus: int
    seconds: int


def arrivals(jobs: int, seed: int, gap: float = 9.0) -> list[Arrival]:
    """``gap``: seconds between two jobs, on average."""
    chance = random.Random(seed)
    found, at = [], 0.0
    for _ in range(jobs):
        found.append(Arrival(at, chance.choice((1, 2, 2, 4)), chance.randint(5, 20)))
        at += chance.uniform(0.3, 1.7) * gap
    return found


@dataclass
class RealtimeJob:
    """``submit`` and ``start`` are slurmctld's own, in seconds; ``acted``: when preemptions for it began (infinite:
    none did)."""

    id: int
    submit: float
    start: float
    acted: float

    @property
    def slowdown(self) -> float:
        return (LIMIT_SECONDS + self.start - self.submit) / LIMIT_SECONDS


class FullMachine:
    """``method``: by which all of its jobs can be preempted. Real-time jobs are those of an account. ``realtime`` and
    ``batch_options``: more options of sbatch for them, and for all others; ``own`` as in ``configure``."""

    def __init__(
        self,
        jobs: Jobs,
        method: str,
        bound: float = BOUND,
        realtime: Sequence[str] = (),
        batch_options: Sequence[str] = (),
        own: int = 0,
    ) -> None:
        self.jobs, self.method, self.bound = jobs, method, bound
        self.realtime, self.batch_options = realtime, batch_options
        self.daemon, self.slurm = jobs.daemon, jobs.slurm
        self.batch: list[int] = []
        self.deaths: list[tuple[str, bool]] = []
        self.told = 0
        configure(self.daemon, bound, own=own)

    def fill(self, waiting: int = 4) -> None:
        """Eight jobs of two CPUs that run until ``finish``, and some that wait behind them."""
        self.batch = [self._submit_batch() for _ in range(8)]
        if self.method == "application":
            self.jobs.wait_ready(*self.batch)
        self.jobs.wait_running(*self.batch)
        self.batch += [self._submit_batch() for _ in range(waiting)]

    def _submit_batch(self) -> int:
        if self.method == "application":
            return self.jobs.submit("application", "single", *self.batch_options, cpus=2)
        return self.jobs.batch(STAYS, f"--comment=omfs:method={self.method}", "--requeue", *self.batch_options, cpus=2)

    def play(self, planned: Sequence[Arrival], deaths: Sequence[tuple[str, bool]] = ()) -> list[int]:
        """Submit the real-time jobs, ask how they stand, and start omfsd again each time that it is killed; returns the
        jobs once all have ended."""
        self.deaths = list(deaths)
        self._start()
        submitted: list[int] = []
        began = time.monotonic()
        while True:
            self._start_again()
            for arrival in planned[len(submitted) :]:
                if time.monotonic() - began < arrival.at:
                    break
                submitted.append(self._submit(arrival))
            left = self.jobs.now(submitted)
            if len(submitted) == len(planned) and not left and self.is_as_wanted():
                return submitted
            waiting = [job for job in left.values() if job.start is None]
            if waiting:
                self._ask(min(waiting, key=lambda job: job.id))
            assert time.monotonic() < began + planned[-1].at + LIMIT, self.jobs.observation()
            time.sleep(0.2)

    def play_one_more(self) -> int:
        """A real-time job that waits for a whole node while omfsd runs; asks how it stands; returns it once it has
        ended."""
        job, began = self._submit(Arrival(0.0, 4, 1)), time.monotonic()
        while left := self.jobs.now([job]):
            if left[job].start is None:
                self._ask(left[job])
            assert time.monotonic() < began + LIMIT, self.jobs.observation()
            time.sleep(0.2)
        return job

    def is_as_wanted(self) -> bool:
        """Whether omfsd has died as often as it was to, and runs."""
        return not self.deaths and self.daemon.process is not None

    def _submit(self, arrival: Arrival) -> int:
        wanted = (f"-n{arrival.cpus}", "-N1", "--time=1", "-A", "alarm", "-o", "/dev/null", *self.realtime)
        return self.slurm.submit(f"sleep {arrival.seconds}", *wanted)

    def _start(self) -> None:
        if self.deaths:
            self.daemon.start(dying_at(*self.deaths[0]), ready=False)
        else:
            self.daemon.start(OMFSD)

    def _start_again(self) -> None:
        if self.deaths and self.daemon.has_ended():
            self.daemon.wait_for_death()
            self.deaths.pop(0)
            self._start()

    def _ask(self, job: Job) -> None:
        """``omfs why`` tells the slowdown of the moment: of the last poll."""
        least = self.daemon.ask("status", check=False).get("last_poll")
        view = self.daemon.ask("why", str(job.id), check=False)
        found, most = view.get("realtime"), time.time()
        if least is None or not found or found["seconds_left"] is None:
            return  # omfsd is dead or has not seen it yet, or it runs by now
        assert _slowdown(least - job.submit) - 0.002 <= found["slowdown"] <= _slowdown(most - job.submit) + 0.002, view
        assert (found["bound"], found["act_at"]) == (self.bound, ACT_AT)
        self.told += 1

    def restarts(self) -> int:
        """How often batch jobs have been requeued so far, as slurmctld says."""
        shown = [re.search(r" Restarts=(\d+)", self.jobs.shown(job)) for job in self.batch]
        return sum(int(found[1]) if found else 0 for found in shown)

    def slurm_times(self, job: int) -> tuple[float, float]:
        """When the job was submitted and started, as slurmctld says."""
        shown = self.jobs.shown(job)
        submit, start = (float(re.search(rf"{name}=(\d+)", shown)[1]) for name in ("SubmitTime", "StartTime"))  # type: ignore[index]
        return submit, start

    def outcome(self, submitted: Sequence[int]) -> list[RealtimeJob]:
        """Of each real-time job."""
        acted: dict[str, float] = {}
        for preemption in self.preemptions():
            ref = str(preemption["preemptor"])
            acted[ref] = min(preemption["time"], acted.get(ref, inf))
        return [RealtimeJob(job, *self.slurm_times(job), acted.get(str(job), inf)) for job in submitted]

    def preemptions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.daemon.ask("history", "--limit", "1000")["preemptions"]
        return found

    def finish(self) -> None:
        """Every batch job ends as its program wants to, with nothing missing; nothing of ours is left."""
        self.jobs.finish(*self.batch)


def _slowdown(waited: float) -> float:
    return (LIMIT_SECONDS + waited) / LIMIT_SECONDS
