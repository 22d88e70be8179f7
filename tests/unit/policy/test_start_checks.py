"""Whether Slurm would start a job, rule by rule."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from omfs_daemon.cluster.jobs import Allocation, Job, JobState
from omfs_daemon.cluster.limits import (
    Association,
    Limit,
    Qos,
    RunningLimits,
    SiteLicense,
    SiteLimits,
    SiteReservation,
    UsageLimits,
)
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.cluster.snapshot import PreemptionHistory, Snapshot
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.plan import Reason
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.start_checks.answer import YES, Answer, AnswerKind
from omfs_daemon.policy.start_checks.static_rules import LeavingVictim, StartChecks
from omfs_daemon.policy.validator import RefusalReason, validate
from tests.support.policy_builders import FRESH, GB, NOW, nodes, request, rules, running, snapshot, waiting

NO, UNKNOWN = AnswerKind.NO, AnswerKind.UNKNOWN
N1 = (Allocation("n0", 1, GB),)
N0 = frozenset({"n0"})
ENFORCED = frozenset({"associations", "limits", "qos"})
NORMAL = Qos("normal", by_user={1: RunningLimits()}, by_account={"bio": RunningLimits()}, flags=frozenset())
JOB = waiting(7, qos="normal", time_limit=3600.0)
RUNS = running(3, "bio", request=request(2, memory_per_cpu=1), qos="normal")
NO_LIMITS = UsageLimits()


def site(
    level: Qos = NORMAL, account: UsageLimits = NO_LIMITS, user: UsageLimits = NO_LIMITS, **fields: Any
) -> SiteLimits:
    associations = {
        ("root", "", ""): Association("root"),
        ("bio", "", ""): Association("bio", parent="root", limits=account),
        ("bio", "u", ""): Association("bio", "u", own_jobs=fields.pop("own_jobs", None), limits=user),
    }
    return SiteLimits(**{"enforced": ENFORCED, "associations": associations, "qos": {"normal": level}} | fields)


def checks(*jobs: Job, limits: SiteLimits | None = None, partition: Partition | None = None) -> StartChecks:
    parts = [partition or Partition("main", frozenset({"n0", "n1"}))]
    shown = replace(snapshot(nodes(2), jobs), limits=limits or site(), partitions={p.name: p for p in parts})
    return StartChecks(SnapshotArrays(shown), PreemptionHistory(), NOW)


def answer(job: Job, *others: Job, **fields: Any) -> Answer:
    return checks(job, *others, **fields).answer(job, N1)


def qos(**fields: Any) -> SiteLimits:
    return site(replace(NORMAL, limits=UsageLimits(**fields)))


def in_partition(**fields: Any) -> dict[str, Any]:
    return {"partition": Partition("main", frozenset({"n0", "n1"}), **fields)}


def test_yes_where_nothing_is_lacking() -> None:
    assert answer(JOB, RUNS) == YES


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        (qos(tres={"cpu": 2}), "QOSGrpCpuLimit"),
        (qos(tres={"mem": 2 * GB}), "QOSGrpMemLimit"),
        (qos(jobs=1), "QOSGrpJobsLimit"),
        (qos(wall=Limit(60.0, 60.0)), "QOSGrpWallLimit"),
        (qos(tres_seconds={"cpu": Limit(60.0, 61.0)}), "QOSGrpCPUMinutesLimit"),
        (qos(running_seconds={"cpu": Limit(60.0, 0.0)}), "QOSGrpCPURunMinutesLimit"),
        (qos(job_tres={"cpu": 0}), "QOSMaxCpuPerJobLimit"),
        (qos(job_tres={"mem": 1}), "QOSMaxMemoryPerJob"),
        (qos(job_wall=60.0), "QOSMaxWallDurationPerJobLimit"),
        (qos(job_tres_seconds={"cpu": 60}), "QOSMaxCpuMinutesPerJobLimit"),
        (site(replace(NORMAL, by_user={1: RunningLimits(1)})), "QOSMaxJobsPerUserLimit"),
        (site(replace(NORMAL, by_user={1: RunningLimits(None, {"cpu": 2})})), "QOSMaxCpuPerUserLimit"),
        (site(replace(NORMAL, by_account={"bio": RunningLimits(None, {"cpu": 2})})), "MaxCpuPerAccount"),
        (site(account=UsageLimits(tres={"cpu": 2})), "AssocGrpCpuLimit"),
        (site(account=UsageLimits(jobs=1)), "AssocGrpJobsLimit"),
        (site(account=UsageLimits(wall=Limit(60.0, 90.0))), "AssocGrpWallLimit"),
        (site(account=UsageLimits(tres_seconds={"cpu": Limit(60.0, 60.0)})), "AssocGrpCPUMinutesLimit"),
        (site(user=UsageLimits(job_wall=60.0)), "AssocMaxWallDurationPerJobLimit"),
        (site(own_jobs=1), "AssocMaxJobsLimit"),
        (site(associations={}), "InvalidAccount"),
    ],
)
def test_no_beyond_a_limit(limits: SiteLimits, word: str) -> None:
    found = answer(JOB, RUNS, limits=limits)
    assert (found.kind, found.reason.removesuffix("Limit")) == (NO, word.removesuffix("Limit"))


@pytest.mark.parametrize(
    "limits",
    [
        qos(tres={"cpu": 3}, jobs=2, wall=Limit(60.0, 10.0), tres_seconds={"cpu": Limit(1e6, 0.0)}),
        qos(running_seconds={"cpu": Limit(1e6, 0.0)}, job_tres={"cpu": 1}, job_wall=3600.0),
        site(replace(NORMAL, by_user={1: RunningLimits(2, {"cpu": 3})})),
        site(account=UsageLimits(jobs=2, tres={"cpu": 3}), own_jobs=2),
        site(user=UsageLimits(tres={"gres/gpu": 0})),
        site(enforced=frozenset({"associations"}), account=UsageLimits(jobs=0)),
        SiteLimits(),
    ],
)
def test_yes_within_limits_and_where_none_is_enforced(limits: SiteLimits) -> None:
    assert answer(JOB, RUNS, limits=limits) == YES


def test_a_limit_of_the_qos_replaces_that_of_associations() -> None:
    account = UsageLimits(tres={"cpu": 1}, jobs=1)
    level = replace(NORMAL, limits=UsageLimits(tres={"cpu": 9}, jobs=9))
    assert answer(JOB, RUNS, limits=site(level, account)) == YES
    assert answer(JOB, RUNS, limits=site(NORMAL, account)).kind is NO


@pytest.mark.parametrize(("flags", "kind"), [(frozenset[str](), NO), (frozenset({"OverPartQOS"}), AnswerKind.YES)])
def test_the_qos_of_the_partition_comes_first_unless_the_jobs_is_over_it(
    flags: frozenset[str], kind: AnswerKind
) -> None:
    level = replace(NORMAL, limits=UsageLimits(tres={"cpu": 9}), flags=flags)
    small = replace(NORMAL, name="small", limits=UsageLimits(tres={"cpu": 2}))
    limits = site(qos={"normal": level, "small": small})
    assert answer(JOB, RUNS, limits=limits, **in_partition(qos="small")).kind is kind


@pytest.mark.parametrize(
    "limits",
    [
        site(enforced=None),
        site(associations=None),
        site(qos=None),
        site(replace(NORMAL, flags=None)),
        site(replace(NORMAL, has_usage_threshold=True)),
        site(replace(NORMAL, by_user={})),
        qos(tres={"billing": 9}),
        qos(wall=Limit(60.0, 58.0)),
        qos(node_tres={"cpu": 0}),
        qos(not_modeled=frozenset({"MinPrioThresh"})),
        site(enforced=ENFORCED | {"safe"}, account=UsageLimits(tres_seconds={"cpu": Limit(1e9, 0.0)})),
    ],
)
def test_unknown_where_a_limit_cannot_be_told(limits: SiteLimits) -> None:
    assert answer(JOB, RUNS, limits=limits).kind is UNKNOWN


def test_a_limit_that_a_victim_uses_is_no_obstacle_if_it_leaves() -> None:
    checked = checks(JOB, RUNS, limits=qos(tres={"cpu": 2}))
    assert checked.answer(JOB, N1).kind is NO
    assert checked.answer(JOB, N1, [LeavingVictim(RUNS, leaves=True)]) == YES
    assert checked.answer(JOB, N1, [LeavingVictim(RUNS, leaves=False)]).reason == "QOSGrpCpuLimit"
    assert checked.answer(JOB, N1).kind is NO, "what was tried is not kept"
    assert checked.for_good(JOB) == YES
    assert checks(JOB, RUNS, limits=qos(job_tres={"cpu": 0})).for_good(JOB).kind is NO


def test_suspended_jobs_count_and_completing_ones_do_not() -> None:
    for state, kind in ((JobState.SUSPENDED, NO), (JobState.COMPLETING, AnswerKind.YES)):
        assert answer(JOB, replace(RUNS, state=state), limits=qos(tres={"cpu": 2})).kind is kind


def test_what_is_planned_counts() -> None:
    checked = checks(JOB, limits=qos(tres={"cpu": 1}))
    assert checked.answer(JOB) == YES
    checked.count(JOB, N1)
    assert checked.answer(waiting(8, qos="normal", time_limit=3600.0)).reason == "QOSGrpCpuLimit"


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"up": False, "state": "DOWN"}, "PartitionDown"),
        ({"up": False, "state": "INACTIVE"}, "PartitionInactive"),
        ({"max_time": 60.0}, "PartitionTimeLimit"),
        ({"max_nodes": 1}, ""),
        ({"min_nodes": 2}, "PartitionNodeLimit"),
        ({"allow_accounts": frozenset({"physics"})}, "AccountNotAllowed"),
        ({"deny_accounts": frozenset({"bio"})}, "AccountNotAllowed"),
        ({"allow_qos": frozenset({"high"})}, "QOSNotAllowed"),
        ({"deny_qos": frozenset({"normal"})}, "QOSNotAllowed"),
        ({"max_memory_per_node": GB // 2}, "MaxMemPerLimit"),
    ],
)
def test_partition(fields: dict[str, Any], word: str) -> None:
    job = replace(JOB, request=request(1, memory_per_node=1))
    assert answer(job, **in_partition(**fields)).reason == word


def test_qos_may_lift_limits_of_the_partition() -> None:
    lifted = site(replace(NORMAL, flags=frozenset({"PartitionTimeLimit"})))
    assert answer(JOB, limits=lifted, **in_partition(max_time=60.0)) == YES
    assert answer(JOB, limits=site(replace(NORMAL, flags=None)), **in_partition(max_time=60.0)).kind is UNKNOWN


@pytest.mark.parametrize(
    ("fields", "others", "word"),
    [
        ({"eligible": inf}, [], "Dependency"),
        ({"eligible": NOW + 60}, [], "BeginTime"),
        ({"singleton": True, "name": "x"}, [replace(RUNS, name="x")], "Dependency"),
        ({"singleton": True, "name": "x"}, [waiting(6, name="x")], "Dependency"),
        ({"singleton": True, "name": "x"}, [waiting(9, name="x"), replace(RUNS, name="y")], ""),
        ({"reservation": "r"}, [], "Reservation"),
        ({"reason": "BadConstraints"}, [], "BadConstraints"),
        ({"licenses": (("fluent", 2),)}, [replace(RUNS, licenses=(("fluent", 1),))], "Licenses"),
        ({"licenses": (("fluent", 2),)}, [], ""),
        ({"array_id": 7, "task_ids": (1, 2), "array_throttle": 1}, [replace(RUNS, array_id=7)], "JobArrayTaskLimit"),
        ({"array_id": 7, "task_ids": (1, 2), "array_throttle": 2}, [replace(RUNS, array_id=7)], ""),
        ({}, [replace(RUNS, uid=2, exclusive_user=True)], "Resources"),
        ({"exclusive_user": True}, [replace(RUNS, uid=2)], "Resources"),
        ({"exclusive_user": True}, [RUNS], ""),
        (
            {"request": request(1, required_nodes=frozenset({"n1"}), excluded_nodes=frozenset({"n1"}))},
            [],
            "ReqNodeNotAvail",
        ),
    ],
)
def test_what_the_job_asks_for(fields: dict[str, Any], others: list[Job], word: str) -> None:
    limits = site(licenses={"fluent": SiteLicense(2)})
    assert answer(replace(JOB, **fields), *others, limits=limits).reason == word


def test_doubtful_licenses_and_reservations() -> None:
    job = replace(JOB, licenses=(("fluent", 2),))
    assert answer(job, limits=site(licenses={"fluent": SiteLicense(2, reserved=1)})).kind is UNKNOWN
    assert answer(job, limits=site(licenses={"fluent": SiteLicense(9, remote=True)})).kind is UNKNOWN
    assert answer(job, limits=site(licenses=None)).kind is UNKNOWN
    active = site(reservations=(SiteReservation("r", NOW - 1, NOW + 1),))
    assert answer(replace(JOB, reservation="r"), limits=active).kind is UNKNOWN
    assert answer(replace(JOB, reservation="r"), limits=site(reservations=None)).kind is UNKNOWN


def test_unknown_while_a_job_of_a_higher_tier_waits_for_the_nodes() -> None:
    main, high = Partition("main", frozenset({"n0", "n1"})), Partition("high", N0, priority_tier=5)
    parts, yes = {"main": main, "high": high}, AnswerKind.YES
    for fields, kind in (({}, UNKNOWN), ({"eligible": NOW + 9}, yes), ({"reason": "QOSGrpCpuLimit"}, yes)):
        other = replace(waiting(8, request=request(1, partitions=("high",))), **fields)  # type: ignore[arg-type]
        shown = replace(snapshot(nodes(2), [JOB, other]), limits=site(), partitions=parts)
        checked = StartChecks(SnapshotArrays(shown), PreemptionHistory(), NOW)
        assert checked.answer(JOB, N1).kind is kind
        assert checked.answer(JOB, (Allocation("n1", 1, GB),)) == YES


def test_nothing_is_checked_without_limits() -> None:
    checked = StartChecks(SnapshotArrays(snapshot(nodes(2), [JOB])), PreemptionHistory(), NOW)
    assert not checked.is_on
    assert checked.answer(replace(JOB, eligible=inf), N1) == YES


# -- planner and validator -----------------------------------------------------------------------------
def full(*waits: Job, limits: SiteLimits) -> Snapshot:
    taken = [running(n + 1, "physics", 4, f"n{n}", qos="low") for n in range(2)]
    return replace(snapshot(nodes(2), [*taken, *waits]), limits=limits)


SITE_RULES = rules(bio=100, physics=0)
BIG = request(4)


def test_nobody_is_preempted_for_a_job_that_slurm_would_not_start() -> None:
    refused = replace(JOB, request=BIG)
    other = replace(waiting(8, request=BIG, qos="normal", time_limit=3600.0), user="v", uid=2)
    limits = site(replace(NORMAL, by_user={1: RunningLimits(0), 2: RunningLimits()}))
    limits = replace(limits, associations={**(limits.associations or {}), ("bio", "v", ""): Association("bio", "v")})
    plan = make_plan(full(refused, other, limits=limits), PreemptionHistory(), SITE_RULES, NOW)
    assert [planned.preemptor for planned in plan.preemptions] == ["8"]
    wait = next(wait for wait in plan.waits if wait.ref == "7")
    assert wait.reason is Reason.WOULD_NOT_START
    assert wait.text.startswith("Slurm would not start it (QOSMaxJobsPerUserLimit): QOS normal for each user allows 0")


def test_only_as_many_tasks_as_the_array_may_run() -> None:
    array = replace(JOB, ref="7_[1-5]", array_id=7, task_ids=(1, 2, 3, 4, 5), array_throttle=1, request=BIG)
    shown = full(array, limits=site())
    plan = make_plan(shown, PreemptionHistory(), SITE_RULES, NOW)
    assert [planned.preemptor for planned in plan.preemptions] == ["7_1"]
    verdict = validate(plan, shown, PreemptionHistory(), SITE_RULES, NOW, FRESH)
    assert verdict.answers == {"7_1": YES}


def test_idle_nodes_are_not_kept_for_a_job_that_slurm_would_not_start() -> None:
    refused = replace(JOB, request=BIG, eligible=None, licenses=(("fluent", 1),))
    other = waiting(8, request=BIG, qos="normal", time_limit=3600.0)
    busy = [running(1, "physics", 4, "n0", qos="low")]
    shown = replace(snapshot(nodes(2), [*busy, refused, other]), limits=site(licenses={"fluent": SiteLicense(0)}))
    plan = make_plan(shown, PreemptionHistory(), SITE_RULES, NOW)
    assert [start.ref for start in plan.starts] == ["8"]
    assert plan.preemptions == ()


def test_validator_refuses_with_slurms_word() -> None:
    job = replace(JOB, request=BIG)
    allowed = full(job, limits=site())
    plan = make_plan(allowed, PreemptionHistory(), SITE_RULES, NOW)
    shown = replace(allowed, limits=qos(job_wall=60.0))
    (refused,) = validate(plan, shown, PreemptionHistory(), SITE_RULES, NOW, FRESH).refused
    assert refused.reason is RefusalReason.WOULD_NOT_START
    assert "QOSMaxWallDurationPerJobLimit" in refused.text


def test_answers_of_doubtful_preemptions_are_unknown() -> None:
    shown = full(replace(JOB, request=BIG), limits=site(qos=None))
    plan = make_plan(shown, PreemptionHistory(), SITE_RULES, NOW)
    verdict = validate(plan, shown, PreemptionHistory(), SITE_RULES, NOW, FRESH)
    assert verdict.answers["7"].kind is UNKNOWN
