"""What Slurm's reasons prove, and how long they are waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omfs_daemon.cluster.job_shape import shape_of
from omfs_daemon.cluster.jobs import Allocation, Hold, Job, JobRequest, JobState
from omfs_daemon.preemption.preemption import Preemptor
from omfs_daemon.preemption.proof import Proof, is_asked, proof_of
from omfs_daemon.slurm.scheduler_pass import scheduler_pass

PREEMPTOR = Preemptor("7", "physics", "ann", False, False, 0.0, (Allocation("n1", 4, 0),), nice=-50)
ASKED = Job(
    id=7,
    ref="7",
    user="ann",
    uid=1,
    account="physics",
    state=JobState.PENDING,
    request=JobRequest(4, required_nodes=frozenset(["n1"])),
    submit=0.0,
    nice=-50,
    priority=9,
    reason="None",
)


@pytest.mark.parametrize(
    ("reason", "proof"),
    [
        ("Resources", Proof.YES),
        ("", Proof.OPEN),
        ("None", Proof.OPEN),
        ("Priority", Proof.OPEN),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", Proof.OPEN),
        ("ReqNodeNotAvail, UnavailableNodes:n1", Proof.OPEN),
        ("ReqNodeNotAvail, Reserved for maintenance", Proof.NO),
        ("ReqNodeNotAvail, May be reserved for other job", Proof.NO),
        ("QOSGrpCpuLimit", Proof.NO),
        ("Licenses", Proof.NO),
        ("BadConstraints", Proof.NO),
    ],
)
def test_only_plain_resources_prove_that_nothing_else_is_lacking(reason: str, proof: Proof) -> None:
    assert proof_of(replace(ASKED, reason=reason), PREEMPTOR) is proof


def test_the_reason_of_a_preemption_in_vain_proves_nothing_again() -> None:
    job = replace(ASKED, reason="Resources")
    assert proof_of(job, replace(PREEMPTOR, doubted="Resources")) is Proof.NO
    assert proof_of(job, replace(PREEMPTOR, doubted="Licenses")) is Proof.YES


def test_a_reason_counts_once_the_job_is_released_ranked_and_pinned() -> None:
    assert is_asked(ASKED, PREEMPTOR)
    assert not is_asked(replace(ASKED, nice=0), PREEMPTOR)
    assert not is_asked(replace(ASKED, request=JobRequest(4)), PREEMPTOR)
    held = replace(ASKED, hold=Hold.ADMIN, priority=0, reason="JobHeldAdmin")
    assert not is_asked(held, PREEMPTOR)
    assert is_asked(replace(held, reason="BadConstraints"), PREEMPTOR), "Slurm itself holds it"


@pytest.mark.parametrize(
    ("parameters", "seconds"),
    [("", 4.0), ("batch_sched_delay=0,sched_interval=1,bf_interval=1", 1.0), ("sched_interval=2", 3.0), ("defer", 4.0)],
)
def test_slurm_looks_at_a_job_within_one_pass(parameters: str, seconds: float) -> None:
    assert scheduler_pass(parameters) == seconds


def test_jobs_that_request_the_same_have_the_same_shape() -> None:
    nodes = [f"n{number}" for number in range(20)]
    one = replace(ASKED, request=JobRequest(4, required_nodes=frozenset(nodes)))
    other = replace(one, id=8, ref="8", nice=0, request=JobRequest(4, required_nodes=frozenset(reversed(nodes))))
    assert shape_of(one) == shape_of(other)
    assert shape_of(one) != shape_of(replace(one, account="bio"))
    assert shape_of(one) != shape_of(replace(one, licenses=(("matlab", 1),)))
    assert shape_of(one) != shape_of(replace(one, request=JobRequest(5)))
