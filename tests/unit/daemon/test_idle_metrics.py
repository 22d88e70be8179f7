"""Causes of idle CPUs now, summed up over time, and waits of started jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.metric_groups.idle_metrics import LONGEST_GAP, IdleMetrics
from omfs_daemon.daemon.store.wait_hours import StartedJob, WaitShare, wait_shares
from omfs_daemon.policy.idle_causes import CAUSES, idle_causes
from tests.support.policy_builders import NOW, nodes, request, snapshot, tree, waiting

NOBODY: frozenset[str] = frozenset()


def ignore(*_: object) -> None:
    """Nothing is kept."""


def site(*jobs: Job, taken: float = NOW) -> Snapshot:
    """Two nodes of four CPUs, two of them taken; a third that is down."""
    first, second, third = nodes(3)
    return snapshot([replace(first, cpus_taken=2), second, replace(third, up=False)], jobs, taken=taken)


@pytest.mark.parametrize(
    ("jobs", "held", "found"),
    [
        ([], [], {"nobody_waits": 6}),
        ([waiting(1, cpus=2, reason="Priority")], [], {"nobody_waits": 4, "does_not_fit": 2}),
        ([waiting(1, cpus=5, reason="Resources")], [], {"nobody_waits": 1, "does_not_fit": 5}),
        ([waiting(1, cpus=2, reason="Priority"), waiting(2, request=request(8, nodes=2), reason="Resources")], [],
         {"kept_for_large": 2, "does_not_fit": 4}),
        ([waiting(1, cpus=2, reason="QOSMaxCpuPerUserLimit")], [], {"nobody_waits": 4, "limited": 2}),
        ([waiting(1, cpus=2, reason="Dependency")], [], {"nobody_waits": 4, "dependent": 2}),
        ([waiting(1, cpus=2, hold=Hold.ADMIN, reason="JobHeldAdmin")], [], {"nobody_waits": 4, "dependent": 2}),
        ([waiting(1, cpus=2, hold=Hold.ADMIN, reason="JobHeldAdmin")], ["1"], {"nobody_waits": 4, "limited": 2}),
    ],
)  # fmt: skip
def test_each_cause(jobs: list[Job], held: list[str], found: dict[str, int]) -> None:
    causes = idle_causes(site(*jobs), frozenset(held))
    assert {cause: cpus for cause, cpus in causes.items() if cpus} == found | {"down": 4}


PENDING = st.lists(
    st.tuples(
        st.integers(1, 12), st.sampled_from(["", "Resources", "Dependency", "AssocGrpCpuLimit"]), st.sampled_from(Hold)
    ),
    max_size=8,
)


@given(PENDING, st.frozensets(st.integers(0, 7).map(str)))
def test_causes_sum_up_to_what_no_job_has(pending: list[tuple[int, str, Hold]], held: frozenset[str]) -> None:
    jobs = [waiting(at, cpus=cpus, reason=why, hold=hold) for at, (cpus, why, hold) in enumerate(pending)]
    causes = idle_causes(site(*jobs), held)
    assert tuple(causes) == CAUSES
    assert sum(causes.values()) == 10
    assert min(causes.values()) >= 0


def test_time_between_polls_counts_unless_it_is_long() -> None:
    registry = CollectorRegistry()
    kept: list[tuple[float, float, int]] = []
    metrics = IdleMetrics(registry, lambda begin, end, cpus: kept.append((begin, end, cpus["dependent"])), ignore)
    job = waiting(1, cpus=2, reason="Dependency")
    for taken in (NOW, NOW + 10, NOW + 15, NOW + 16 + LONGEST_GAP, NOW + 17 + LONGEST_GAP):
        metrics.observe(site(job, taken=taken), tree(bio=50), NOBODY)
    found = {cause: registry.get_sample_value("omfs_idle_cpu_seconds_total", {"cause": cause}) for cause in CAUSES}
    assert found == dict.fromkeys(CAUSES, 0) | {"nobody_waits": 64, "dependent": 32, "down": 64}
    late = NOW + 16 + LONGEST_GAP
    assert kept == [(NOW, NOW + 10, 2), (NOW + 10, NOW + 15, 2), (late, late + 1, 2)]


def test_a_wait_is_from_when_the_job_could_have_started() -> None:
    registry = CollectorRegistry()
    kept: list[Sequence[WaitShare]] = []
    metrics = IdleMetrics(registry, ignore, kept.append)
    job = replace(waiting(1, account="unknown"), submit=NOW - 500, eligible=NOW - 70, partition="main")
    metrics.observe(site(job), tree(bio=50), NOBODY)
    started = replace(job, state=JobState.RUNNING, start=NOW - 10)
    for taken in (NOW, NOW + 5):
        metrics.observe(site(started, taken=taken), tree(bio=50), NOBODY)
    labels = {"partition": "main", "account": "(others)"}
    assert registry.get_sample_value("omfs_wait_seconds_sum", labels) == 60
    assert registry.get_sample_value("omfs_wait_seconds_bucket", labels | {"le": "60.0"}) == 1
    assert registry.get_sample_value("omfs_wait_seconds_bucket", labels | {"le": "10.0"}) == 0
    assert kept == [wait_shares([StartedJob(NOW - 10, "main", "(others)", 60.0)])], "once, of the poll that saw it run"
