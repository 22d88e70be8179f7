"""The choice of victims beside all sets of victims that there are, on small clusters.

Sets are judged by the validator, which is independent of how victims are searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, islice, permutations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.cluster.jobs import Allocation, Job, JobPart
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.snapshot import PreemptionHistory, Snapshot
from omfs_daemon.policy.arrays.job_arrays import cpus_held
from omfs_daemon.policy.arrays.usage import Usage
from omfs_daemon.policy.plan import PlannedPreemption, Reason, Victim
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.rules.account_paths import may_take
from omfs_daemon.policy.rules.classes import REGULAR, Rules, classify
from omfs_daemon.policy.validator import validate
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS
from tests.support.policy_builders import (
    CLASSES,
    FRESH,
    NOW,
    decide,
    nodes,
    request,
    rules,
    running,
    snapshot,
    tree,
    urgent,
    victims_by_preemptor,
    waiting,
)

MOST_JOBS = 9
Site = tuple[list[Node], list[Job], Rules]
TREES: tuple[AccountTree, ...] = (
    tree(bio=50, physics=50),
    tree(bio=50, physics=20, maths=10),
    tree(bio=50, bio__genes=50, bio__cells=50, physics=50, physics__stars=40),
)


@st.composite
def full_sites(draw: st.DrawFn) -> Site:
    """Up to 8 nodes with running jobs: some on two nodes, some exclusive, some non-preemptible."""
    owners = draw(st.sampled_from(TREES))
    names = [entitlement.name for entitlement in owners.entitlements if entitlement.name != "bio"] + ["stranger"]
    cluster = nodes(draw(st.integers(1, 8)), draw(st.sampled_from((2, 4, 8))), memory=16)
    cluster = [replace(node, features=frozenset({"fast"} if draw(st.booleans()) else ())) for node in cluster]
    free = {node.name: [node.cpus, 16] for node in cluster}
    jobs: list[Job] = []
    for number in range(1, MOST_JOBS + 1):
        open_nodes = sorted(name for name, (cpus, _) in free.items() if cpus)
        if not open_nodes:
            break
        on = open_nodes[: draw(st.sampled_from((1, 1, 1, 2)))]
        most = min(free[name][0] for name in on)
        each = most if draw(st.booleans()) else draw(st.integers(1, most))
        memory = draw(st.integers(0, min(free[name][1] for name in on)))
        for name in on:
            free[name][0] -= each
            free[name][1] -= memory
        fields: dict[str, Any] = {"priority": draw(st.integers(0, 4)), "time_limit": draw(st.integers(1, 4)) * 100.0}
        if draw(st.integers(0, 7)) == 0:
            fields["non_preemptible"] = True
        else:
            fields["comment"] = draw(st.sampled_from(("omfs:method=requeue", "omfs:method=suspend")))
        wanted = request(each * len(on), nodes=len(on), memory_per_node=memory)
        jobs.append(running(number, draw(st.sampled_from(names)), request=wanted, on=on, **fields))
    by = Rules(
        tree=owners, classes=CLASSES, quantum=0.0, max_preemptions_per_hour=9999, max_preemptions_per_cycle=9999,
        urgent_may_take_entitled=draw(st.booleans()), methods=BUILT_IN_TRAITS, unmatched=REGULAR,
    )  # fmt: skip
    return cluster, jobs, by


@st.composite
def preemptors(draw: st.DrawFn) -> Job:
    count = draw(st.sampled_from((1, 1, 1, 2, 3)))
    wanted = request(
        draw(st.integers(1, 8)) * count,
        nodes=count,
        memory_per_node=draw(st.sampled_from((0, 0, 4, 12))),
        exclusive=draw(st.integers(0, 4)) == 0,
        features=draw(st.sampled_from(("", "", "fast"))),
    )
    account = draw(st.sampled_from(("bio", "bio", "physics", "genes")))
    if draw(st.integers(0, 3)) == 0:
        return urgent(99, account, request=wanted)
    return waiting(99, account, request=wanted, non_preemptible=draw(st.booleans()))


@st.composite
def preemptors_of_parts(draw: st.DrawFn) -> Job:
    """A heterogeneous job of two parts, each on one or two nodes."""
    parts = [
        request(
            draw(st.integers(1, 4)) * count, nodes=count, memory_per_node=draw(st.sampled_from((0, 4, 12))),
            features=draw(st.sampled_from(("", "fast"))),
        )
        for count in (draw(st.sampled_from((1, 1, 2))), 1)
    ]  # fmt: skip
    nodes_in_all = sum(part.nodes for part in parts)
    whole = request(sum(part.cpus for part in parts), nodes=nodes_in_all, max_nodes=0, parts=tuple(parts))
    kind = draw(st.sampled_from((urgent, waiting)))
    job = kind(99, draw(st.sampled_from(("bio", "physics"))), request=whole)
    return replace(job, parts=tuple(JobPart(99 + at, part) for at, part in enumerate(parts)))


def all_sets(seen: Snapshot, by: Rules, reason: Reason = Reason.ENTITLED) -> Iterator[PlannedPreemption]:
    """Every preemption for job 99 that the validator accepts."""
    base = make_plan(seen, PreemptionHistory(), by, NOW)
    bare = replace(base, starts=(), preemptions=(), promises=(), resumes=())
    job = seen.jobs[99]
    may_give = [other for other in seen.jobs.values() if other.runs and classify(by, other).methods]
    choose = permutations if job.parts else combinations  # which part gets which node matters
    for chosen in choose(sorted(seen.nodes), job.request.nodes):
        useful = [victim for victim in may_give if set(victim.on_nodes) & set(chosen)]
        for count in range(1, len(useful) + 1):
            for some in combinations(useful, count):
                victims = tuple(Victim(v.ref, v.account, classify(by, v).methods[0], cpus_held(v)) for v in some)
                planned = PlannedPreemption(
                    "99", job.account, reason, classify(by, job).urgent, False, on_nodes(seen, job, chosen),
                    victims, job.submit, {},
                )  # fmt: skip
                plan = replace(bare, preemptions=(planned,))
                yield from validate(plan, seen, PreemptionHistory(), by, NOW, FRESH).preemptions


def on_nodes(seen: Snapshot, job: Job, names: tuple[str, ...]) -> tuple[Allocation, ...]:
    if job.parts:
        left = iter(names)
        requests = ((part, tuple(islice(left, part.nodes))) for part in job.request.parts)
        return tuple(one for part, its in requests for one in on_nodes(seen, replace(job, request=part, parts=()), its))
    asked = job.request
    each = [seen.nodes[name].cpus if asked.exclusive else asked.cpus // asked.nodes for name in names]
    return tuple(Allocation(name, cpus, asked.memory_per_node) for name, cpus in zip(names, each, strict=True))


@given(full_sites(), preemptors())
def test_victims_are_found_whenever_some_set_of_victims_is_possible(site: Site, job: Job) -> None:
    cluster, jobs, by = site
    seen = snapshot(cluster, [*jobs, job])
    plan = make_plan(seen, PreemptionHistory(), by, NOW)
    if plan.starts:
        return
    if not plan.preemptions:
        assert next(all_sets(seen, by), None) is None


@given(full_sites(), preemptors_of_parts())
def test_so_are_victims_for_a_heterogeneous_job(site: Site, job: Job) -> None:
    """And the validator accepts them: no part gets less, and no two parts get the same node."""
    cluster, jobs, by = site
    seen = snapshot(
        cluster[:5], [one for one in jobs if {node.name for node in cluster[:5]}.issuperset(one.on_nodes)] + [job]
    )
    plan = make_plan(seen, PreemptionHistory(), by, NOW)
    if plan.starts:
        return
    assert validate(plan, seen, PreemptionHistory(), by, NOW, FRESH).preemptions == plan.preemptions
    if not plan.preemptions:
        assert next(all_sets(seen, by), None) is None


@given(full_sites(), preemptors())
def test_no_other_set_on_one_node_ends_earlier_in_the_order(site: Site, job: Job) -> None:
    """The cost of a set is the place of its last victim in the order of the rules: the factor to the best is 1, among
    the sets that are fair if every job on their node gives in that order. The account itself gives only if no other
    account can."""
    cluster, jobs, by = site
    seen = snapshot(cluster, [*jobs, job])
    plan = make_plan(seen, PreemptionHistory(), by, NOW)
    if not plan.preemptions or plan.preemptions[0].urgent or job.request.nodes > 1:
        return

    def last(planned: PlannedPreemption) -> tuple[float, int]:
        return max((seen.jobs[int(victim.ref)].priority, -int(victim.ref)) for victim in planned.victims)

    def gives_itself(planned: PlannedPreemption) -> bool:
        return {victim.account for victim in planned.victims} == {job.account}

    chosen, possible = plan.preemptions[0], [*all_sets(seen, by)]
    others = [planned for planned in possible if not gives_itself(planned)]
    assert gives_itself(chosen) == (not others)
    in_order = [planned for planned in others if gives_in_order(seen, by, planned)]
    assert all(last(chosen) <= last(planned) for planned in (in_order if others else possible))


def gives_in_order(seen: Snapshot, by: Rules, planned: PlannedPreemption) -> bool:
    """Whether these jobs are among those that give if all jobs on their node are asked in the order of the rules, each
    only if its account is above its entitlement then."""
    usage = Usage(by.tree, sum(node.cpus for node in seen.nodes.values()))
    for job in seen.jobs.values():
        if job.runs:
            usage.add(by.tree.leaf(job.account), cpus_held(job))
    taker = by.tree.leaf(planned.account)
    usage.add(taker, sum(allocation.cpus for allocation in planned.allocations))
    (node,) = {allocation.node for allocation in planned.allocations}
    asked = [job for job in seen.jobs.values() if node in job.on_nodes and classify(by, job).methods]
    given = set()
    for job in sorted(asked, key=lambda job: (job.priority, -job.id)):
        leaf = by.tree.leaf(job.account)
        if may_take(usage.all, usage.entitled, taker.path, leaf.path):
            usage.remove(leaf, cpus_held(job))
            given.add(job.ref)
    return given.issuperset(victim.ref for victim in planned.victims)


def test_an_account_does_not_give_where_it_does_not_help() -> None:
    """physics is 2 CPUs above its entitlement; its youngest jobs are alone on nodes that cannot be freed."""
    by = rules(bio=50, physics=50)
    cluster = nodes(4, cpus=4)
    jobs = [
        *(running(n, "physics", 1, f"n{n - 1}", start=1000.0 - n) for n in (1, 2, 3)),
        *(running(n + 10, "bio", 3, f"n{n - 1}", non_preemptible=True) for n in (1, 2)),
        running(21, "physics", 3, "n2", non_preemptible=True),
        running(31, "physics", 2, "n3", start=5.0),
        running(32, "physics", 2, "n3", start=6.0),
    ]
    assert victims_by_preemptor(decide(cluster, [*jobs, waiting(99, "bio", 2)], by)) == {"99": {"32"}}


def test_one_large_job_gives_where_a_small_one_brings_the_account_to_its_entitlement() -> None:
    """physics is 1 CPU above: without its youngest job it is not any more, but that job is not enough."""
    by = rules(bio=50, physics=50)
    jobs = [
        running(1, "physics", 1, start=1000.0),
        running(2, "physics", 4, start=1.0),
        running(3, "physics", 4, non_preemptible=True),
        running(4, "bio", 4, non_preemptible=True),
        running(5, "stranger", 3, non_preemptible=True),
    ]
    assert victims_by_preemptor(decide(nodes(1, cpus=16), [*jobs, waiting(99, "bio", 4)], by)) == {"99": {"2"}}
