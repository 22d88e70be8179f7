"""Preemption where Slurm keeps jobs in cgroups and limits their memory (proctrack/cgroup, ConstrainRAMSpace)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape, cluster_name
from tests.support import cgroups
from tests.support.daemons import Daemon
from tests.support.omfs_run_jobs import Jobs
from tests.support.programs import Programs
from tests.support.waiting import LIMIT

pytestmark = [pytest.mark.slurm, pytest.mark.cgroups]

MB = 1 << 20
SHAPE = Shape(options={"ProctrackType": "proctrack/cgroup", "TaskPlugin": "task/cgroup", "KillWait": "2"})


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    directory = Path(tempfile.mkdtemp(prefix="omfs-cgroups-"))
    directory.chmod(0o755)
    files = {"cgroup.conf": cgroups.CGROUP_CONF}
    try:
        with LocalSlurm(directory / "slurm", SHAPE, files=files, limit=LIMIT) as slurm:
            daemon = Daemon(slurm, directory)
            try:
                yield Jobs(daemon, Programs(directory / "programs"))
            finally:
                daemon.kill()
    finally:
        cgroups.remove_groups(SHAPE.node_names)
        shutil.rmtree(directory, ignore_errors=True)


def groups_of_processes(jobs: Jobs, job: int) -> list[dict[str, str]]:
    """The groups of each process of the job.

    A process that ends loses its environment before it leaves its groups, so the groups are read first. Other tests'
    clusters have jobs of the same number.
    """
    own = {"SLURM_JOB_ID": str(job), "SLURM_CLUSTER_NAME": cluster_name(jobs.slurm.directory)}
    found = []
    for process in psutil.process_iter():
        try:
            groups = cgroups.groups_of(process.pid)
            if own.items() <= process.environ().items() and process.uids().real == jobs.owner:
                found.append(groups)
        except (psutil.Error, OSError):
            continue
    return found


def test_each_method_preempts_and_brings_back_jobs_in_cgroups(jobs: Jobs) -> None:
    """Also ``suspend``, whose job stays; a restored program must be in the groups of the new run, limited as before."""
    shown = jobs.daemon.gateway.settings().values
    assert (shown["ProctrackType"], shown["CgroupPlugin"]) == ("proctrack/cgroup", "cgroup/v1")
    jobs.daemon.start()
    launched = {name: jobs.submit(name, "forked", "--mem=300") for name in ("application", "criu", "dmtcp")}
    work = jobs.programs.command("application", "forked")
    stays = jobs.batch(f"#!/bin/bash\nexec {work}\n", "--comment=omfs:method=suspend", "--mem=300")
    jobs.wait_ready(*launched.values())
    jobs.wait_counting(stays)
    urgent = jobs.urgent()
    jobs.until("suspension", lambda: jobs.now([stays])[stays].state is JobState.SUSPENDED, stays, *launched.values())
    jobs.wait_ended(urgent)
    jobs.wait_ready(*launched.values(), restarts=1)
    jobs.wait_counting(stays)
    for job in (stays, *launched.values()):
        found = groups_of_processes(jobs, job)
        assert len(found) >= 3, (job, found)
        for groups in found:
            assert f"/job_{job}/" in groups["freezer"], (job, groups)
            assert cgroups.memory_limit(groups["memory"]) == 300 * MB, (job, groups)
    jobs.finish(stays, *launched.values())
    assert sorted(victim["method"] for victim in jobs.paid()) == ["application", "criu", "dmtcp", "suspend"]
