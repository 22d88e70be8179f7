"""Jobs that are warned by a signal before they are requeued, on a real Slurm."""

from __future__ import annotations

import pytest

from omfs_daemon.cluster.jobs import JobState
from tests.support.daemons import Daemon, dying_at
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

OWNER = "nobody"

SAVES = """#!/bin/sh
# On a warning it notes that, has itself requeued, as submitit does, and says how that went.
warned() {
    echo warned >>$notes
    scontrol requeue $SLURM_JOB_ID 2>>$notes
    echo "requeued $?" >>$notes
    exit 1
}
notes=%(output)s/notes-$SLURM_JOB_ID
trap warned USR2
echo "run ${SLURM_RESTART_COUNT-unset}" >>$notes
while %(stays)s; do sleep 0.1; done
"""

IGNORES = """#!/bin/sh
trap '' USR2
while %(stays)s; do sleep 0.1; done
"""

# A program in a step; its batch shell has no handler.
ENDS_WELL = """#!/bin/sh
srun sh -c 'trap "exit 0" USR2; touch %(output)s/ready-$SLURM_JOB_ID; while %(stays)s; do sleep 0.1; done'
echo "ended $?" >>%(output)s/notes-$SLURM_JOB_ID
"""


def victim(daemon: Daemon, script: str, signal: str, *options: str) -> int:
    text = script % {"output": daemon.slurm.output, "stays": daemon.stays}
    comment = f"--comment=omfs:method=requeue omfs:signal={signal}"
    job = daemon.slurm.submit(text, "-A", "bio", "-n4", "-N1", "-o", "/dev/null", comment, *options, uid=OWNER)
    daemon.wait_running(job)
    return job


def notes(daemon: Daemon, job: int) -> list[str]:
    path = daemon.slurm.output / f"notes-{job}"
    return path.read_text().splitlines() if path.exists() else []


def others(daemon: Daemon, count: int) -> list[int]:
    """Nobody may preempt these: the one that can be preempted is the victim."""
    jobs = [daemon.submit("physics") for _ in range(count)]
    daemon.wait_running(*jobs)
    return jobs


def full(daemon: Daemon, script: str, signal: str) -> tuple[int, list[int]]:
    job = victim(daemon, script, signal)
    return job, others(daemon, daemon.slurm.shape.nodes - 1)


def urgent(daemon: Daemon) -> int:
    job = daemon.submit("alarm", "-p", "urgent")
    daemon.wait_running(job)
    return job


def end(daemon: Daemon, *jobs: int) -> None:
    daemon.let_end(*jobs)
    daemon.wait_rest()
    assert daemon.completed(jobs)


def test_a_job_that_requeues_itself_on_its_warning_is_let(daemon: Daemon) -> None:
    saves, rest = full(daemon, SAVES, "B:USR2")
    wait_until(lambda: notes(daemon, saves) == ["run unset"], "the handler")
    daemon.start()
    first = urgent(daemon)
    assert daemon.job(saves).state is JobState.PENDING
    assert notes(daemon, saves) == ["run unset", "warned", "requeued 0"], "warned once, and its own requeue is no error"
    daemon.let_end(first)
    wait_until(lambda: notes(daemon, saves)[-1] == "run 1", "its second run")
    end(daemon, saves, first, *rest)
    assert daemon.job(saves).restarts == 1
    (preemption,) = daemon.ask("history")["preemptions"]
    assert preemption["outcome"] == "started"


def test_a_job_that_ends_on_its_warning_has_ended(daemon: Daemon) -> None:
    """The signal goes to its steps, and not to its batch shell, which it would end."""
    ends, rest = full(daemon, ENDS_WELL, "USR2")
    wait_until(lambda: (daemon.slurm.output / f"ready-{ends}").exists(), "the handler")
    daemon.start()
    first = urgent(daemon)
    assert notes(daemon, ends) == ["ended 0"]
    end(daemon, first, *rest)
    assert daemon.completed([ends])
    assert daemon.job(ends).restarts == 0


def test_a_job_that_does_not_heed_its_warning_is_requeued_in_the_end(daemon: Daemon) -> None:
    with daemon.config.open("a") as config:
        config.write("[methods.requeue]\npreempt_timeout_seconds = 5\n")
    ignores, rest = full(daemon, IGNORES, "B:USR2")
    daemon.start()
    first = urgent(daemon)
    daemon.let_end(first)
    wait_until(lambda: daemon.runs(ignores), "its second run")
    end(daemon, ignores, first, *rest)
    assert daemon.job(ignores).restarts == 1


@pytest.mark.parametrize("after_orders", [False, True], ids=["before its orders", "after its orders"])
def test_a_daemon_that_dies_warns_nobody_twice(daemon: Daemon, after_orders: bool) -> None:
    saves, rest = full(daemon, SAVES, "B:USR2")
    wait_until(lambda: notes(daemon, saves) == ["run unset"], "the handler")
    daemon.start(dying_at("stopping", after_orders), ready=False)
    first = daemon.submit("alarm", "-p", "urgent")
    daemon.wait_for_death()
    daemon.start()
    daemon.wait_running(first)
    assert notes(daemon, saves).count("warned") == 1
    daemon.let_end(first)
    wait_until(lambda: notes(daemon, saves)[-1] == "run 1", "its second run")
    end(daemon, saves, first, *rest)
