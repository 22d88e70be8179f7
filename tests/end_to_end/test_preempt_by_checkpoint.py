"""Jobs under omfs-run make room for urgent ones on a real Slurm, and go on where they were; and what goes wrong."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.cluster.run_report import RunState
from omfs_daemon.preemption.methods.checkpoint import WHY_TEXT
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.daemons import Daemon, dying_at
from tests.support.omfs_run_jobs import USER, Jobs, dry
from tests.support.programs import Programs, is_gapless
from tests.support.waiting import LIMIT

pytestmark = pytest.mark.slurm

SIXTEEN = 16
KINDS = {
    "application": ("forked", "openmp", "ranks", *["single"] * (SIXTEEN - 3)),
    "criu": ("single", "forked", "openmp", "single"),
    "dmtcp": ("forked", "ranks", *["single"] * (SIXTEEN - 2)),
}


@pytest.fixture(scope="module")
def programs(_session_slurm: LocalSlurm) -> Programs:
    return Programs(_session_slurm.directory / "programs")


@pytest.fixture
def jobs(daemon: Daemon, programs: Programs) -> Jobs:
    return Jobs(daemon, programs)


@pytest.mark.parametrize("method", ["application", "criu", "dmtcp"])
def test_a_full_machine_makes_room_twice_and_nothing_is_missing_or_done_twice(jobs: Jobs, method: str) -> None:
    daemon = jobs.daemon
    daemon.start(*dry())
    victims = [jobs.submit(method, kind, cpus=SIXTEEN // len(KINDS[method])) for kind in KINDS[method]]
    jobs.wait_ready(*victims)
    urgent = jobs.urgent()
    plan = jobs.until("a plan", lambda: [a for a in daemon.ask("plan")["actions"] if a["kind"] == "preempt for"])[0]
    assert plan["job"] == str(urgent)
    assert {int(victim["job"]) for victim in plan["victims"]} == set(victims)
    assert all(victim["method"] == method and victim["cost_seconds"] > 0 for victim in plan["victims"])
    text = re.sub(r"[│\s]+", " ", daemon.omfs("plan").stdout)
    assert f"{victims[0]} of bio ({method}, about " in text, text
    daemon.stop()
    daemon.start()
    jobs.wait_ended(urgent)
    jobs.wait_ready(*victims, restarts=1)
    again = jobs.urgent()
    jobs.wait_ended(again)
    jobs.wait_ready(*victims, restarts=2)
    jobs.until(
        "all costs", lambda: sum("resume_seconds" in victim for victim in jobs.paid()) == 2 * len(victims), *victims
    )
    jobs.finish(*victims, restarts=2)
    assert daemon.completed([urgent, again])
    assert [stop["outcome"] for stop in daemon.ask("history")["preemptions"]] == ["started", "started"]
    assert len(jobs.paid()) == 2 * len(victims)
    assert all(victim["method"] == method and victim["lost_seconds"] == 0 for victim in jobs.paid())
    # A program that reads its own checkpoint takes no time of omfs-run's.
    assert all(victim["preempt_seconds"] > 0 and victim["resume_seconds"] >= 0 for victim in jobs.paid())


# -- what goes wrong; each on one node --------------------------------------------------------------------------------


def test_a_job_that_is_canceled_in_mid_checkpoint_ends_and_the_urgent_job_starts(jobs: Jobs) -> None:
    jobs.daemon.start()
    jobs.programs.break_dmtcp("waits", "waits")
    victim = jobs.submit("dmtcp", "single", "--nodelist=n1", fault="waits")
    jobs.wait_ready(victim)
    urgent = jobs.urgent("n1")
    jobs.wait_report(victim, RunState.STOPPING)
    jobs.slurm.command("scancel", str(victim), uid=USER)
    jobs.wait_ended(victim, urgent)
    assert "JobState=CANCELLED" in jobs.shown(victim)
    assert jobs.daemon.completed([urgent])
    assert is_gapless(jobs.counts(victim)[f"count-{victim}-0"])
    jobs.nothing_left()


def test_on_a_full_disk_the_program_runs_on_until_there_is_room(jobs: Jobs) -> None:
    with tmpfs(jobs.home / "small", "40m", jobs.owner) as small:
        jobs.daemon.start()
        victim = jobs.submit("criu", "forked", "--nodelist=n1", options=f"--dir {small}/checkpoints")
        jobs.wait_ready(victim)
        urgent = jobs.urgent("n1")
        jobs.wait_reported(urgent, "there is not enough space for the checkpoint")
        jobs.wait_counting(victim)
        assert jobs.daemon.job(urgent).state is JobState.PENDING
        subprocess.run(["mount", "-o", "remount,size=400m", small], check=True, timeout=LIMIT)
        jobs.wait_ended(urgent)
        jobs.wait_ready(victim, restarts=1)
        jobs.finish(victim, restarts=1)


def test_without_write_permission_the_program_runs_on_until_there_is_some(jobs: Jobs) -> None:
    jobs.daemon.start()
    victim = jobs.submit("application", "single", "--nodelist=n1")
    jobs.wait_ready(victim)
    jobs.checkpoints(victim).chmod(0o500)
    urgent = jobs.urgent("n1")
    jobs.wait_reported(urgent, "its checkpoint directory is not writable")
    jobs.wait_counting(victim)
    jobs.checkpoints(victim).chmod(0o700)
    jobs.wait_ended(urgent)
    jobs.wait_ready(victim, restarts=1)
    jobs.finish(victim, restarts=1)


def test_a_damaged_checkpoint_costs_no_more_than_going_back_to_the_one_before(jobs: Jobs) -> None:
    jobs.daemon.start()
    victim = jobs.submit("dmtcp", "single", "--nodelist=n1")
    jobs.wait_ready(victim)
    first = jobs.urgent("n1", stays=True)
    jobs.wait_running(first)
    reached = jobs.length(victim)
    jobs.daemon.let_end(first)
    jobs.wait_ready(victim, restarts=1)
    second = jobs.urgent("n1", stays=True)
    jobs.wait_running(second)
    done = jobs.counts(victim)[f"count-{victim}-0"]
    (image,) = jobs.checkpoints(victim).glob("gen-0002/*.dmtcp")
    os.truncate(image, image.stat().st_size - 4096)
    jobs.daemon.let_end(second)
    jobs.wait_ready(victim, restarts=2)
    assert "from=1" in jobs.daemon.job(victim).comment
    assert "checkpoint gen-0002 cannot be used" in jobs.output(victim)
    assert is_gapless(done)
    assert jobs.counts(victim)[f"count-{victim}-0"][len(done)] == reached + 1
    run = jobs.report(victim)
    assert run is not None and run.lost > 0
    jobs.until("the loss on record", lambda: any(paid.get("lost_seconds", 0) > 0 for paid in jobs.paid()), victim)
    jobs.slurm.command("scancel", str(victim))
    jobs.wait_ended(victim)
    jobs.nothing_left()


def test_a_program_that_its_first_checkpoint_ends_is_held_for_its_owner_who_can_start_it_over(jobs: Jobs) -> None:
    jobs.daemon.start()
    victim = jobs.submit("dmtcp", "single", "--nodelist=n1", fault="coordinator_dies")
    jobs.wait_ready(victim)
    urgent = jobs.urgent("n1")
    jobs.wait_report(victim, RunState.HELD)
    jobs.wait_ended(urgent)
    jobs.until("the stop to be over", lambda: not jobs.daemon.ask("status")["preemptions_under_way"])
    polled = jobs.daemon.ask("status")["last_poll"]
    jobs.until("another look", lambda: jobs.daemon.ask("status")["last_poll"] > polled + 2)
    assert jobs.daemon.job(victim).hold is not Hold.NONE, "only its owner can say what is to be done"
    assert "left no checkpoint; the job is held" in jobs.output(victim)
    jobs.programs.break_dmtcp("coordinator_dies", "")
    jobs.slurm.command("scontrol", "update", f"jobid={victim}", "comment=omfs:method=dmtcp", uid=USER)
    jobs.slurm.command("scontrol", "release", str(victim), uid=USER)
    jobs.wait_ready(victim, restarts=1)
    jobs.finish(victim, started_over=[victim])


def test_a_hung_tool_leaves_the_program_running_or_has_it_requeued_as_its_class_says(jobs: Jobs) -> None:
    jobs.daemon.start()
    careful = jobs.submit("dmtcp", "single", "--nodelist=n1", options="--within 2", fault="hangs")
    bold = jobs.submit("dmtcp", "single", "--nodelist=n2", options="--within 2", fault="hangs", account="bold")
    jobs.wait_ready(careful, bold)
    jobs.programs.break_dmtcp("hangs", "hang_command")
    waits, starts = jobs.urgent("n1"), jobs.urgent("n2")
    jobs.wait_ended(starts)
    jobs.wait_reported(waits, WHY_TEXT["tool_hung"])
    jobs.programs.break_dmtcp("hangs", "")
    jobs.wait_ended(waits)
    jobs.wait_ready(careful, bold, restarts=1)
    jobs.finish(careful, bold, started_over=[bold])


def test_a_checkpoint_that_comes_after_its_time_holds_nobody_for_ever(jobs: Jobs) -> None:
    jobs.configure(patience=3)
    jobs.daemon.start()
    (jobs.home / "not-yet").touch()
    victim = jobs.submit("application", "single", "--nodelist=n1")
    jobs.wait_ready(victim)
    urgent = jobs.urgent("n1")
    jobs.wait_reported(urgent, "a job could not be preempted; undone")
    jobs.wait_counting(victim)
    (jobs.home / "not-yet").unlink()
    jobs.wait_ended(urgent)
    jobs.wait_ready(victim, restarts=1)
    jobs.finish(victim, restarts=1)


def test_a_node_whose_slurmd_dies_in_mid_preemption_costs_time_only(jobs: Jobs) -> None:
    jobs.daemon.start()
    jobs.programs.break_dmtcp("waits", "waits")
    victim = jobs.submit("dmtcp", "forked", "--nodelist=n2", fault="waits")
    jobs.wait_ready(victim)
    urgent = jobs.urgent("n2")
    jobs.wait_report(victim, RunState.STOPPING)
    jobs.slurm.stop_node("n2", signal.SIGKILL)
    try:
        jobs.programs.break_dmtcp("waits", "")
        jobs.until("the checkpoint", lambda: "stopped at checkpoint" in jobs.output(victim), victim)
        assert jobs.why(urgent)["now"].startswith("jobs are being preempted for it")
    finally:
        jobs.slurm.start_node("n2")
    jobs.wait_ended(urgent)
    jobs.wait_ready(victim, restarts=1)
    jobs.finish(victim, restarts=1)
    assert jobs.daemon.completed([urgent])


def test_the_daemon_is_killed_in_mid_preemption_and_started_again(jobs: Jobs) -> None:
    """Between any two acts it is killed on the fake; here at three points, each in the stop of another job."""
    points = {"n1": ("stopping", True), "n2": ("starting", False), "n3": ("done", False)}
    victims = {node: jobs.submit("dmtcp", "single", f"--nodelist={node}", fault="slow") for node in points}
    jobs.wait_ready(*victims.values())
    urgent = []
    for node, (step, after_orders) in points.items():
        jobs.daemon.start(dying_at(step, after_orders), ready=False)
        urgent.append(jobs.urgent(node))
        jobs.until(f"omfsd to die at {step}", jobs.daemon.has_ended, victims[node])
        jobs.daemon.wait_for_death()
        if step == "stopping":  # nobody looks on while it is stopped
            jobs.until("the checkpoint", lambda: "stopped at checkpoint" in jobs.output(victims["n1"]), victims["n1"])
    jobs.daemon.start()
    jobs.wait_ended(*urgent)
    jobs.wait_ready(*victims.values(), restarts=1)
    jobs.finish(*victims.values(), restarts=1)
    assert jobs.daemon.completed(urgent)


# -- what users write -------------------------------------------------------------------------------------------------

# Not under omfs-run; tells that it is up, and whether it was signaled.
LOYAL = """#!/bin/bash
trap 'touch signaled-$SLURM_JOB_ID' USR1
touch up-$SLURM_JOB_ID
while [ ! -e finish ]; do sleep 0.1; done
exit 7
"""
DEAF = LOYAL.replace("touch signaled-$SLURM_JOB_ID", "")
MORTAL = LOYAL.replace("trap", ": no trap")


def wait_up(jobs: Jobs, *scripts: int) -> None:
    """Until each has set its trap; Slurm calls it running before its shell has begun."""
    jobs.until("the traps", lambda: all((jobs.home / f"up-{job}").exists() for job in scripts), *scripts)


def test_a_job_that_names_a_method_but_does_not_use_omfs_run_is_never_signaled(jobs: Jobs) -> None:
    jobs.daemon.start()
    victim = jobs.batch(LOYAL, "--comment=omfs:method=dmtcp", "--nodelist=n1")
    wait_up(jobs, victim)
    urgent = jobs.urgent("n1")
    jobs.wait_reported(urgent, "waits: ")
    jobs.wait_reported(victim, "omfs-run in the job has not reported that it is ready")
    assert not jobs.daemon.ask("plan")["actions"] and not jobs.daemon.ask("history")["preemptions"]
    (jobs.home / "finish").touch()
    jobs.wait_ended(victim, urgent)
    assert not (jobs.home / f"signaled-{victim}").exists()
    assert "ExitCode=7:0" in jobs.shown(victim)
    jobs.nothing_left()


def test_who_forges_the_word_of_omfs_run_hurts_only_himself(jobs: Jobs) -> None:
    forged = "--comment=omfs:method=dmtcp omfs:run=0:ready:method=dmtcp:bytes=1:seconds=0.1"
    jobs.configure(patience=3)
    jobs.daemon.start()
    deaf = jobs.batch(DEAF, forged, "--nodelist=n1")
    mortal = jobs.batch(MORTAL, forged, "--nodelist=n2")
    wait_up(jobs, deaf, mortal)
    in_vain, starts = jobs.urgent("n1"), jobs.urgent("n2")
    jobs.wait_ended(mortal, starts)
    assert "JobState=FAILED" in jobs.shown(mortal), "the signal that it asked for has ended it"
    jobs.wait_reported(in_vain, "a job could not be preempted; undone")
    assert jobs.daemon.runs(deaf)
    assert jobs.daemon.ask("history")["preemptions"]
    (jobs.home / "finish").touch()
    jobs.wait_ended(deaf, in_vain)
    assert "ExitCode=7:0" in jobs.shown(deaf)
    assert jobs.daemon.completed([starts, in_vain])
    jobs.nothing_left()


def test_hostile_checkpoint_directories_are_refused_with_one_clear_line(jobs: Jobs) -> None:
    theirs, anybodys = jobs.home / "theirs", jobs.home / "anybodys"
    theirs.mkdir(mode=0o755)  # root's
    anybodys.mkdir()
    anybodys.chmod(0o777)
    (anybodys / "link").symlink_to("/etc")
    os.lchown(anybodys / "link", jobs.owner, jobs.owner)
    stranger = jobs.home / "stranger"
    stranger.symlink_to(theirs)
    os.lchown(stranger, 12345, 12345)
    cases = {
        f"{theirs}": "must be yours and writable by nobody else",
        f"{anybodys}/link": "below a directory that anybody may write to",
        f"{stranger}/x": "a symbolic link of another user",
        f"{jobs.home}/../../x": "control characters and .. are not allowed",
        "not/absolute": "not an absolute path",
        f"$'{jobs.home}/new\\nline\\e[2J'": "control characters and .. are not allowed",
    }
    jobs.daemon.start()
    script = "#!/bin/bash\nexec {} --method application --dir {} touch ran\n"
    told = {jobs.batch(script.format(jobs.run, path), cpus=1): why for path, why in cases.items()}
    for job in told:
        jobs.wait_report(job, RunState.HELD)
    jobs.until("the holds", lambda: all(job.state is JobState.PENDING for job in jobs.now(told).values()))
    for job, why in told.items():
        (line,) = jobs.output(job).splitlines()
        assert line.startswith("omfs-run: ") and why in line and line.isprintable(), line
        assert "why=bad_directory" in jobs.daemon.job(job).comment
    assert not (jobs.home / "ran").exists() and not list(theirs.iterdir())


@contextlib.contextmanager
def tmpfs(path: Path, size: str, owner: int) -> Iterator[Path]:
    path.mkdir()
    options = f"size={size},mode=0700,uid={owner},gid={owner}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "omfs-test", path], check=True, timeout=LIMIT)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True, timeout=LIMIT)
