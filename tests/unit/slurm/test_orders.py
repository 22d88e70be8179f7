"""Sending orders: what depends on an order that was refused is not sent."""

from __future__ import annotations

from omfs_daemon.cluster.jobs import JobRequest, JobState
from omfs_daemon.slurm.orders import HoldJobs, MarkedOrder, RequeueJobs, send_orders
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission


def test_a_job_whose_hold_was_refused_is_not_requeued() -> None:
    """It would start again at once, on the very CPUs."""
    slurm = FakeSlurm.uniform(lambda: 0.0)
    slurm.plugin = True
    theirs, ours = (slurm.submit(Submission(JobRequest(1))) for _ in range(2))
    slurm.admin_hold(theirs)
    gateway, refs = FakeGateway(slurm), (str(theirs), str(ours))
    refusals = send_orders(gateway, [MarkedOrder(HoldJobs(refs), "omfs:held:3?"), RequeueJobs(refs)])
    assert [refusal.ref for refusal in refusals] == [str(theirs)]
    states = {job.id: job.state for job in gateway.jobs()}
    assert states == {theirs: JobState.RUNNING, ours: JobState.COMPLETING}
