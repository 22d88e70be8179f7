"""What operators do to single jobs on a real Slurm: `omfs release` and `omfs exempt`, with their audit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omfs_daemon.cluster.holds import admin_comment_of
from omfs_daemon.cluster.jobs import Hold
from tests.support.daemons import Daemon
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm


def audit(daemon: Daemon) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (daemon.directory / "state" / "audit.jsonl").read_text().splitlines()]


def test_a_held_job_is_let_go_whatever_the_rule(daemon: Daemon) -> None:
    daemon.start()
    running = [daemon.submit("bio") for _ in range(2)]  # non-preemptible, and all that bio owns
    daemon.wait_running(*running)
    held = daemon.submit("bio", "--begin=now+3600")
    daemon.slurm.command("scontrol", "update", f"jobid={held}", "starttime=now")
    wait_until(
        lambda: daemon.runs(held) or daemon.job(held).hold is not Hold.NONE, "omfsd to hold it, or Slurm to start it"
    )
    if daemon.job(held).hold is Hold.NONE:  # without the submit gate Slurm may be first
        held = daemon.submit("bio", "--hold")
    said = wait_until(lambda: daemon.omfs("release", str(held), check=False).stdout, "omfsd to see that it is held")
    assert said.startswith(f"job {held} is released")
    daemon.wait_running(held)
    (line,) = audit(daemon)
    assert (line["act"], line["job"], line["user"]) == ("release", str(held), "root")
    again = daemon.omfs("release", str(held), check=False)
    assert (again.returncode, again.stderr) == (1, f"omfs: job {held}: is not held\n")
    released = [event["text"] for event in daemon.ask("why", str(held))["events"] if event["event"] == "released"]
    assert released[-1] == "released by root with omfs release"


def test_a_released_job_says_who_released_it_while_it_waits(daemon: Daemon) -> None:
    daemon.start()
    running = [daemon.submit(account) for account in ("bio", "bio", "physics", "physics")]
    daemon.wait_running(*running)
    waits = daemon.submit("bio")
    wait_until(lambda: daemon.job(waits).hold is not Hold.NONE, "omfsd to hold what is beyond the entitlement of bio")
    said = wait_until(lambda: daemon.omfs("release", str(waits), check=False).stdout, "omfsd to see that it is held")
    assert said.startswith(f"job {waits} is released")
    polled = daemon.ask("status")["last_poll"]
    wait_until(lambda: daemon.ask("status")["last_poll"] > polled + 2, "some polls")
    job = daemon.job(waits)
    assert (job.hold, admin_comment_of(job).sentence) == (Hold.NONE, "released by root with omfs release")
    held, released = daemon.ask("why", str(waits))["events"][-2:]
    assert (held["event"], released["event"], released["text"]) == ("held", "released", admin_comment_of(job).sentence)


def test_of_an_array_only_the_task_that_was_named_is_let_go(daemon: Daemon) -> None:
    daemon.start()
    array = daemon.submit("bio", "--array=1-5", "--hold")
    said = wait_until(lambda: daemon.omfs("release", f"{array}_2", check=False).stdout, "omfsd to see that it is held")
    assert said.startswith(f"job {array}_2 is released")
    tasks = {job.ref: job.hold is Hold.NONE for job in daemon.gateway.jobs() if job.array_id == array}
    assert tasks.pop(f"{array}_2") and not any(tasks.values())
    listed = daemon.omfs("release", f"{array}_[3-4]").stdout
    assert listed.startswith(f"job {array}_[3-4] is released")
    jobs = [job for job in daemon.gateway.jobs() if job.array_id == array and job.hold is not Hold.NONE]
    assert {task for job in jobs for task in job.task_ids} == {1, 5}
    assert daemon.omfs("release", str(array)).stdout.startswith(f"job {array} is released")
    assert all(job.hold is Hold.NONE for job in daemon.gateway.jobs() if job.array_id == array)
    assert daemon.omfs("release", "15_[x", check=False).stderr.count("\n") == 1


def test_an_exempted_job_is_never_a_victim(daemon: Daemon) -> None:
    daemon.start()
    bio = [daemon.submit("bio", method="requeue") for _ in range(4)]
    daemon.wait_running(*bio)
    for job in bio[:3]:
        assert daemon.omfs("exempt", "add", str(job)).stdout == f"job {job} is never preempted\n"
    first = daemon.submit("physics", method="requeue")
    daemon.wait_running(first)
    assert daemon.runs(*bio[:3]) and not daemon.runs(bio[3]), "the only one that may be preempted"
    urgent = daemon.submit("alarm", "-p", "urgent")
    wait_until(lambda: daemon.runs(urgent), "the urgent job to run")
    assert daemon.runs(*bio[:3]), "not even for an urgent job"

    daemon.omfs("exempt", "add", "account=physics", "--until", "1h", check=False)
    for job in bio[:3]:
        daemon.omfs("exempt", "remove", str(job))
    listed = daemon.ask("exempt", "list")["exemptions"]
    assert [row["name"] for row in listed if row["kind"] == "job"] == []
    acts = [line["act"] for line in audit(daemon)]
    assert acts.count("exempt") >= 3 and acts.count("exemption ended") == 3
    second = daemon.submit("physics", method="requeue")
    daemon.wait_running(second)


def test_what_cannot_be_exempted_is_named_and_pauses_are_audited(daemon: Daemon) -> None:
    daemon.start()
    for words, text in (
        (("exempt", "add", "no-such-thing"), "must be a job (1234, 15_3), a user, or an account"),
        (("exempt", "add", "1", "--until", "1999-01-01"), "is over"),
        (("exempt", "add", "1", "--until", "soon"), "must be such as 30m"),
        (("exempt", "remove", "77"), "is not exempted"),
        (("release", "77"), "Slurm does not list it"),
        (("exempt", "add", "77"), "job 77: Slurm does not list it"),
    ):
        done = daemon.omfs(*words, check=False)
        assert done.returncode in (1, 2) and text in done.stderr and done.stderr.count("\n") == 1
    daemon.omfs("exempt", "add", "daemon", "--until", "2h")
    line = audit(daemon)[-1]
    assert (line["act"], line["kind"], line["name"], line["user"]) == ("exempt", "user", "daemon", "root")
    assert daemon.stop() == 0
    daemon.start()
    (row,) = daemon.ask("exempt", "list")["exemptions"]
    assert (row["kind"], row["name"], row["by"]) == ("user", "daemon", "root"), "it outlasts a restart"
    daemon.omfs("pause", "--reason", "test")
    daemon.omfs("resume")
    assert [line["act"] for line in audit(daemon)] == ["exempt", "pause", "resume"]
