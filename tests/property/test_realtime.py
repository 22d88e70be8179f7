"""Real-time jobs on small full clusters: whom they may preempt, and that they preempt the cheapest."""

from __future__ import annotations

from dataclasses import replace
from math import log2

from hypothesis import assume, given
from hypothesis import strategies as st

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.snapshot import PreemptionHistory
from omfs_daemon.policy.plan import PlannedPreemption, Reason
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.rules.classes import JobClassRule, Rules, classify
from omfs_daemon.policy.rules.realtime_terms import CostWeights, JobSize, RealtimeTerms
from omfs_daemon.policy.validator import RefusalReason, validate
from tests.property.test_victim_choice import Site, all_sets, full_sites
from tests.support.policy_builders import CLASSES, FRESH, NOW, request, snapshot, waiting

LIMIT = 100.0
ACT_AT = 1.1


def with_realtime(by: Rules, **terms: object) -> Rules:
    rule = JobClassRule("beamline", qos=frozenset({"rt"}), realtime=RealtimeTerms(**terms))  # type: ignore[arg-type]
    return replace(by, classes=(rule, *CLASSES), job_size=JobSize(50.0, 200.0))


@st.composite
def realtime_jobs(draw: st.DrawFn) -> Job:
    count = draw(st.sampled_from((1, 1, 2)))
    wanted = request(draw(st.integers(1, 4)) * count, nodes=count, memory_per_node=draw(st.sampled_from((0, 0, 4))))
    account = draw(st.sampled_from(("bio", "physics", "genes")))
    waited = draw(st.sampled_from((0.0, 5.0, 9.99, 10.0, 12.0, 60.0)))
    return waiting(99, account, request=wanted, qos="rt", time_limit=LIMIT, submit=NOW - waited)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Site, Job]:
    """Jobs that waited and ran for a while, some of them urgent or real-time themselves."""
    cluster, jobs, by = draw(full_sites().filter(lambda site: len(site[0]) <= 5))
    changed = []
    for job in jobs:
        run, waited = draw(st.integers(0, int(job.time_limit))), draw(st.sampled_from((0, 10, 60, 300, 2000)))
        qos = draw(st.sampled_from(("", "", "", "", "urgent", "rt")))
        changed.append(
            replace(job, submit=NOW - run - waited, start=NOW - run, run_time=float(run), qos=qos, restarts=0)
        )
    weights = CostWeights(*(draw(st.sampled_from((0.0, 1.0, 2.0))) for _ in range(3)))
    most = tuple(draw(st.sampled_from((1.2, 1.5, 4.77, 17.31))) for _ in range(4))
    by = with_realtime(by, bound=1.5, act_at=(ACT_AT,) * 4, victim_max=most, weights=weights)
    return (cluster, changed, by), draw(realtime_jobs())


def slowdown(job: Job) -> float:
    return max(1.0, (job.time_limit + NOW - job.run_time - job.submit) / job.time_limit)


def most_of(job: Job, by: Rules, machine: int) -> float:
    (rule,) = [rule for rule in by.classes if rule.realtime is not None]
    assert rule.realtime is not None
    wide = 100 * job.request.cpus > 50 * machine
    return rule.realtime.victim_max[2 * wide + (job.time_limit > 200)]


def cost(planned: PlannedPreemption, jobs: dict[int, Job], by: Rules) -> float:
    """By the page's formula, not by the code under test."""
    (rule,) = [rule for rule in by.classes if rule.realtime is not None]
    assert rule.realtime is not None
    weights, total = rule.realtime.weights, 0.0
    for victim in planned.victims:
        job = jobs[int(victim.ref)]
        lost = job.run_time if victim.method == "requeue" else 0.0
        left = job.time_limit - job.run_time
        late = 5 if left <= min(job.time_limit / 4, 900) else 1
        total += (
            victim.cpus
            * log2(2 + slowdown(job)) ** weights.slowdown
            * (1 + lost / 900) ** weights.checkpoint
            * late**weights.remaining
        )
    return total


@given(worlds())
def test_victims_of_real_time_jobs(world: tuple[Site, Job]) -> None:
    (cluster, jobs, by), job = world
    seen = snapshot(cluster, [*jobs, job])
    plan = make_plan(seen, PreemptionHistory(), by, NOW)
    machine = sum(node.cpus for node in cluster)
    verdict = validate(plan, seen, PreemptionHistory(), by, NOW, FRESH)
    assert not verdict.refused, "what is planned lets the preemptor start, and nobody is needless"
    (standing,) = plan.realtime
    assert standing.is_due == (NOW - job.submit >= 10.0)
    for planned in plan.preemptions:
        for victim in planned.victims:
            preempted = seen.jobs[int(victim.ref)]
            assert preempted.qos not in ("urgent", "rt")
            if planned.reason is Reason.REALTIME:
                assert standing.is_due
                assert slowdown(preempted) <= most_of(preempted, by, machine)


@given(worlds())
def test_the_cheapest_set_of_all_is_preempted(world: tuple[Site, Job]) -> None:
    (cluster, jobs, by), job = world
    assume(NOW - job.submit >= 10.0)
    seen = snapshot(cluster, [*jobs, job])
    plan = make_plan(seen, PreemptionHistory(), by, NOW)
    if plan.starts:
        return
    of_borrowers = [*all_sets(seen, replace(by, urgent_may_take_entitled=False), Reason.REALTIME)]
    possible = of_borrowers or [*all_sets(seen, by, Reason.REALTIME)]
    chosen = [planned for planned in plan.preemptions if planned.reason is Reason.REALTIME]
    if not possible:
        assert not chosen
        return
    (planned,) = chosen
    least = min(cost(other, dict(seen.jobs), by) for other in possible)
    assert cost(planned, dict(seen.jobs), by) <= least * (1 + 1e-9)


@given(worlds())
def test_nothing_changes_without_real_time_jobs(world: tuple[Site, Job]) -> None:
    (cluster, jobs, by), job = world
    ordinary = replace(job, qos="")
    others = [other for other in jobs if other.qos != "rt"]
    seen = snapshot(cluster, [*others, ordinary])
    without = replace(by, classes=CLASSES)
    assert make_plan(seen, PreemptionHistory(), by, NOW) == make_plan(seen, PreemptionHistory(), without, NOW)


@given(worlds())
def test_the_validator_refuses_what_a_real_time_job_may_not_do(world: tuple[Site, Job]) -> None:
    (cluster, jobs, by), job = world
    seen = snapshot(cluster, [*jobs, job])
    plan = make_plan(seen, PreemptionHistory(), by, NOW)
    for planned in plan.preemptions:
        if planned.reason is not Reason.REALTIME:
            continue
        alone = replace(plan, starts=(), promises=(), resumes=(), preemptions=(planned,))
        early = replace(seen, jobs={**seen.jobs, 99: replace(job, submit=NOW - 5.0)})
        (refused,) = validate(alone, early, PreemptionHistory(), by, NOW, FRESH).refused
        assert refused.reason is RefusalReason.NOT_DUE
        first = seen.jobs[int(planned.victims[0].ref)]
        assert classify(by, first).methods
        late = replace(seen, jobs={**seen.jobs, first.id: replace(first, submit=NOW - 1e6)})
        (refused,) = validate(alone, late, PreemptionHistory(), by, NOW, FRESH).refused
        assert refused.reason is RefusalReason.TOO_SLOW


@given(worlds())
def test_without_real_time_jobs_a_class_for_them_changes_nothing(world: tuple[Site, Job]) -> None:
    (cluster, jobs, by), job = world
    ordinary = [replace(one, qos="" if one.qos == "rt" else one.qos) for one in (*jobs, job)]
    seen = snapshot(cluster, ordinary)
    without = replace(by, classes=tuple(rule for rule in by.classes if rule.realtime is None))
    plans = [make_plan(seen, PreemptionHistory(), rules, NOW) for rules in (by, without)]
    assert repr(plans[0]) == repr(plans[1])
