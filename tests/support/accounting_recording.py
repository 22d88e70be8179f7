"""What is brought about on a private Slurm with slurmdbd to record what its accounting says, and what is asked then.

The same questions are put to the recorded answers (tests/unit/accounting/test_releases.py).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from omfs_daemon.accounting.asked_events import asked_down, asked_utilization
from omfs_daemon.accounting.asked_steps import asked_steps
from omfs_daemon.accounting.ended_days import asked_ends
from omfs_daemon.accounting.sacct_query import asked_sacct
from omfs_daemon.accounting.sacct_rows import FULL_FIELDS
from omfs_daemon.slurm.commands.run_command import Runner
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from omfs_daemon.testing.local_slurm.slurmdbd import Accounting
from tests.support.recording_scenarios import HOSTILE, OWNER, Stage
from tests.support.slurm_database import HOUR, shift_accounting

SHAPE = Shape(
    gres={"n1": "gpu:a100:2"},
    partitions=("PartitionName=first Nodes=n3 PriorityTier=9",),
    options={
        "AccountingStorageTRES": "gres/gpu,gres/gpu:a100",
        "AccountingStoreFlags": "job_comment",
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "task=1",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
    },
)
KNOWN = Accounting(["bio", "physics"], [OWNER])
FORMULA = "=cmd|' /C calc'!A0"
TWICE = ("requeued", "preempted", "node failed", "went on")
"""These run twice."""
UNFINISHED = ("running", "waiting", "waiting array")

_AT_LAST = '[ -n "$SLURM_RESTART_COUNT" ] || sleep 3600'
_BUSY = "end=$(($(date +%s) + 3)); while [ $(date +%s) -lt $end ]; do :; done"
_STEPS = f"#!/bin/sh\nsrun --ntasks=2 sh -c '{_BUSY}'\nsrun --ntasks=1 true\n"
_HET = """#!/bin/sh
#SBATCH --job-name=het --ntasks=1
#SBATCH hetjob
#SBATCH --job-name=het --ntasks=2 --account=physics --time=7
sleep 1
"""

AccountingQuestion = Callable[[Path | None, Runner], object]
"""Asks the Slurm of a slurm.conf by way of the runner."""


def ask_accounting(since: float, until: float) -> Mapping[str, AccountingQuestion]:
    """All that is asked of a period, but for what sreport adds up."""
    return {
        "report": lambda conf, runner: asked_sacct(since, until, conf, FULL_FIELDS, runner),
        "replay": lambda conf, runner: asked_sacct(since, until, conf, runner=runner),
        "learning": lambda conf, runner: asked_ends(since, until, conf, keep_names=True, runner=runner),
        # Asked day by day: of the last one, which all of it was.
        "steps": lambda conf, runner: asked_steps(until - 1, until, conf, runner),
        "away": lambda conf, runner: asked_down(since, until, conf, runner),
    }


def ask_sreport(hour: float) -> Mapping[str, AccountingQuestion]:
    """Of the whole hour that begins then."""
    return {"sreport": lambda conf, runner: asked_utilization(hour, hour + HOUR, conf, runner)}


def accounted(stage: Stage) -> None:
    """Every way in which a run ends, steps, parts of jobs, odd names, and nodes that were away."""
    done = stage.slurm.output / "done"
    stage.submit("timeout", "--account=bio", "--nodelist=n1", "--time=1")
    stage.running("running", "--account=bio", "--nodelist=n2", "--ntasks=4")
    stage.submit("never ran", "--account=bio", "--nodelist=n2", "--ntasks=2", "--time=5")
    stage.submit("held", "--account=bio", "--hold")
    stage.submit("completed", "--account=physics", "--ntasks=2", "--time=1-00:00:00", script="sleep 1")
    stage.submit("failed", "--account=bio", "--time=5", script="exit 3")
    stage.submit("killed", "--account=bio", "--time=5", script="kill -9 $$")
    stage.submit("gpu", "--account=bio", "--gres=gpu:a100:2", "--mem-per-cpu=200M", "--time=5", script="sleep 1")
    stage.submit("array", "--account=bio", "--array=1-3", "--time=5", script="exit $((SLURM_ARRAY_TASK_ID == 2))")
    stage.submit("het", "--account=bio", "--time=5", script=_HET)
    stage.submit("steps", "--account=bio", "--ntasks=2", "--time=5", script=_STEPS)
    stage.submit("hostile", f"--job-name={HOSTILE}", f"--comment={HOSTILE}", "--account=bio", script="true")
    stage.submit("formula", f"--job-name={FORMULA}", "--account=bio", script="true")
    comment = "omfs:run=0:stopped:method=dmtcp"
    stage.submit("went on", f"--comment={comment}", "--account=bio", script='[ -n "$SLURM_RESTART_COUNT" ] || exit 101')
    stage.running("cancelled", "--account=bio", "--nodelist=n4", "--time=5")
    stage.running("requeued", "--account=bio", "--nodelist=n1", "--nodes=1", "--ntasks=2", "--time=5", script=_AT_LAST)
    stage.running("preempted", "--account=bio", "--nodelist=n3", "--ntasks=4", "--nodes=1", "--time=5", script=_AT_LAST)
    stage.running("node failed", "--account=bio", "--nodelist=n4", "--time=5", script=_AT_LAST)
    stage.running("suspended", "--account=bio", "--nodelist=n1", script=f"while [ ! -e {done} ]; do sleep 0.1; done")
    _let_pass(stage, 2)

    stage.slurm.command("scancel", *(str(stage.ids[name]) for name in ("cancelled", "never ran", "held")))
    stage.scontrol("requeue", str(stage.ids["requeued"]))
    stage.scontrol("update", "nodename=n4", "state=down", "reason=x")
    stage.submit("preemptor", "--partition=first", "--account=physics", "--ntasks=4", "--time=5", script="sleep 1")
    stage.scontrol("suspend", str(stage.ids["suspended"]))
    _let_pass(stage, 3)
    stage.scontrol("resume", str(stage.ids["suspended"]))
    done.touch()
    for name in TWICE:
        stage.until(lambda name=name: _came_back(stage, name), f"{name} to come back")  # type: ignore[misc]
    stage.scontrol("release", str(stage.ids["went on"]))
    # The node comes back by itself (ReturnToService=2), sometimes before it is told to, which is an error then.
    stage.slurm.command("scontrol", "update", "nodename=n4", "state=resume", check=False)
    stage.submit("waiting", "--account=bio", "--nodelist=n2", "--time=5")
    stage.submit("waiting array", "--account=bio", "--nodelist=n2", "--array=1-3", "--time=5")
    stage.until(lambda: _all_known(stage), "slurmdbd to know all ends")
    _send_away(stage)


def _let_pass(stage: Stage, seconds: int) -> None:
    """Accounting has whole seconds."""
    end = time.monotonic() + seconds
    stage.until(lambda: time.monotonic() > end, f"{seconds} s to pass")


def _came_back(stage: Stage, name: str) -> bool:
    job = stage.job(name)
    return job is not None and job.restarts == 1


def _all_known(stage: Stage) -> bool:
    """All runs have ended, and slurmdbd has been told."""
    listed = stage.slurm.command("squeue", "-h", "-o", "%i").stdout.split()
    words = ("sacct", "-a", "-X", "-P", "-n", "-D", "-S", "now-1hour", "--format=JobID,State")
    records = [line.split("|") for line in stage.slurm.command(*words).stdout.splitlines()]
    left = {stage.ids[name] for name in UNFINISHED}
    over = [_number(job) for job, state in records if state not in ("PENDING", "RUNNING", "REQUEUED", "SUSPENDED")]
    known = {name: over.count(stage.ids[name]) for name in stage.ids if name not in (*UNFINISHED, "held")}
    unfinished = {_number(job) for job, state in records if state in ("PENDING", "RUNNING", "SUSPENDED")}
    return {_number(job) for job in listed} == left == unfinished and all(known.values())


def _number(job: str) -> int:
    """12 of ``12_[1-3]`` and of ``12+1``."""
    found = re.match("[0-9]+", job)
    assert found is not None, job
    return int(found[0])


def _send_away(stage: Stage) -> None:
    """A node that is drained, and one in a reservation for maintenance; both for two seconds."""
    create = ("create", "reservation", "reservationname=maintenance", "starttime=now", "duration=10")
    stage.scontrol("update", "nodename=n4", "state=drain", "reason=x")
    stage.scontrol(*create, "users=root", "nodes=n3", "flags=maint,ignore_jobs")
    _let_pass(stage, 2)
    stage.scontrol("update", "nodename=n4", "state=resume")
    stage.scontrol("delete", "reservationname=maintenance")
    stage.until(lambda: _events(stage) == 2, "slurmdbd to know that both are over")


def _events(stage: Stage) -> int:
    """How often a node was away, as slurmdbd knows."""
    words = ("sacctmgr", "-nP", "show", "event", "start=now-1hour", "format=NodeName,TimeEnd")
    lines = stage.slurm.command(*words).stdout.splitlines()
    ended = [line for line in lines if line.startswith("n4|") and not line.endswith("|Unknown")]
    return len(ended)


def add_up(stage: Stage, begin: int) -> int:
    """Have all since ``begin`` happen in the last whole hour, which slurmdbd adds up then; its begin."""
    hour = int(time.time()) // HOUR * HOUR - HOUR
    stage.slurm.kill_slurmdbd()
    shift_accounting(stage.slurm.directory, hour, begin - hour - 60)
    stage.slurm.start_slurmdbd()
    edges = (("start", hour), ("end", hour + HOUR))
    span = [f"{name}={time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(edge))}" for name, edge in edges]
    words = ["sreport", "-nP", "cluster", "utilization", *span]
    stage.until(lambda: stage.slurm.command(*words, check=False).stdout.strip() != "", "slurmdbd to add up the hour")
    return hour
