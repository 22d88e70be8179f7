"""Real-time jobs on a full machine of a real Slurm: their bound is kept, and nobody pays before it is in danger."""

from __future__ import annotations

from itertools import product
from math import inf

import pytest

from omfs_daemon.cluster.run_report import RunState
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.amounts import is_soak
from tests.support.daemons import Daemon
from tests.support.omfs_run_jobs import Jobs
from tests.support.programs import Programs
from tests.support.real_realtime import BOUND, DEATHS, DUE, STAYS, Arrival, FullMachine, arrivals

pytestmark = pytest.mark.slurm

PATIENT_BOUND = 4.0
"""For a machine that other tests keep busy: three minutes to start. A soak has the machine for itself."""
CASES = [*product(("requeue", "suspend", "application"), (False, True))]


@pytest.fixture(scope="module")
def programs(_session_slurm: LocalSlurm) -> Programs:
    return Programs(_session_slurm.directory / "programs")


@pytest.mark.parametrize(("method", "killed"), CASES if is_soak() else CASES[3:4])
def test_every_bound_is_kept_and_nobody_pays_before_it_is_in_danger(
    daemon: Daemon, programs: Programs, method: str, killed: bool
) -> None:
    bound = BOUND if is_soak() else PATIENT_BOUND
    machine = FullMachine(Jobs(daemon, programs), method, bound)
    machine.fill()
    planned = arrivals(20, seed=1) if is_soak() else arrivals(5, seed=3, gap=5.0)
    submitted = machine.play(planned, DEATHS if killed else ())
    if killed:  # the others may all have waited while omfsd was dead
        submitted.append(machine.play_one_more())
    outcome = machine.outcome(submitted)
    assert all(job.slowdown <= bound for job in outcome), outcome
    assert all(job.acted >= job.submit + DUE for job in outcome), outcome
    assert any(job.acted < inf for job in outcome), "the machine was full"
    assert machine.told
    machine.finish()


SAVES = """#!/bin/bash
cat > saves-$SLURM_JOB_ID <<'END'
trap '{wait}; touch "$OMFS_MARK"; exit 0' USR1
while [ ! -e finish ]; do sleep 0.1; done
exit 7
END
exec {run} bash saves-$SLURM_JOB_ID
"""


def test_cpus_that_slurm_gives_to_another_job_are_not_waited_for(daemon: Daemon, programs: Programs) -> None:
    """The second victim leaves only when backfill has given the CPUs of the first one away."""
    jobs = Jobs(daemon, programs)
    machine = FullMachine(jobs, "application", PATIENT_BOUND)
    for node in ("n2", "n3", "n4"):
        machine.batch.append(jobs.batch(STAYS, f"--nodelist={node}"))
    for wait in ("true", "while [ ! -e taken ]; do sleep 0.1; done"):
        script = SAVES.format(run=jobs.run, wait=wait)
        machine.batch.append(jobs.batch(script, "--comment=omfs:method=application", "--nodelist=n1", cpus=2))
    for job in machine.batch[-2:]:
        jobs.wait_report(job, RunState.READY)
    taker = STAYS.replace("\n", "\ntouch taken\n", 1)
    machine.batch.append(jobs.batch(taker, "--comment=omfs:method=requeue", "--requeue", cpus=2))
    machine.play([Arrival(0.0, 4, 5)])
    outcomes = [each["outcome"] for each in machine.preemptions()]
    assert sorted(outcomes) == ["cpus_taken", "started"]
    machine.finish()
