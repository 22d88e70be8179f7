"""Jobs that end at about the time at which they are preempted with DMTCP, on a real Slurm and by omfsd.

Nobody who has finished is held, all output is whole, and exit codes are kept. A sample in each run; 60 jobs that end
within 200 ms of the request in a soak, with the real DMTCP where OMFS_DMTCP is its prefix (and OMFS_LIB has our
libraries for it, for every user to read).
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

import pytest

from omfs_daemon.cluster.run_report import RunState, run_report
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.amounts import is_soak
from tests.support.daemons import Daemon
from tests.support.dmtcp_bench import lines
from tests.support.dmtcp_endings import SHAPES, SPREAD, ending_command, is_whole, set_end
from tests.support.omfs_run_jobs import Jobs
from tests.support.programs import PYTHON, Programs
from tests.support.waiting import LIMIT

pytestmark = pytest.mark.slurm

REAL = os.environ.get("OMFS_DMTCP")
WANTED = 60  # of a soak, within the spread
MOST = 40  # rounds in which they must come together


class Victim(NamedTuple):
    """A job that ends with ``code`` at the time in ``at``."""

    job: int
    code: int
    out: Path
    at: Path


@pytest.fixture
def jobs(daemon: Daemon, _session_slurm: LocalSlurm) -> Jobs:
    return Jobs(daemon, Programs(_session_slurm.directory / "programs"))


def submitted(jobs: Jobs, number: int) -> Victim:
    """A job that fills a node; shapes and codes alternate."""
    stand_in = jobs.programs.dmtcp()
    path, library = (f"{REAL}/bin", os.environ["OMFS_LIB"]) if REAL else (str(stand_in), f"{stand_in.parent}/lib")
    out, at, code = jobs.home / f"out-{number}", jobs.home / f"at-{number}", 5 * (number // 2 % 2)
    programs = stand_in.parent / "programs"
    command = ending_command(SHAPES[number % len(SHAPES)], out, at, code, PYTHON, bool(REAL), programs)
    script = f"#!/bin/bash\nexport PATH={path}:$PATH OMFS_LIB={library}\nexec {jobs.run} {shlex.join(command)}\n"
    return Victim(jobs.batch(script, "--comment=omfs:method=dmtcp"), code, out, at)


def wait_ready(jobs: Jobs, victims: list[Victim]) -> None:
    def ready() -> bool:
        found = jobs.now([victim.job for victim in victims])
        reports = [run_report(job) for job in found.values() if job.runs]
        return [run.state for run in reports if run is not None] == [RunState.READY] * len(victims)

    jobs.until("the jobs to be ready", ready, *[victim.job for victim in victims])


def requests(
    jobs: Jobs, victims: list[Victim], urgent: int, requested: Callable[[int, float], None]
) -> dict[int, float]:
    """When the checkpoint of each job that was still there was requested: omfs-run then tries its directory.

    requested: called with the job and the time when this is seen.
    """
    before = {victim.job: jobs.checkpoints(victim.job).stat().st_mtime_ns for victim in victims}
    seen: dict[int, float] = {}
    end = time.monotonic() + LIMIT
    while len(seen) < len(victims) and time.monotonic() < end:
        for job in set(before) - set(seen):
            try:
                changed = jobs.checkpoints(job).stat().st_mtime_ns
            except FileNotFoundError:  # it ended with 0, which removes it
                changed = time.time_ns()
            if changed != before[job]:
                seen[job] = changed / 1e9
                requested(job, seen[job])
        if jobs.daemon.runs(urgent):
            break
        time.sleep(0.01)
    return seen


def test_who_has_finished_is_not_held_and_nothing_is_lost(jobs: Jobs) -> None:
    jobs.daemon.start()
    random, delay = Random(15), 1.0  # seconds from an urgent job to the requests
    near: list[float] = []
    number = rounds = restarted = 0
    while rounds < (MOST if is_soak() else 1) and len(near) < WANTED:
        victims = [submitted(jobs, number + place) for place in range(4)]
        number, rounds = number + 4, rounds + 1
        wait_ready(jobs, victims)
        began = time.time()
        urgent = jobs.urgent()
        # Half of them end about when the request is expected, the others when it was made.
        ends = {victim.job: began + delay + random.uniform(-SPREAD, SPREAD) for victim in victims[::2]}
        for victim in victims[::2]:
            set_end(victim.at, ends[victim.job])

        def requested(job: int, when: float, victims: list[Victim] = victims, ends: dict[int, float] = ends) -> None:
            if job not in ends:
                ends[job] = when + random.uniform(0.0, SPREAD)
                set_end(next(victim.at for victim in victims if victim.job == job), ends[job])

        seen = requests(jobs, victims, urgent, requested)
        for victim in victims:  # one whose request was not seen
            requested(victim.job, time.time())
        jobs.wait_ended(urgent, *[victim.job for victim in victims])  # a job that is held would stay
        for victim in victims:
            shown = jobs.shown(victim.job)
            assert f"ExitCode={victim.code}:0" in shown, f"{shown}\n{jobs.observation(victim.job)}"
            assert is_whole(lines(victim.out)), f"{lines(victim.out)}\n{jobs.observation(victim.job)}"
            restarted += " Restarts=0 " not in shown
        near += [seen[job] - ends[job] for job in seen if abs(seen[job] - ends[job]) <= SPREAD]
        if seen:
            delay = median(seen.values()) - began
    print(f"{number} jobs, {len(near)} within {SPREAD} s of the request, {restarted} of all were restarted")
    jobs.nothing_left()
    assert not is_soak() or len(near) >= WANTED
