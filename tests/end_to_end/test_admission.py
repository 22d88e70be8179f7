"""The daemon and the submit plug-in on a real Slurm: what needs no hold is not held, and entitlements are kept."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.daemon.admission_file import ADMISSION_FILE
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.daemons import Daemon
from tests.support.gated_clusters import gated_cluster, gated_daemon
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

SHARE = 8
"""CPUs of bio, and of physics."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    classes = {"class_1": "partition=urgent;urgent=yes", "class_2": "methods=requeue,suspend"}
    with gated_cluster("admission", classes) as slurm:
        yield slurm


@pytest.fixture
def daemon(cluster: LocalSlurm) -> Iterator[Daemon]:
    with gated_daemon(cluster) as installation:
        yield installation


def observed(daemon: Daemon) -> float:
    """When the file says that Slurm was polled."""
    path = daemon.directory / "run" / ADMISSION_FILE
    return float(path.read_text().split()[3]) if path.exists() else 0.0


def wait_for_room(daemon: Daemon) -> None:
    """Until all that was submitted so far has been observed, by the plug-in's rules."""
    now = time.time()
    wait_until(lambda: observed(daemon) > now + 3, "the plug-in to count nothing")


def submit(daemon: Daemon, number: int, *arguments: str, account: str = "bio") -> list[Job]:
    """One after the other; as Slurm shows them right after."""
    ids = [daemon.slurm.submit("sleep 3600", "-A", account, *arguments, uid="nobody") for _ in range(number)]
    jobs = {job.id: job for job in daemon.gateway.jobs()}
    return [jobs[job_id] for job_id in ids]


def test_many_submits_between_two_cycles_take_no_more_than_the_room_and_are_not_held_again(daemon: Daemon) -> None:
    daemon.start()
    wait_for_room(daemon)
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        before = submit(daemon, SHARE + 4)
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    let_in = [job.id for job in before if job.hold is Hold.NONE]
    assert len(let_in) == SHARE
    after = observed(daemon)
    wait_until(lambda: observed(daemon) > after + 4, "some polls")
    jobs = {job.id: job for job in daemon.gateway.jobs()}
    assert all(jobs[number].admin_comment == "" for number in let_in), "the daemon counts as the plug-in does"
    assert sum(job.state is JobState.RUNNING for job in jobs.values()) == SHARE
    assert [jobs[job.id].hold for job in before if job.hold is not Hold.NONE] == [Hold.ADMIN] * 4


def test_srun_and_salloc_within_the_share_start_without_a_word(daemon: Daemon) -> None:
    daemon.start()
    wait_for_room(daemon)
    for program, *more in (["srun"], ["srun", "--immediate"], ["salloc", "--no-shell"], ["salloc", "--immediate"]):
        done = daemon.slurm.command(program, "-A", "bio", *more, "true", uid="nobody")
        assert "held" not in done.stderr and "queued" not in done.stderr, done.stderr
    history = daemon.ask("history")
    assert "hold" not in str(history)


def test_jobs_do_not_pass_one_of_their_account_that_is_held(daemon: Daemon) -> None:
    daemon.start()
    wait_for_room(daemon)
    (first,) = submit(daemon, 1)
    assert first.hold is Hold.NONE
    (large,) = submit(daemon, 1, "-n", str(SHARE))
    assert large.hold is not Hold.NONE
    wait_for_room(daemon)
    (small,) = submit(daemon, 1)
    assert small.hold is not Hold.NONE, "its account has room, and the large job waits"
    (other,) = submit(daemon, 1, account="physics")
    assert other.hold is Hold.NONE


def test_all_parts_of_a_heterogeneous_job_are_released(daemon: Daemon) -> None:
    """Slurm takes an order for the first part as one for all."""
    daemon.start()
    parts = daemon.slurm.command("sbatch", "-A", "bio", "-n1", "-o", "/dev/null", ":", "-n1", "--wrap", "sleep 3600")
    assert parts.code == 0
    wait_until(
        lambda: [(job.state, len(job.on_nodes)) for job in daemon.gateway.jobs()] == [(JobState.RUNNING, 2)],
        lambda: f"both parts to run: {daemon.observation()}; log: {daemon.tail()}",
    )
    assert "order_refused" not in daemon.log.read_text()


def give_all_to_bio(daemon: Daemon) -> None:
    text = daemon.config.read_text().replace("[entitlements.physics]\npercent = 50\n", "")
    daemon.config.write_text(text.replace("percent = 50", "percent = 100"))


def test_an_account_that_owns_all_needs_no_hold(daemon: Daemon) -> None:
    give_all_to_bio(daemon)
    daemon.start()
    submitted = [submit(daemon, 1, *arguments)[0] for arguments in (["-n20"], ["--begin=now+1hour"], ["-N2-3"])]
    assert all(job.hold is Hold.NONE for job in submitted)
    after = observed(daemon)
    wait_until(lambda: observed(daemon) > after + 2, "some polls")
    assert {job.admin_comment for job in daemon.gateway.jobs()} == {""}, "nor does the daemon hold them"
    (chem,) = submit(daemon, 1, account="chem")
    assert chem.hold is not Hold.NONE, "it is entitled to nothing"


def test_a_small_job_does_not_pass_a_large_one_where_only_their_account_waits(daemon: Daemon) -> None:
    give_all_to_bio(daemon)
    daemon.start()
    (first,) = submit(daemon, 1, "-n12", "--exclude=n4")
    daemon.wait_running(first.id)
    large, small = (submit(daemon, 1, *arguments)[0].id for arguments in (["-n16"], ["-n2", "--nodelist=n1"]))
    after = observed(daemon)
    wait_until(lambda: observed(daemon) > after + 2, "some polls")
    assert daemon.runs(first.id)
    assert [daemon.job(number).nice for number in (large, small)] == [0, 0]
    assert daemon.job(large).priority >= daemon.job(small).priority


def test_a_daemon_that_is_dead_lets_everything_in(daemon: Daemon) -> None:
    daemon.start()
    daemon.kill()
    heartbeat = daemon.directory / "run" / "heartbeat"
    heartbeat.write_text("1\n")
    (job,) = submit(daemon, 1, "-n", str(SHARE + 1))
    assert job.hold is Hold.NONE


def shown(daemon: Daemon, jobs: list[Job]) -> list[Job]:
    return [daemon.job(job.id) for job in jobs]


def end(daemon: Daemon, jobs: list[Job]) -> None:
    daemon.slurm.command("scancel", *(str(job.id) for job in jobs))


def test_a_large_job_does_not_wait_behind_small_ones_of_its_account(daemon: Daemon) -> None:
    daemon.start()
    wait_for_room(daemon)
    running = submit(daemon, SHARE)
    (large,) = submit(daemon, 1, "-n", str(SHARE))
    later = submit(daemon, SHARE // 2)
    end(daemon, running[: SHARE // 2])
    after = observed(daemon)
    wait_until(lambda: observed(daemon) > after + 2, "some polls")
    assert all(job.hold is Hold.ADMIN for job in shown(daemon, later)), "they fit, but the large one comes first"
    assert "a job of its account that comes first" in daemon.why(later[0].id)["now"]
    end(daemon, running[SHARE // 2 :])
    wait_until(lambda: daemon.runs(large.id), "the large job to run")
    assert all(job.state is JobState.PENDING for job in shown(daemon, later))


def test_a_job_that_waits_for_another_is_held_only_where_its_account_needs_the_room(daemon: Daemon) -> None:
    daemon.start()
    wait_for_room(daemon)
    (first,) = submit(daemon, 1)
    (dependent,) = submit(daemon, 1, f"--dependency=afterany:{first.id}")
    wait_until(lambda: daemon.job(dependent.id).reason == "Dependency", "Slurm's own reason")
    others = submit(daemon, SHARE - 1)
    wait_until(lambda: all(job.runs for job in shown(daemon, others)), "all that could start to run")
    held = daemon.job(dependent.id)
    assert held.hold is Hold.ADMIN and "[omfs] Dependency: " in held.admin_comment
    assert daemon.why(dependent.id)["now"] == "waits: Slurm would not start it (Dependency)"
    end(daemon, [first])
    wait_until(lambda: daemon.runs(dependent.id), "it to run")
