"""Heterogeneous jobs beside the daemon and its submit plug-in, on a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.daemons import Daemon
from tests.support.gated_clusters import gated_cluster, gated_daemon, wait_for_cycles
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

OWNER = "nobody"
PARTS = ("-n4", "-N1", ":", "-n4", "-N1", ":", "-n8", "-N2")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    with gated_cluster("het", {"class_1": "methods=requeue,suspend"}) as slurm:
        yield slurm


@pytest.fixture
def daemon(cluster: LocalSlurm) -> Iterator[Daemon]:
    with gated_daemon(cluster) as installation:
        installation.start()
        yield installation


def whole(daemon: Daemon, job_id: int) -> Job:
    return next(job for job in daemon.gateway.jobs() if job.id == job_id)


def events(daemon: Daemon, asked: str) -> set[str]:
    return {event["event"] for event in daemon.ask("why", asked)["events"]}


def refusals(daemon: Daemon, job: int) -> list[str]:
    logged = daemon.log.read_text().splitlines()
    return [line for line in logged if "order_refused" in line and f'"job": "{job}"' in line]


def running(daemon: Daemon, *comment: str) -> int:
    """On all nodes, twice the share of its account."""
    job = daemon.slurm.submit("sleep 3600", "-A", "bio", "-o", "/dev/null", *comment, *PARTS, uid=OWNER)
    daemon.wait_running(job)
    return job


@pytest.mark.parametrize("method", ["requeue", "suspend"])
def test_it_is_preempted_as_a_whole_and_runs_again(daemon: Daemon, method: str) -> None:
    victim = running(daemon, f"--comment=omfs:method={method}")
    assert len(whole(daemon, victim).on_nodes) == 4
    owner = daemon.slurm.submit("sleep 3600", "-A", "physics", "-o", "/dev/null", "-n4", "-N1", uid=OWNER)
    daemon.wait_running(owner)
    gone = JobState.SUSPENDED if method == "suspend" else JobState.PENDING
    wait_until(lambda: whole(daemon, victim).state is gone, lambda: f"its preemption: {daemon.observation()}")
    records = daemon.slurm.command("squeue", "--noheader", "--jobs", str(victim), "--format", "%T").stdout.split()
    assert records == [gone.value] * 3
    for asked in (str(victim), f"{victim}+1", str(victim + 2)):
        wait_until(lambda asked=asked: "preempted" in events(daemon, asked), "its history")  # type: ignore[misc]
        why = daemon.ask("why", asked)
        assert why["job"] == str(victim) and len(why["parts"]) == 3
    daemon.slurm.command("scancel", str(owner))
    daemon.wait_running(victim)
    assert len(whole(daemon, victim).on_nodes) == 4
    assert refusals(daemon, victim) == []


@pytest.mark.parametrize("method", ["requeue", "suspend"])
def test_others_are_preempted_for_it(daemon: Daemon, method: str) -> None:
    """It gets the nodes of both although another job waits for them, and its first part cannot be pinned."""
    batch = ("-A", "bio", "-o", "/dev/null", "-n4", "-N1", f"--comment=omfs:method={method}")
    victims = [daemon.slurm.submit("sleep 3600", *batch, uid=OWNER) for _ in range(4)]
    for victim in victims:
        daemon.wait_running(victim)
    behind = daemon.slurm.submit("sleep 3600", *batch, uid=OWNER)
    job = daemon.slurm.submit("sleep 3600", "-A", "physics", "-o", "/dev/null", *PARTS[:5], uid=OWNER)
    daemon.wait_running(job)
    assert [whole(daemon, victim).runs for victim in victims].count(True) == 2
    assert not whole(daemon, behind).runs
    assert refusals(daemon, job) == []
    daemon.slurm.command("scancel", str(job), str(behind))
    for victim in victims:
        daemon.wait_running(victim)


def test_canceling_a_part_does_not_keep_borrowed_cpus(daemon: Daemon) -> None:
    """Nor does it cost the job its work: requeued, it would never run again."""
    victim = running(daemon, "--comment=omfs:method=requeue")
    daemon.slurm.command("scancel", str(victim + 1), uid=OWNER)
    wait_until(lambda: whole(daemon, victim).ended_part, lambda: f"the end of a part: {daemon.observation()}")
    owner = daemon.slurm.submit("sleep 3600", "-A", "physics", "-o", "/dev/null", "-n8", "-N2", uid=OWNER)
    daemon.wait_running(owner)
    assert whole(daemon, victim).state is JobState.SUSPENDED
    daemon.slurm.command("scancel", str(owner))
    daemon.wait_running(victim)
    assert whole(daemon, victim).restarts == 0
    assert refusals(daemon, victim) == []


def test_its_owner_cannot_take_its_method_back(daemon: Daemon) -> None:
    """It runs on what others own because it can be preempted."""
    victim = running(daemon, "--comment=omfs:method=requeue")
    for text in ("comment=omfs:method=none", "requeue=0"):
        said = daemon.slurm.command("scontrol", "update", f"jobid={victim}", text, uid=OWNER, check=False)
        assert said.code != 0
    assert whole(daemon, victim).comment == "omfs:method=requeue" and whole(daemon, victim).requeue


def test_one_beyond_the_share_of_its_account_is_held_as_a_whole(daemon: Daemon) -> None:
    job = daemon.slurm.submit("sleep 3600", "-A", "bio", "-o", "/dev/null", *PARTS, uid=OWNER)
    wait_until(lambda: whole(daemon, job).hold is Hold.ADMIN, lambda: f"its hold: {daemon.observation()}")
    assert "entitlement" in daemon.why(job)["now"]
    records = daemon.slurm.command("squeue", "--noheader", "--jobs", str(job), "--format", "%r").stdout.split()
    assert records == ["JobHeldAdmin"] * 3
    assert daemon.ask("status")["set_aside"] == 0


def test_a_method_that_cannot_take_a_whole_is_refused(daemon: Daemon) -> None:
    job = ("-A", "bio", "-n1", "--comment=omfs:method=dmtcp", ":", "-n1", "--wrap", "true")
    said = daemon.slurm.command("sbatch", *job, uid=OWNER, check=False)
    assert said.code != 0 and "dmtcp" in said.stderr


def marks(daemon: Daemon, job_id: int) -> list[str]:
    """Of each part in turn."""
    text = daemon.slurm.command("scontrol", "--oneliner", "show", "job", str(job_id)).stdout
    return [part.partition(" AdminComment=")[2].partition(" ")[0] for part in text.splitlines()]


THREE = ("-n2", "-N1", ":", "-n2", "-N1", ":", "-n4", "-N1")


def held_beyond_share(daemon: Daemon) -> tuple[int, int]:
    """A job that uses the share of its account, and a heterogeneous one that omfsd holds as one beyond it."""
    options = ("-A", "bio", "-o", "/dev/null")
    uses = daemon.slurm.submit("sleep 3600", *options, "-n8", "-N2", uid=OWNER)
    daemon.wait_running(uses)
    job = daemon.slurm.submit("sleep 3600", *options, *THREE, uid=OWNER)
    wait_until(lambda: whole(daemon, job).hold is Hold.ADMIN, lambda: f"its hold: {daemon.observation()}")
    return uses, job


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("commands", [("release",), ("hold", "release")])
def test_one_of_which_an_administrator_has_released_a_part_is_released_once_it_fits(
    daemon: Daemon, commands: tuple[str, ...], at: int
) -> None:
    uses, job = held_beyond_share(daemon)
    for command in commands:
        daemon.slurm.command("scontrol", command, f"{job}+{at}")
    assert marks(daemon, job)[at] == "adm:rel" and len(set(marks(daemon, job))) == 2
    daemon.slurm.command("scancel", str(uses))
    daemon.wait_running(job)
    assert refusals(daemon, job) == []
    wait_until(lambda: len(set(marks(daemon, job))) == 1, lambda: f"one mark: {marks(daemon, job)}")


def test_so_it_is_by_omfs_release(daemon: Daemon) -> None:
    uses, job = held_beyond_share(daemon)
    daemon.slurm.command("scontrol", "release", f"{job}+2")
    wait_for_cycles(daemon, 2)
    daemon.omfs("release", str(job))
    assert marks(daemon, job) == ["adm:rel"] * 3 and whole(daemon, job).hold is Hold.NONE
    daemon.slurm.command("scancel", str(uses))
    daemon.wait_running(job)
    assert refusals(daemon, job) == []


def test_what_an_administrator_has_done_to_a_part_does_not_keep_it_from_being_preempted(daemon: Daemon) -> None:
    victim = running(daemon, "--comment=omfs:method=requeue")
    assert all(mark.startswith("omfs:rel:") for mark in marks(daemon, victim))
    daemon.kill()  # else it would give all parts one mark again
    for command in ("hold", "release"):
        daemon.slurm.command("scontrol", command, f"{victim}+2")
    assert marks(daemon, victim)[2] == "adm:rel"
    owner = daemon.slurm.submit("sleep 3600", "-A", "physics", "-o", "/dev/null", "-n4", "-N1", uid=OWNER)
    daemon.start()
    daemon.wait_running(owner)
    assert whole(daemon, victim).restarts == 1
    daemon.slurm.command("scancel", str(owner))
    daemon.wait_running(victim)
    assert refusals(daemon, victim) == []


@pytest.fixture
def reservation(daemon: Daemon) -> Iterator[str]:
    """Of one node."""
    where = ("starttime=now", "duration=1-0:0:0", "nodes=n4", "flags=ignore_jobs", f"users=root,{OWNER}")
    daemon.slurm.command("scontrol", "create", "reservation=aside", *where)
    yield "aside"
    daemon.slurm.command("scancel", f"--user={OWNER}")
    wait_until(lambda: not daemon.gateway.jobs(), lambda: f"all jobs to end: {daemon.observation()}")
    daemon.slurm.command("scontrol", "delete", "reservation=aside")


def test_k30_its_owner_does_not_keep_it_from_being_preempted_by_another_reservation_for_a_part(
    daemon: Daemon, request: pytest.FixtureRequest
) -> None:
    victim = running(daemon, "--comment=omfs:method=requeue")
    change = ("scontrol", "update", f"jobid={victim}+1", f"ReservationName={request.getfixturevalue('reservation')}")
    assert daemon.slurm.command(*change, uid=OWNER, check=False).code != 0
    daemon.slurm.command(*change)  # an administrator may
    assert "Reservation=aside" in daemon.slurm.command("scontrol", "show", "job", str(victim)).stdout
    assert not whole(daemon, victim).set_aside
    owner = daemon.slurm.submit("sleep 3600", "-A", "physics", "-o", "/dev/null", "-n4", "-N1", uid=OWNER)
    daemon.wait_running(owner)
    assert daemon.job(victim).restarts == 1


@pytest.mark.parametrize("more", [(), ("--comment=omfs:method=requeue",)])
def test_k31_one_whose_parts_are_of_several_accounts_stays_held(daemon: Daemon, more: tuple[str, ...]) -> None:
    """Set aside, it would never be preempted; held, it keeps nobody from idle nodes."""
    parts = ("-A", "bio", "-n1", "-N1", *more, ":", "-A", "guests", "-n4", "-N1", *more)
    job = daemon.slurm.submit("sleep 3600", "-o", "/dev/null", *parts, uid=OWNER)
    wait_until(lambda: daemon.ask("status")["set_aside"] == 2, "both parts to be set aside")
    wait_for_cycles(daemon, 3)
    records = daemon.slurm.command("squeue", "--noheader", "--jobs", str(job), "--format", "%T %Q").stdout
    assert records.splitlines() == ["PENDING 0"] * 2
    assert "it stays held" in daemon.why(job)["now"]
    urgent = daemon.slurm.submit("sleep 3600", "-A", "bio", "-o", "/dev/null", "-n4", "-p", "urgent", uid=OWNER)
    daemon.wait_running(urgent)
    daemon.omfs("release", str(job))
    daemon.wait_running(job)
