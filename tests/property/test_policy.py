"""The laws of the policy as properties over made-up clusters, account trees and job mixes.

Sources: OMFS (section II and Algorithm 1) and UJFB (section IV); where a paper is unclear, the docstrings in
``omfs_daemon/policy`` give our decision.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.cluster.jobs import Allocation, Job, JobState
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.snapshot import PreemptedJob, PreemptionHistory, Snapshot
from omfs_daemon.policy.plan import Plan, PlannedPreemption
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.rules.classes import REGULAR, Rules, classify
from omfs_daemon.policy.validator import RefusalReason, Verdict, validate
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS
from tests.support.policy_builders import (
    CLASSES,
    FRESH,
    NOW,
    World,
    held,
    nodes,
    request,
    running,
    tree,
    urgent,
    waiting,
    world,
)

TREES: tuple[AccountTree, ...] = (
    tree(bio=50, physics=50),
    tree(bio=25, physics=50),
    tree(bio=70, physics=10, maths=20),
    tree(bio=50, bio__genes=50, bio__cells=50, physics=50, physics__stars=40),
    tree(bio=60, bio__genes=30, bio__genes__a=50, bio__genes__b=50, physics=40, physics__stars=100),
)
METHODS = ("omfs:method=requeue", "omfs:method=suspend", "omfs:method=suspend,requeue")


def accounts_of(owners: AccountTree) -> list[str]:
    return [entitlement.name for entitlement in owners.entitlements] + ["stranger"]


@st.composite
def sites(draw: st.DrawFn) -> tuple[list[Node], Rules]:
    count, cpus = draw(st.integers(1, 4)), draw(st.integers(2, 8))
    cluster = nodes(count, cpus, memory=cpus * 2)
    if draw(st.booleans()):
        cluster.append(Node("odd", draw(st.integers(1, 12)), 8 << 30, partitions=("main",), gres=(("gpu", 2),)))
    by = Rules(
        tree=draw(st.sampled_from(TREES)), classes=CLASSES, quantum=0.0, max_preemptions_per_hour=9999,
        max_preemptions_per_cycle=draw(st.sampled_from((2, 5, 1000))), methods=BUILT_IN_TRAITS, unmatched=REGULAR,
    )  # fmt: skip
    return cluster, by


@st.composite
def any_request(draw: st.DrawFn) -> Any:
    shape = draw(st.sampled_from(("one", "one", "one", "even", "open", "whole", "gpu", "memory")))
    cpus = draw(st.integers(1, 6))
    if shape == "even":
        count = draw(st.integers(2, 3))
        return request(cpus + count - 1, nodes=count)
    if shape == "open":
        return request(cpus + 2, nodes=1, max_nodes=0, min_cpus_per_node=draw(st.integers(1, 2)))
    if shape == "whole":
        return request(cpus, exclusive=True)
    if shape == "gpu":
        return request(cpus, gres=(("gpu", draw(st.integers(1, 2))),))
    if shape == "memory":
        return request(min(cpus, 3), memory_per_cpu=draw(st.integers(1, 4)))
    return request(cpus)


@st.composite
def any_job(draw: st.DrawFn, number: int, names: Sequence[str], simple: bool = False) -> Job:
    account, kind = draw(st.sampled_from(names)), draw(st.integers(0, 9))
    fields: dict[str, Any] = {
        "request": request(1) if simple else draw(any_request()),
        "priority": draw(st.integers(0, 4)),
        "time_limit": draw(st.sampled_from((600.0, 3600.0, float("inf")))),
    }
    if kind == 0 and not simple:
        return held(number, account, **fields)
    if kind == 1 and not simple:
        return urgent(number, account, **fields)
    requeue = simple or kind != 2
    return waiting(number, account, comment=draw(st.sampled_from(METHODS)), requeue=requeue, **fields)


@st.composite
def mixes(draw: st.DrawFn, simple: bool = False, most: int = 14) -> tuple[World, list[Job]]:
    """A site with the jobs that come first, and those that come later."""
    cluster, by = draw(sites())
    names = accounts_of(by.tree)
    first, later = draw(st.integers(0, most)), draw(st.integers(0, most))
    jobs = [draw(any_job(number, names, simple)) for number in range(1, first + later + 1)]
    return world(cluster, jobs[:first], by), jobs[first:]


def usable_methods(site: World, job: Job) -> tuple[str, ...]:
    """The methods of the job's class; a job that Slurm would not requeue may only be suspended."""
    return tuple(name for name in classify(site.rules, job).methods if job.requeue or name == "suspend")


def arrive(site: World, jobs: Sequence[Job]) -> None:
    site.jobs.update({job.id: job for job in jobs})


def entitled(site: World) -> list[int]:
    return site.rules.tree.entitled(sum(node.cpus for node in site.nodes))


def used_by_entity(owners: AccountTree, jobs: Sequence[Job]) -> list[int]:
    used = [0] * len(owners.entities)
    for job in jobs:
        for index in owners.leaf(job.account).path:
            used[index] += sum(allocation.cpus for allocation in job.allocations)
    return used


# -- a second, simple placement, for small clusters ---
def idle(cluster: Sequence[Node], jobs: Sequence[Job]) -> dict[str, list[int]]:
    """CPUs, bytes, GPUs that are free by node; suspended jobs keep their memory and GPUs."""
    free = {node.name: [node.cpus, node.memory, dict(node.gres).get("gpu", 0)] for node in cluster}
    for job in jobs:
        for allocation in job.allocations:
            suspended = job.state is JobState.SUSPENDED
            free[allocation.node][0] -= 0 if suspended else allocation.cpus
            free[allocation.node][1] -= allocation.memory
            free[allocation.node][2] -= dict(job.request.gres).get("gpu", 0)
    return free


def can_hold(free: dict[str, list[int]], cluster: Sequence[Node], job: Job) -> bool:
    """Try all sets of nodes, and all ways to share the CPUs out among them that the request allows."""
    wanted = job.request
    sizes = {node.name: node for node in cluster}
    gpus = dict(wanted.gres).get("gpu", 0)
    for count in range(wanted.nodes, (wanted.max_nodes or len(sizes)) + 1):
        for chosen in itertools.combinations(sizes, count):
            if any(free[name][2] < gpus for name in chosen):
                continue
            if wanted.exclusive:
                empty = all(free[name][:2] == [sizes[name].cpus, sizes[name].memory] for name in chosen)
                if empty and sum(sizes[name].cpus for name in chosen) >= wanted.cpus:
                    return True
                continue
            room = [
                min(free[name][0], free[name][1] // wanted.memory_per_cpu if wanted.memory_per_cpu else 99)
                for name in chosen
            ]
            if min(room) >= wanted.min_cpus_per_node and sum(room) >= wanted.cpus >= count * wanted.min_cpus_per_node:
                return True
    return False


def fits_on(free: dict[str, list[int]], allocations: Sequence[Allocation], gpus: int, held: bool) -> bool:
    """Whether exactly these shares are free (``held``: memory and GPUs are the job's own already)."""
    return all(
        free[allocation.node][0] >= allocation.cpus
        and (held or (free[allocation.node][1] >= allocation.memory and free[allocation.node][2] >= gpus))
        for allocation in allocations
    )


# -- OMFS ------------------------------------------------------------------------------------------------------------
@given(mixes(simple=True, most=30))
def test_who_has_enough_demand_reaches_the_entitlement_at_once(mix: tuple[World, list[Job]]) -> None:
    """Preemptible one-CPU jobs past their quantum: in as many cycles as the limit on preemptions needs."""
    site, later = mix
    site.rest()
    arrive(site, later)
    site.rest()
    demand = [0] * len(entitled(site))
    for job in site.jobs.values():
        if not is_bound_to_a_full_node(site, job):
            for index in site.rules.tree.leaf(job.account).path:
                demand[index] += 1
    used = used_by_entity(site.rules.tree, [job for job in site.jobs.values() if job.runs])
    for mine, owned, wanted in zip(used, entitled(site), demand, strict=True):
        assert mine >= min(owned, wanted)


def is_bound_to_a_full_node(site: World, job: Job) -> bool:
    """A suspended job can run on its own node only; there, nobody may have to give: all others are of its own account,
    or of one that is within its entitlement, itself or above."""
    if job.state is not JobState.SUSPENDED:
        return False
    tree, owned = site.rules.tree, entitled(site)
    running = [other for other in site.jobs.values() if other.runs]
    used = used_by_entity(tree, running)
    (node,) = (allocation.node for allocation in job.allocations)
    beside = [other for other in running if node in other.on_nodes]
    mine = set(tree.leaf(job.account).path)
    others = [set(tree.leaf(other.account).path) - mine for other in beside]
    is_full = idle(site.nodes, list(site.jobs.values()))[node][0] == 0
    return is_full and all(not path or any(used[index] <= owned[index] for index in path) for path in others)


@given(mixes())
def test_comes_to_rest_and_the_validator_accepts_every_preemption(mix: tuple[World, list[Job]]) -> None:
    """With a fixed set of jobs preemptions end, and planner and validator count alike."""
    site, later = mix
    for batch in (list(site.jobs.values()), later):
        arrive(site, batch)
        for _ in range(60):
            _, _, suggested, verdict = site.step()
            assert verdict.refused == ()
            assert verdict.preemptions == suggested.preemptions and set(verdict.resumes) == set(suggested.resumes)
            if not (suggested.starts or suggested.preemptions or suggested.resumes or suggested.releases):
                break
        else:
            raise AssertionError(f"no rest: {site.preemptions[-8:]}")


@given(mixes())
def test_preemptions_follow_the_rules_in_every_cycle(mix: tuple[World, list[Job]]) -> None:
    """Checked independently: the victims may be preempted, the preemptor starts, and nothing is overcommitted."""
    site, later = mix
    arrive(site, later[: len(later) // 2])
    for cycle in range(8):
        if cycle == 4:
            arrive(site, later)
        before = list(site.jobs.values())
        _, _, _suggested, verdict = site.step()
        for planned in verdict.preemptions:
            victims = {victim.ref: victim.method for victim in planned.victims}
            for job in before:
                if job.ref in victims:
                    job_class = classify(site.rules, job)
                    assert job.runs and not job_class.urgent and victims[job.ref] in usable_methods(site, job)
        assert_nothing_overcommitted(site)
        for planned in verdict.preemptions:
            preemptor = next(job for job in site.jobs.values() if job.ref == planned.preemptor)
            assert preemptor.runs
        for account in accounts_of(site.rules.tree):
            assert_non_preemptible_within(site, account)


def assert_nothing_overcommitted(site: World) -> None:
    for cpus, memory, gpus in idle(site.nodes, list(site.jobs.values())).values():
        assert cpus >= 0 and memory >= 0 and gpus >= 0


def assert_non_preemptible_within(site: World, account: str) -> None:
    non_preemptible = [
        job
        for job in site.jobs.values()
        if job.runs and not classify(site.rules, job).methods and not classify(site.rules, job).urgent
    ]
    used, owned = used_by_entity(site.rules.tree, non_preemptible), entitled(site)
    for index in site.rules.tree.leaf(account).path:
        assert used[index] <= owned[index]


@given(mixes(simple=True, most=20))
def test_nothing_is_taken_from_an_account_at_or_below_its_entitlement(mix: tuple[World, list[Job]]) -> None:
    """One-CPU jobs: an account that gave, on whatever level, still has all that it owns.

    Looked at after the cycle, since what the cycle gave it before counts as well.
    """
    site, later = mix
    site.rest()
    arrive(site, later)
    paths = {job.ref: site.rules.tree.leaf(job.account).path for job in site.jobs.values()}
    _, _, _, verdict = site.step()
    after = used_by_entity(site.rules.tree, [job for job in site.jobs.values() if job.runs])
    owned = entitled(site)
    for planned in verdict.preemptions:
        for victim in planned.victims:
            for index in set(paths[victim.ref]) - set(paths[planned.preemptor]):
                assert after[index] >= owned[index]


@given(mixes(simple=True, most=30))
def test_uses_no_less_than_hard_partitioning(mix: tuple[World, list[Job]]) -> None:
    """A wall around each account would let it run min(demand, entitlement); the rest would stay idle."""
    site, later = mix
    arrive(site, later)
    site.rest()
    demand = [0] * len(entitled(site))
    for job in site.jobs.values():
        demand[site.rules.tree.leaf(job.account).index] += 1
    walled = sum(
        min(wanted, owned)
        for entity, wanted, owned in zip(site.rules.tree.entities, demand, entitled(site), strict=True)
        if entity.is_leaf
    )
    assert site.used() >= walled
    assert site.used() == min(len(site.jobs), sum(node.cpus for node in site.nodes))  # work-conserving, even


@given(mixes())
def test_what_the_rules_let_start_starts(mix: tuple[World, list[Job]]) -> None:
    """At rest no waiting job fits on what is idle, unless a rule holds it (non-preemptible beyond its entitlement).

    Our placing may be more careful than the obvious one only in sharing out the CPUs of a fixed number of nodes.
    """
    site, later = mix
    arrive(site, later)
    site.rest()
    jobs = list(site.jobs.values())
    free = idle(site.nodes, jobs)
    for job in jobs:
        uneven = job.request.nodes > 1
        if job.state is JobState.PENDING and classify(site.rules, job).methods and not uneven:
            assert not can_hold(free, site.nodes, job), job.ref


# -- urgent jobs ---
@given(mixes(), st.data())
def test_laws_of_urgent_jobs(mix: tuple[World, list[Job]], data: st.DataObject) -> None:
    """It starts if it fits; else if regular jobs hold enough; and never at an urgent one's cost."""
    site, later = mix
    arrive(site, later)
    site.rules = replace(site.rules, max_preemptions_per_cycle=1000)
    site.rest()
    assume(not any(classify(site.rules, j).urgent and j.state is JobState.PENDING for j in site.jobs.values()))
    job = urgent(900, "stranger", request=data.draw(any_request()))
    arrive(site, [job])
    jobs = [other for other in site.jobs.values() if other.allocations]
    stays = [other for other in jobs if not usable_methods(site, other) or (other.state is JobState.SUSPENDED)]
    fits = can_hold(idle(site.nodes, jobs), site.nodes, job)
    # A job that is suspended keeps its memory; one that may be requeued gives all.
    suspended = [replace(o, state=JobState.SUSPENDED) for o in jobs if usable_methods(site, o) == ("suspend",)]
    may_fit = can_hold(idle(site.nodes, [*stays, *(o for o in suspended if o not in stays)]), site.nodes, job)
    _, _, suggested, verdict = site.step()
    now_runs = site.jobs[900].runs
    if job.request.nodes == 1:
        if fits:
            assert now_runs and not any(r.preemptor == "900" for r in verdict.preemptions)
        assert now_runs == may_fit
    urgent_refs = {j.ref for j in site.jobs.values() if classify(site.rules, j).urgent}
    assert not urgent_refs & {victim.ref for planned in suggested.preemptions for victim in planned.victims}


@given(
    st.lists(st.tuples(st.sampled_from(("bio", "physics", "stranger")), st.integers(1, 9)), min_size=1, max_size=8),
    st.integers(1, 8),
)
def test_urgent_takes_longest_remaining_first_from_borrowers_first(held: list[tuple[str, int]], wanted: int) -> None:
    by = Rules(tree=TREES[0], classes=CLASSES, quantum=1e9, methods=BUILT_IN_TRAITS, unmatched=REGULAR)
    jobs = [running(i, account, time_limit=100.0 * hours) for i, (account, hours) in enumerate(held, 1)]
    cluster = nodes(1, len(jobs))
    wanted = min(wanted, len(jobs))
    suggested = make_plan(
        world(cluster, [*jobs, urgent(99, cpus=wanted)], by).observation(), PreemptionHistory(), by, NOW
    )
    (planned,) = suggested.preemptions
    refs = {victim.ref for victim in planned.victims}
    assert len(refs) == wanted
    surplus = {name: 0 for name, _ in held}
    for name, _ in held:
        surplus[name] += 1
    half = len(jobs) // 2
    surplus = {name: max(0, used - (half if name != "stranger" else 0)) for name, used in surplus.items()}
    order = sorted(jobs, key=lambda job: (-job.time_limit, -job.id))
    borrowers, owners = [], []
    for job in order:
        if surplus[job.account] > 0:
            surplus[job.account] -= 1
            borrowers.append(job.ref)
        else:
            owners.append(job.ref)
    assert refs == set([*borrowers, *owners][:wanted])


@given(mixes())
def test_preempted_jobs_are_at_the_head(mix: tuple[World, list[Job]]) -> None:
    """Of two equal one-CPU jobs of an account, the preempted one starts first."""
    site, later = mix
    arrive(site, later)
    site.rest()
    names = accounts_of(site.rules.tree)
    pair = [waiting(950, names[0], priority=9), waiting(951, names[0], priority=0)]
    arrive(site, pair)
    site.history = replace(site.history, preempted={**site.history.preempted, "951": PreemptedJob(NOW, "requeue", "1")})
    site.step()
    assert site.jobs[951].runs or not site.jobs[950].runs


# -- the plan and the validator ---
@given(mixes(), st.randoms(use_true_random=False))
def test_the_plan_is_deterministic(mix: tuple[World, list[Job]], draw: Any) -> None:
    """Also when the snapshot's jobs come in another order, and equal requests are other objects."""
    site, later = mix
    site.rest()
    arrive(site, later)
    seen = site.observation()
    jobs = [replace(job, request=replace(job.request)) for job in seen.jobs.values()]
    draw.shuffle(jobs)
    other = Snapshot(seen.taken, {job.id: job for job in jobs}, dict(seen.nodes), dict(seen.partitions))
    assert make_plan(seen, site.history, site.rules, NOW) == make_plan(other, site.history, site.rules, NOW)


def contested(mix: tuple[World, list[Job]]) -> tuple[World, Plan, PlannedPreemption]:
    """A plan with a preemption, and the site just before it."""
    site, later = mix
    site.rest()
    arrive(site, later)
    suggested = make_plan(site.observation(), site.history, site.rules, site.now)
    assume(suggested.preemptions)
    return site, suggested, suggested.preemptions[0]


def verdict_on(site: World, suggested: Plan, **changed: Any) -> Verdict:
    conditions = changed.get("conditions", FRESH)
    now = changed.get("now", site.now)
    return validate(suggested, site.observation(), site.history, changed.get("rules", site.rules), now, conditions)


@given(mixes())
def test_the_validator_refuses_invalid_plans(mix: tuple[World, list[Job]]) -> None:
    site, suggested, planned = contested(mix)

    def with_victims(*victims: Any) -> Plan:
        return replace(suggested, preemptions=(replace(planned, victims=victims), *suggested.preemptions[1:]))

    def refuses(invalid: Plan, **changed: Any) -> RefusalReason | None:
        verdict = verdict_on(site, invalid, **changed)
        assert planned.preemptor not in {passed.preemptor for passed in verdict.preemptions}
        return next(r.reason for r in verdict.refused if r.ref == planned.preemptor)

    assert refuses(suggested, conditions=replace(FRESH, paused=True)) is RefusalReason.PAUSED
    assert refuses(suggested, now=site.now + 61) is RefusalReason.STALE
    # One account may have to give only if another gives too, which is found before the nodes are looked at.
    accounts = {site.observation().jobs[int(victim.ref)].account for victim in planned.victims}
    also = (RefusalReason.NOT_OVER,) if len(accounts) > 1 else ()
    assert refuses(with_victims(*planned.victims[1:])) in (RefusalReason.DOES_NOT_FIT, *also)
    assert refuses(with_victims(*planned.victims, planned.victims[0])) is RefusalReason.ALREADY_BUSY
    first = planned.victims[0]
    assert refuses(with_victims(replace(first, ref="777")))
    assert refuses(with_victims(replace(first, method="dmtcp"), *planned.victims[1:])) is RefusalReason.NOT_ALLOWED
    too_young = replace(site.rules, quantum=1e9, methods=BUILT_IN_TRAITS)
    if not planned.urgent:
        assert refuses(suggested, rules=too_young) is RefusalReason.IN_QUANTUM
    for other in site.jobs.values():
        if other.runs and classify(site.rules, other).urgent:
            wrong = replace(first, ref=other.ref)
            assert refuses(with_victims(*planned.victims, wrong)) is RefusalReason.URGENT_VICTIM
        elif other.runs and not classify(site.rules, other).methods:
            wrong = replace(first, ref=other.ref)
            assert refuses(with_victims(*planned.victims, wrong)) is RefusalReason.NEVER_PREEMPTED
        elif other.runs and other.ref not in {victim.ref for victim in planned.victims}:
            extra = replace(first, ref=other.ref, method=classify(site.rules, other).methods[0])
            assert refuses(with_victims(*planned.victims, extra)) in (
                RefusalReason.NEEDLESS, RefusalReason.NOT_OVER, RefusalReason.TOO_MANY,
            )  # fmt: skip


@given(mixes())
def test_accepted_preemptors_really_fit(mix: tuple[World, list[Job]]) -> None:
    """Apply the accepted preemptions one by one to a second, simple count."""
    site, later = mix
    site.rest()
    arrive(site, later)
    jobs = {job.ref: job for job in site.jobs.values()}
    _, _, _suggested, verdict = site.step()
    free = idle(site.nodes, list(jobs.values()))
    for planned in verdict.preemptions:
        for victim in planned.victims:
            job = jobs[victim.ref]
            for allocation in job.allocations:
                free[allocation.node][0] += allocation.cpus
                if victim.method == "requeue":
                    free[allocation.node][1] += allocation.memory
                    free[allocation.node][2] += dict(job.request.gres).get("gpu", 0)
        job = jobs[planned.preemptor]
        gpus = dict(job.request.gres).get("gpu", 0)
        assert fits_on(free, planned.allocations, gpus, planned.suspended)
        assert planned.suspended or can_hold(free, site.nodes, job)
        for allocation in planned.allocations:
            free[allocation.node][0] -= allocation.cpus
            if not planned.suspended:
                free[allocation.node][1] -= allocation.memory
                free[allocation.node][2] -= gpus
