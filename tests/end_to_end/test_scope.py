"""omfsd with a scope, beside its submit plug-in on a real Slurm: jobs out of scope are as without omfsd."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.daemons import Daemon
from tests.support.gated_clusters import gated_cluster, gated_daemon
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

OWNER = "nobody"
SCOPE = '[scope]\npartitions = ["main"]\n'


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    with gated_cluster("scope", {"class_1": "methods=requeue,suspend", "scope_partitions": "main"}) as slurm:
        yield slurm


@pytest.fixture
def site(cluster: LocalSlurm) -> Iterator[Daemon]:
    with gated_daemon(cluster) as daemon:
        daemon.config.write_text(daemon.config.read_text() + SCOPE)
        yield daemon


def submit(site: Daemon, *arguments: str) -> int:
    return site.slurm.submit("sleep 3600", *arguments, uid=OWNER)


def look(site: Daemon, job_id: int) -> Job:
    job = site.gateway.find(job_id)
    assert job is not None
    return job


def used(site: Daemon) -> dict[str, int]:
    return {row["account"]: row["used"] for row in site.ask("status")["accounts"]}


def orders_for(site: Daemon, jobs: set[int]) -> list[str]:
    """What slurmctld says that it was asked to do with these jobs."""
    log = (site.slurm.directory / "log" / "slurmctld.log").read_text()
    acts = "_slurm_rpc_update_job|_hold_job_rec|_release_job_rec|_slurm_rpc_suspend|_slurm_rpc_requeue"
    found = re.findall(rf"^.*(?:{acts}).*JobId=(\d+).*$", log, re.MULTILINE)
    return [number for number in found if int(number) in jobs]


def test_a_job_out_of_scope_is_as_without_omfsd(site: Daemon) -> None:
    """It is neither held at submission, nor later, nor preempted, and nobody is preempted for it."""
    full = ("--ntasks=4", "--nodes=1")
    site.start()
    outside = [submit(site, "--partition=urgent", "--account=bio", *full)]
    inside = [submit(site, "--account=physics", "--comment=omfs:method=requeue", *full) for _ in range(3)]
    wait_until(lambda: all(look(site, job).state is JobState.RUNNING for job in (*outside, *inside)), "all to run")
    waiting = [submit(site, "--partition=urgent", "--account=bio", *full) for _ in range(3)]
    assert [look(site, job).hold for job in waiting] == [Hold.NONE] * 3, "the plug-in lets them in"
    own = submit(site, "--account=bio", "--nice=5", *full)
    wait_until(lambda: any(look(site, job).restarts for job in inside), "a preemption for bio")
    wait_until(lambda: look(site, own).state is JobState.RUNNING, "bio's job in scope to run")
    strangers = {*outside, *waiting}
    seen = [look(site, job) for job in strangers]
    assert all((job.hold, job.admin_comment, job.nice, job.restarts) == (Hold.NONE, "", 0, 0) for job in seen)
    assert not orders_for(site, strangers)
    status = site.ask("status")
    assert (status["scope"], status["not_in_scope"]) == ("partitions main", 4)
    assert site.why(waiting[0])["now"].startswith("not in scope")
    wait_until(lambda: used(site)["bio"] == 4, "the daemon to have seen bio's job run")


def test_the_owner_of_a_job_out_of_scope_may_do_what_slurm_allows(site: Daemon) -> None:
    site.start()
    job = submit(site, "--partition=urgent", "--account=bio", "--hold", "--nice=10")
    site.slurm.command("scontrol", "release", str(job), uid=OWNER)
    wait_until(lambda: look(site, job).state is JobState.RUNNING, "the job to run")
    forged = submit(site, "--partition=urgent", "--hold", "--comment=omfs:wait")
    assert "omfs:wait" not in look(site, forged).comment, "the mark of a hold is not for users to write"


def test_a_new_scope_gives_back_what_was_held(site: Daemon) -> None:
    """The plug-in's settings are still those of before."""
    site.config.write_text(site.config.read_text().replace(SCOPE, ""))
    site.start()
    full = ("--ntasks=4", "--nodes=1")
    running = [submit(site, "--account=physics", *full) for _ in range(2)]
    wait_until(lambda: all(look(site, job).state is JobState.RUNNING for job in running), "both to run")
    held = submit(site, "--account=physics", *full)
    wait_until(lambda: look(site, held).hold is Hold.ADMIN, "the daemon to hold what is beyond the entitlement")
    site.config.write_text(site.config.read_text() + '[scope]\npartitions = ["urgent"]\n')
    assert site.process is not None
    site.process.send_signal(signal.SIGHUP)
    wait_until(lambda: look(site, held).state is JobState.RUNNING, "it to be released")
    wait_until(lambda: site.ask("status")["held"] == 0, "omfsd to know it")
