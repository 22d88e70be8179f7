"""omfsd asks a real Slurm whether it would start an urgent job, before anybody is preempted for it."""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterator

import pytest

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.slurm.commands.run_command import run_command
from omfs_daemon.slurm.question import PERMITS, QUESTION_NAME, give_permits, permit
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, as_user
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.end_to_end.test_proving import UNCERTAIN, outcomes, restarts
from tests.support.daemons import Daemon
from tests.support.gated_clusters import gated_cluster, gated_daemon
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm

OWNER = "nobody"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    """Two nodes, one license, and our plug-in, which lets everybody in who can be preempted."""
    classes = {"class_1": "partition=urgent;urgent=yes", "class_2": "methods=requeue"}
    with gated_cluster("question", classes, Shape(2, options={"Licenses": "matlab:1"})) as slurm:
        yield slurm


@pytest.fixture
def daemon(cluster: LocalSlurm) -> Iterator[Daemon]:
    with gated_daemon(cluster) as installation:
        yield installation


def full(daemon: Daemon, *first: str) -> list[int]:
    jobs = [daemon.submit("bio", *first, method="requeue"), daemon.submit("bio", method="requeue")]
    daemon.wait_running(*jobs)
    daemon.start(UNCERTAIN)
    return jobs


def copies(daemon: Daemon) -> list[str]:
    """As Slurm shows what was asked."""
    printed = daemon.slurm.command("scontrol", "--oneliner", "show", "jobs").stdout
    return [line for line in printed.splitlines() if f"JobName={QUESTION_NAME}" in line]


def test_an_urgent_job_that_lacks_only_resources_starts_after_a_question(daemon: Daemon) -> None:
    before = len(copies(daemon))
    bio = full(daemon)
    urgent = daemon.submit("alarm", "-p", "urgent", uid=OWNER)
    daemon.wait_running(urgent)
    assert restarts(daemon, bio) <= 1
    (copy,) = copies(daemon)[before:]
    assert f"UserId={OWNER}(" in copy
    assert "JobState=FAILED" in copy
    assert "omfs:" not in copy, "the nonce is not stored"
    assert not list((daemon.directory / "run" / PERMITS).iterdir())
    daemon.let_end(urgent, *bio)
    daemon.wait_rest()
    assert outcomes(daemon) == ["started"]


def test_nobody_is_preempted_for_an_urgent_job_that_slurm_says_lacks_something(daemon: Daemon) -> None:
    holder, *_ = bio = full(daemon, "-L", "matlab:1")
    urgent = daemon.submit("alarm", "-p", "urgent", "-L", "matlab:1", uid=OWNER)
    wait_until(lambda: "not_startable" in outcomes(daemon), f"the answer; log: {daemon.tail()}")
    assert restarts(daemon, bio) == 0
    assert "would not start it" in daemon.why_text(urgent)
    daemon.slurm.command("scontrol", "update", f"jobid={holder}", "licenses=")
    daemon.wait_running(urgent)
    daemon.let_end(urgent, *bio)
    daemon.wait_rest()
    assert outcomes(daemon).count("started") == 1


def test_a_copy_that_starts_is_canceled_and_its_job_starts_without_victims(daemon: Daemon) -> None:
    bio = full(daemon)
    daemon.slurm.command("scontrol", "hold", str(bio[0]))
    asked = len(copies(daemon))
    urgent = daemon.submit("alarm", "-p", "urgent", uid=OWNER)
    wait_until(lambda: len(copies(daemon)) > asked or daemon.runs(urgent), "the question")
    daemon.slurm.command("scontrol", "release", str(bio[0]))
    daemon.wait_running(urgent)
    wait_until(lambda: all("JobState=RUNNING" not in copy for copy in copies(daemon)), "the copies to be canceled")
    daemon.let_end(urgent, *bio)
    daemon.wait_rest()


def test_nobody_else_is_ranked_first_by_a_nonce(daemon: Daemon) -> None:
    full(daemon)
    urgent = daemon.submit("alarm", "-p", "urgent", "--begin=now+1hour", "--hold")
    waiting = daemon.submit("bio", method="requeue")
    wait_until(lambda: re.search("Resources|Priority", daemon.job(waiting).reason), "it to wait")
    options = ("salloc", "--immediate", "--no-shell", "--chdir=/", "-A", "alarm", "-n4", "-w", "n1")
    for nonce in ("omfs:00", "omfs:" + "0" * 32, "omfs:../../wake"):
        done = run_command(
            [*as_user(OWNER), *options], timeout=LIMIT, conf=daemon.slurm.conf, check=False,
            variables={"SALLOC_WCKEY": nonce},
        )  # fmt: skip
        assert done.code != 0
        assert re.search("insufficient priority|cannot start immediately", done.stderr), done.stderr
    daemon.slurm.command("scancel", str(urgent), str(waiting))


QUESTION = (
    *(f"--job-name={QUESTION_NAME}-1", "--nodelist=n1", "--partition=main", "--account=guests", "--ntasks=4"),
    *("--nodes=1", "--mem-per-cpu=10M", "--exclusive", "--time=5"),
)
"""Options of salloc, in all that a copy may have, for an account that owns nothing."""

OTHERS = (
    *("--job-name=mine", "--nodelist=n2", "--partition=main,urgent", "--account=alarm", "--ntasks=3", "--nodes=1-2"),
    *("--time=7200", "--time=UNLIMITED", "--mem-per-cpu=20M", "--mem=100M", "--cpus-per-task=2", "--mincpus=2"),
    *("--licenses=matlab", "--ntasks-per-node=4", "--exclude=n2", "--comment=mine", "--begin=now+1hour"),
    *("--constraint=n1", "--exclusive=user", "--threads-per-core=1", "--qos=normal"),
)


def put_in_its_place(daemon: Daemon, *options: str) -> tuple[int, list[Job]]:
    """salloc's exit code, run by who has the nonce of QUESTION, and the jobs that it got."""
    permits = daemon.directory / "run" / PERMITS
    before = {job.id for job in daemon.gateway.jobs()}
    with permit(permits, pwd.getpwnam(OWNER).pw_uid, QUESTION, permits.stat().st_uid) as nonce:
        done = run_command(
            [*as_user(OWNER), "salloc", "--immediate", "--no-shell", "--chdir=/", *options],
            timeout=LIMIT, conf=daemon.slurm.conf, check=False, variables={"SALLOC_WCKEY": f"omfs:{nonce}"},
        )  # fmt: skip
    return done.code, [job for job in daemon.gateway.jobs() if job.id not in before and job.runs]


def takes_questions(daemon: Daemon) -> None:
    daemon.start(UNCERTAIN)
    permits = daemon.directory / "run" / PERMITS
    wait_until(permits.is_dir, "the directory of permits")
    give_permits(permits, permits.stat().st_uid, pwd.getpwnam(daemon.slurm.shape.slurm_user).pw_uid)


def test_k35_a_nonce_buys_nothing_but_the_question(daemon: Daemon) -> None:
    """The owner has read it in the environment of salloc, and has stopped salloc."""
    takes_questions(daemon)
    for other in OTHERS:
        code, got = put_in_its_place(daemon, *QUESTION, other)
        assert code != 0 and not got, f"let in with {other}"


def test_k35_a_question_cannot_hide_from_its_end(daemon: Daemon) -> None:
    takes_questions(daemon)
    code, (copy,) = put_in_its_place(daemon, *QUESTION)
    assert code == 0, "it is the question"
    renamed = daemon.slurm.command("scontrol", "update", f"jobid={copy.id}", "JobName=mine", uid=OWNER, check=False)
    assert renamed.code != 0
    daemon.slurm.command("scancel", f"--user={OWNER}", f"--name={QUESTION_NAME}-1")
    wait_until(lambda: not any(job.runs for job in daemon.gateway.jobs()), "its end")
