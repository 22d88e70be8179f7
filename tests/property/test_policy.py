"""The laws of the policy as properties over made-up clusters, account trees and job mixes.

Sources: OMFS (section II and Algorithm 1) and UJFB (section IV); where a paper is unclear, the docstrings in
``omfs_daemon/policy`` say what was decided.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.cluster.snapshot import Stopped
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.policy.validator import Refusal
from omfs_daemon.policy.validator import Verdict
from omfs_daemon.policy.validator import judge
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.plan import Reclaim
from omfs_daemon.policy.planner import plan
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.rules.classes import classify
from tests.unit.policy.policy_builders import CLASSES
from tests.unit.policy.policy_builders import FRESH
from tests.unit.policy.policy_builders import NOW
from tests.unit.policy.policy_builders import World
from tests.unit.policy.policy_builders import gated
from tests.unit.policy.policy_builders import nodes
from tests.unit.policy.policy_builders import request
from tests.unit.policy.policy_builders import running
from tests.unit.policy.policy_builders import tree
from tests.unit.policy.policy_builders import urgent
from tests.unit.policy.policy_builders import waiting
from tests.unit.policy.policy_builders import world

laws = settings(
    max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
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
    return [share.name for share in owners.shares] + ["stranger"]


@st.composite
def sites(draw: st.DrawFn) -> tuple[list[Node], Rules]:
    count, cpus = draw(st.integers(1, 4)), draw(st.integers(2, 8))
    machine = nodes(count, cpus, memory=cpus * 2)
    if draw(st.booleans()):
        machine.append(Node("odd", draw(st.integers(1, 12)), 8 << 30, partitions=("main",), gres=(("gpu", 2),)))
    by = Rules(
        tree=draw(st.sampled_from(TREES)), classes=CLASSES, quantum=0.0, max_stops_per_hour=9999,
        max_stops_per_cycle=draw(st.sampled_from((2, 5, 1000))),
    )  # fmt: skip
    return machine, by


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
        "asks": request(1) if simple else draw(any_request()),
        "priority": draw(st.integers(0, 4)),
        "time_limit": draw(st.sampled_from((600.0, 3600.0, float("inf")))),
    }
    if kind == 0 and not simple:
        return gated(number, account, **fields)
    if kind == 1 and not simple:
        return urgent(number, account, **fields)
    requeue = simple or kind != 2
    return waiting(number, account, comment=draw(st.sampled_from(METHODS)), requeue=requeue, **fields)


@st.composite
def mixes(draw: st.DrawFn, simple: bool = False, most: int = 14) -> tuple[World, list[Job]]:
    """A site with the jobs that come first, and those that come later."""
    machine, by = draw(sites())
    names = accounts_of(by.tree)
    first, later = draw(st.integers(0, most)), draw(st.integers(0, most))
    jobs = [draw(any_job(number, names, simple)) for number in range(1, first + later + 1)]
    return world(machine, jobs[:first], by), jobs[first:]


def stopped_by(site: World, job: Job) -> tuple[str, ...]:
    """How the job may be stopped: as its class says, but what Slurm would not requeue only by suspending it."""
    return tuple(name for name in classify(site.rules, job).methods if job.requeue or name == "suspend")


def arrive(site: World, jobs: Sequence[Job]) -> None:
    site.jobs.update({job.id: job for job in jobs})


def entitled(site: World) -> list[int]:
    return site.rules.tree.entitled(sum(node.cpus for node in site.machine))


def used_by_entity(owners: AccountTree, jobs: Sequence[Job]) -> list[int]:
    used = [0] * len(owners.entities)
    for job in jobs:
        for index in owners.leaf(job.account).path:
            used[index] += sum(share.cpus for share in job.shares)
    return used


# -- an obvious second way to place a job, for small machines ---
def idle(machine: Sequence[Node], jobs: Sequence[Job]) -> dict[str, list[int]]:
    """CPUs, bytes, GPUs that are free by node; suspended jobs keep their memory and GPUs."""
    free = {node.name: [node.cpus, node.memory, dict(node.gres).get("gpu", 0)] for node in machine}
    for job in jobs:
        for share in job.shares:
            suspended = job.state is JobState.SUSPENDED
            free[share.node][0] -= 0 if suspended else share.cpus
            free[share.node][1] -= share.memory
            free[share.node][2] -= dict(job.request.gres).get("gpu", 0)
    return free


def can_hold(free: dict[str, list[int]], machine: Sequence[Node], job: Job) -> bool:
    """Try all sets of nodes, and all ways to share the CPUs out among them that the request allows."""
    asks = job.request
    sizes = {node.name: node for node in machine}
    gpus = dict(asks.gres).get("gpu", 0)
    for count in range(asks.nodes, (asks.max_nodes or len(sizes)) + 1):
        for chosen in itertools.combinations(sizes, count):
            if any(free[name][2] < gpus for name in chosen):
                continue
            if asks.exclusive:
                empty = all(free[name][:2] == [sizes[name].cpus, sizes[name].memory] for name in chosen)
                if empty and sum(sizes[name].cpus for name in chosen) >= asks.cpus:
                    return True
                continue
            room = [
                min(free[name][0], free[name][1] // asks.memory_per_cpu if asks.memory_per_cpu else 99)
                for name in chosen
            ]
            if min(room) >= asks.min_cpus_per_node and sum(room) >= asks.cpus >= count * asks.min_cpus_per_node:
                return True
    return False


def fits_on(free: dict[str, list[int]], shares: Sequence[Share], gpus: int, held: bool) -> bool:
    """Whether exactly these shares are free (``held``: memory and GPUs are the job's own already)."""
    return all(
        free[share.node][0] >= share.cpus
        and (held or (free[share.node][1] >= share.memory and free[share.node][2] >= gpus))
        for share in shares
    )


# -- OMFS ------------------------------------------------------------------------------------------------------------
@laws
@given(mixes(simple=True, most=30))
def test_who_has_enough_demand_reaches_the_entitlement_at_once(mix: tuple[World, list[Job]]) -> None:
    """Jobs of one CPU that may all be stopped, quantum over: in as many cycles as the limit on stops asks for."""
    site, later = mix
    site.rest()
    arrive(site, later)
    site.rest()
    demand = [0] * len(entitled(site))
    for job in site.jobs.values():
        for index in site.rules.tree.leaf(job.account).path:
            demand[index] += 1
    used = used_by_entity(site.rules.tree, [job for job in site.jobs.values() if job.runs])
    for mine, owned, wanted in zip(used, entitled(site), demand, strict=True):
        assert mine >= min(owned, wanted)


@laws
@given(mixes())
def test_comes_to_rest_and_every_reclaim_passes_the_gate(mix: tuple[World, list[Job]]) -> None:
    """With a fixed set of jobs evictions stop; and planner and gate keep the same books."""
    site, later = mix
    for batch in (list(site.jobs.values()), later):
        arrive(site, batch)
        for _ in range(60):
            _, _, suggested, verdict = site.step()
            assert verdict.refused == ()
            assert verdict.reclaims == suggested.reclaims and set(verdict.resumes) == set(suggested.resumes)
            if not (suggested.starts or suggested.reclaims or suggested.resumes or suggested.releases):
                break
        else:
            raise AssertionError(f"no rest: {site.evictions[-8:]}")


@laws
@given(mixes())
def test_evictions_are_lawful_in_every_cycle(mix: tuple[World, list[Job]]) -> None:
    """Checked by hand: who gives, who gets, that the beneficiary starts, and that nobody is stopped for nothing."""
    site, later = mix
    arrive(site, later[: len(later) // 2])
    for cycle in range(8):
        if cycle == 4:
            arrive(site, later)
        before = list(site.jobs.values())
        _, _, _suggested, verdict = site.step()
        for reclaim in verdict.reclaims:
            victims = {victim.ref: victim.method for victim in reclaim.victims}
            for job in before:
                if job.ref in victims:
                    job_class = classify(site.rules, job)
                    assert job.runs and not job_class.urgent and victims[job.ref] in stopped_by(site, job)
        assert_machine_holds(site)
        for reclaim in verdict.reclaims:
            beneficiary = next(job for job in site.jobs.values() if job.ref == reclaim.beneficiary)
            assert beneficiary.runs
        for account in accounts_of(site.rules.tree):
            assert_fixed_within(site, account)


def assert_machine_holds(site: World) -> None:
    for cpus, memory, gpus in idle(site.machine, list(site.jobs.values())).values():
        assert cpus >= 0 and memory >= 0 and gpus >= 0


def assert_fixed_within(site: World, account: str) -> None:
    fixed = [
        job
        for job in site.jobs.values()
        if job.runs and not classify(site.rules, job).methods and not classify(site.rules, job).urgent
    ]
    used, owned = used_by_entity(site.rules.tree, fixed), entitled(site)
    for index in site.rules.tree.leaf(account).path:
        assert used[index] <= owned[index]


@laws
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
    for reclaim in verdict.reclaims:
        for victim in reclaim.victims:
            for index in set(paths[victim.ref]) - set(paths[reclaim.beneficiary]):
                assert after[index] >= owned[index]


@laws
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
    assert site.used() == min(len(site.jobs), sum(node.cpus for node in site.machine))  # work-conserving, even


@laws
@given(mixes())
def test_what_could_start_lawfully_does(mix: tuple[World, list[Job]]) -> None:
    """At rest no waiting job fits on what is idle, unless a rule keeps it (never stopped, beyond its entitlement).

    Our placing may be more careful than the obvious one only in sharing out the CPUs of a fixed number of nodes.
    """
    site, later = mix
    arrive(site, later)
    site.rest()
    jobs = list(site.jobs.values())
    free = idle(site.machine, jobs)
    for job in jobs:
        uneven = job.request.nodes > 1
        if job.state is JobState.PENDING and classify(site.rules, job).methods and not uneven:
            assert not can_hold(free, site.machine, job), job.ref


# -- urgent jobs ---
@laws
@given(mixes(), st.data())
def test_laws_of_urgent_jobs(mix: tuple[World, list[Job]], data: st.DataObject) -> None:
    """It starts if it fits; else if regular jobs hold enough; and never at an urgent one's cost."""
    site, later = mix
    arrive(site, later)
    site.rules = replace(site.rules, max_stops_per_cycle=1000)
    site.rest()
    assume(not any(classify(site.rules, j).urgent and j.state is JobState.PENDING for j in site.jobs.values()))
    job = urgent(900, "stranger", asks=data.draw(any_request()))
    arrive(site, [job])
    jobs = [other for other in site.jobs.values() if other.shares]
    stays = [other for other in jobs if not stopped_by(site, other) or (other.state is JobState.SUSPENDED)]
    fits = can_hold(idle(site.machine, jobs), site.machine, job)
    # A job that is suspended keeps its memory; one that may be requeued gives all.
    suspended = [replace(o, state=JobState.SUSPENDED) for o in jobs if stopped_by(site, o) == ("suspend",)]
    may_fit = can_hold(idle(site.machine, [*stays, *(o for o in suspended if o not in stays)]), site.machine, job)
    _, _, suggested, verdict = site.step()
    now_runs = site.jobs[900].runs
    if job.request.nodes == 1:
        if fits:
            assert now_runs and not any(r.beneficiary == "900" for r in verdict.reclaims)
        assert now_runs == may_fit
    urgent_refs = {j.ref for j in site.jobs.values() if classify(site.rules, j).urgent}
    assert not urgent_refs & {victim.ref for reclaim in suggested.reclaims for victim in reclaim.victims}


@laws
@given(
    st.lists(st.tuples(st.sampled_from(("bio", "physics", "stranger")), st.integers(1, 9)), min_size=1, max_size=8),
    st.integers(1, 8),
)
def test_urgent_takes_longest_remaining_first_from_borrowers_first(held: list[tuple[str, int]], wanted: int) -> None:
    by = Rules(tree=TREES[0], classes=CLASSES, quantum=1e9)
    jobs = [running(i, account, time_limit=100.0 * hours) for i, (account, hours) in enumerate(held, 1)]
    machine = nodes(1, len(jobs))
    wanted = min(wanted, len(jobs))
    suggested = plan(world(machine, [*jobs, urgent(99, cpus=wanted)], by).picture(), Ledger(), by, NOW)
    (reclaim,) = suggested.reclaims
    refs = {victim.ref for victim in reclaim.victims}
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


@laws
@given(mixes())
def test_stopped_jobs_are_at_the_head(mix: tuple[World, list[Job]]) -> None:
    """Of two alike one-CPU jobs of an account, the stopped one starts first."""
    site, later = mix
    arrive(site, later)
    site.rest()
    names = accounts_of(site.rules.tree)
    pair = [waiting(950, names[0], priority=9), waiting(951, names[0], priority=0)]
    arrive(site, pair)
    site.ledger = replace(site.ledger, stopped={**site.ledger.stopped, "951": Stopped(NOW, "requeue", "1")})
    site.step()
    assert site.jobs[951].runs or not site.jobs[950].runs


# -- the plan and the gate ---
@laws
@given(mixes(), st.randoms(use_true_random=False))
def test_the_plan_is_deterministic(mix: tuple[World, list[Job]], draw: Any) -> None:
    """Also when the snapshot's jobs come in another order, and equal requests are other objects."""
    site, later = mix
    site.rest()
    arrive(site, later)
    seen = site.picture()
    jobs = [replace(job, request=replace(job.request)) for job in seen.jobs.values()]
    draw.shuffle(jobs)
    other = Snapshot(seen.taken, {job.id: job for job in jobs}, dict(seen.nodes), dict(seen.partitions))
    assert plan(seen, site.ledger, site.rules, NOW) == plan(other, site.ledger, site.rules, NOW)


def contested(mix: tuple[World, list[Job]]) -> tuple[World, Plan, Reclaim]:
    """A plan that stops somebody, the site just before it."""
    site, later = mix
    site.rest()
    arrive(site, later)
    suggested = plan(site.picture(), site.ledger, site.rules, site.now)
    assume(suggested.reclaims)
    return site, suggested, suggested.reclaims[0]


def verdict_on(site: World, suggested: Plan, **changed: Any) -> Verdict:
    conditions = changed.get("conditions", FRESH)
    now = changed.get("now", site.now)
    return judge(suggested, site.picture(), site.ledger, changed.get("rules", site.rules), now, conditions)


@laws
@given(mixes())
def test_the_gate_refuses_spoilt_plans(mix: tuple[World, list[Job]]) -> None:
    site, suggested, reclaim = contested(mix)

    def with_victims(*victims: Any) -> Plan:
        return replace(suggested, reclaims=(replace(reclaim, victims=victims), *suggested.reclaims[1:]))

    def refuses(spoilt: Plan, **changed: Any) -> Refusal | None:
        verdict = verdict_on(site, spoilt, **changed)
        assert reclaim.beneficiary not in {passed.beneficiary for passed in verdict.reclaims}
        return next(r.reason for r in verdict.refused if r.ref == reclaim.beneficiary)

    assert refuses(suggested, conditions=replace(FRESH, paused=True)) is Refusal.PAUSED
    assert refuses(suggested, now=site.now + 61) is Refusal.STALE
    assert refuses(with_victims(*reclaim.victims[1:])) is Refusal.DOES_NOT_FIT
    assert refuses(with_victims(*reclaim.victims, reclaim.victims[0])) is Refusal.ALREADY_BUSY
    first = reclaim.victims[0]
    assert refuses(with_victims(replace(first, ref="777")))
    assert refuses(with_victims(replace(first, method="dmtcp"), *reclaim.victims[1:])) is Refusal.NOT_ALLOWED
    too_young = replace(site.rules, quantum=1e9)
    if not reclaim.urgent:
        assert refuses(suggested, rules=too_young) is Refusal.IN_QUANTUM
    for other in site.jobs.values():
        if other.runs and classify(site.rules, other).urgent:
            wrong = replace(first, ref=other.ref)
            assert refuses(with_victims(*reclaim.victims, wrong)) is Refusal.URGENT_VICTIM
        elif other.runs and not classify(site.rules, other).methods:
            wrong = replace(first, ref=other.ref)
            assert refuses(with_victims(*reclaim.victims, wrong)) is Refusal.NEVER_STOPPED
        elif other.runs and other.ref not in {victim.ref for victim in reclaim.victims}:
            extra = replace(first, ref=other.ref, method=classify(site.rules, other).methods[0])
            assert refuses(with_victims(*reclaim.victims, extra)) in (
                Refusal.NEEDLESS, Refusal.NOT_OVER, Refusal.TOO_MANY,
            )  # fmt: skip


@laws
@given(mixes())
def test_accepted_beneficiaries_really_fit(mix: tuple[World, list[Job]]) -> None:
    """Apply the accepted reclaims one by one to a second, obvious book."""
    site, later = mix
    site.rest()
    arrive(site, later)
    jobs = {job.ref: job for job in site.jobs.values()}
    _, _, _suggested, verdict = site.step()
    free = idle(site.machine, list(jobs.values()))
    for reclaim in verdict.reclaims:
        for victim in reclaim.victims:
            job = jobs[victim.ref]
            for share in job.shares:
                free[share.node][0] += share.cpus
                if victim.method == "requeue":
                    free[share.node][1] += share.memory
                    free[share.node][2] += dict(job.request.gres).get("gpu", 0)
        job = jobs[reclaim.beneficiary]
        gpus = dict(job.request.gres).get("gpu", 0)
        assert fits_on(free, reclaim.shares, gpus, reclaim.suspended)
        assert reclaim.suspended or can_hold(free, site.machine, job)
        for share in reclaim.shares:
            free[share.node][0] -= share.cpus
            if not reclaim.suspended:
                free[share.node][1] -= share.memory
                free[share.node][2] -= gpus
