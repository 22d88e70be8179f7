"""FCFS, UJF, EASY, hard partition and capping: against slow replays, against agreed figures, and by their laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import omfs_daemon.simulate
from omfs_daemon.accounting.arrays import Bools, Floats
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.policy.rules.classes import REGULAR, Rules
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS
from omfs_daemon.simulate.engine.conventions import Conventions, UserLimits
from omfs_daemon.simulate.engine.machine_units import counted, units
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.scenario import Machine, Scenario, owners
from omfs_daemon.simulate.kernels.running import corrected
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.workload.workload import Workload, merged, workload
from tests.support import reference
from tests.support.amounts import sample
from tests.support.policy_builders import tree
from tests.support.random_workloads import ACCOUNTS, Case, cases, random_case
from tests.support.traces import needs_traces, recorded

SEEDS = sample(range(2000), 100)
TREES = (
    tree(bio=50, physics=50),
    tree(bio=60, physics=25),
    tree(bio=50, physics=30, maths=20),
    tree(bio=100),
    tree(lab=70, lab__bio=50, lab__physics=30, maths=20),
)
QUEUES = {"fcfs": reference.fcfs, "ujf": reference.ujf, "easy": reference.easy}
ALL = (*QUEUES, "partition", "capping")

INPUTS = Path(omfs_daemon.simulate.__file__).parent / "workload" / "inputs"
HPC2N, KTH = "hpc2n-excerpt.swf.gz", "KTH-SP2-1996-2.1-cln.swf.gz"
SDSC, LANL = "SDSC-DS-2004-2.1-cln.swf.gz", "LANL-CM5-1994-4.1-cln.swf.gz"
MACHINES = [
    (HPC2N, 240, 1.0), (KTH, 100, 0.7), (SDSC, 1664, 1.0), (LANL, 1024, 1.0), ("dwd-2020-09-17.swf.gz", 1024, 1.0),
    ("sx-ace-2019.swf.gz", 1024, 1.0), ("CEA-Curie-2011-2.1-cln.swf.gz", 93312, 1.0),
]  # fmt: skip


def scenario_of(case: Case, owned: AccountTree = TREES[0]) -> Scenario:
    return Scenario(
        case.workload,
        Machine(case.cpus),
        case.conventions,
        rules=Rules(tree=owned, methods=BUILT_IN_TRAITS, unmatched=REGULAR),
    )


def run(name: str, scenario: Scenario) -> Outcome:
    return policy_named(name).simulate(scenario)


def tree_for(seed: int) -> AccountTree:
    return TREES[seed % len(TREES)]


def same(outcome: Outcome, expected: list[float], what: object) -> None:
    assert np.array_equal(outcome.start, np.array(expected), equal_nan=True), what


def held_at_most(outcome: Outcome, wide: Floats, chosen: Bools) -> int:
    """The most that the chosen jobs ever hold together; at one instant ends come first."""
    part = outcome.segments
    kept = chosen[part.job]
    job, begin, end = part.job[kept], part.begin[kept], part.end[kept]
    times = np.concatenate((end, begin))
    change = np.concatenate((-wide[job], wide[job]))
    in_order = np.lexsort((np.repeat([0, 1], len(job)), times))
    # A job of no length would give back before it takes: it holds nothing for any time.
    lasting = np.tile(end > begin, 2)[in_order]
    return int(np.cumsum(change[in_order][lasting]).max(initial=0))


# Against slow replays


@pytest.mark.parametrize("name", QUEUES)
def test_queues_replay_as_the_slow_one_does(name: str) -> None:
    for seed in SEEDS:
        case = random_case(seed)
        jobs = reference.jobs_of(case.workload, case.conventions)
        same(run(name, scenario_of(case)), reference.replay(jobs, case.cpus, QUEUES[name]), f"{name}, seed {seed}")


def slow_partition(scenario: Scenario) -> list[float]:
    """An EASY machine for every leaf."""
    jobs, owner = (
        reference.jobs_of(scenario.workload, scenario.conventions),
        owners(scenario.workload, scenario.rules.tree),
    )
    start = [np.nan] * len(jobs)
    for index, owned in enumerate(scenario.rules.tree.entitled(scenario.machine.cpus)):
        own = [replace(job, index=place) for place, job in enumerate(jobs) if owner[job.index] == index]
        places = [job.index for job in jobs if owner[job.index] == index]
        for place, instant in zip(places, reference.replay(own, owned, reference.easy), strict=True):
            start[place] = instant
    return start


def slow_capping(scenario: Scenario) -> list[float]:
    """One EASY machine with caps; jobs wider than their cap are not submitted to it."""
    owner, cpus = owners(scenario.workload, scenario.rules.tree), scenario.machine.cpus
    entitled = scenario.rules.tree.entitled(cpus)
    jobs = [
        replace(job, account=owner[job.index]) for job in reference.jobs_of(scenario.workload, scenario.conventions)
    ]
    able = [replace(job, index=place) for place, job in enumerate(j for j in jobs if j.cpus <= entitled[j.account])]
    places = [job.index for job in jobs if job.cpus <= entitled[job.account]]
    caps = {index: owned for index, owned in enumerate(entitled) if owned < cpus}
    start = [np.nan] * len(jobs)
    for place, instant in zip(places, reference.replay(able, cpus, reference.easy_with_caps(caps, {})), strict=True):
        start[place] = instant
    return start


@pytest.mark.parametrize(("name", "slow"), [("partition", slow_partition), ("capping", slow_capping)])
def test_walls_replay_as_the_slow_ones_do(name: str, slow: Callable[[Scenario], list[float]]) -> None:
    for seed in SEEDS:
        scenario = scenario_of(random_case(seed), tree_for(seed))
        same(run(name, scenario), slow(scenario), f"{name}, seed {seed}")


@given(cases())
def test_all_replay_as_the_slow_ones_do(case: Case) -> None:
    jobs = reference.jobs_of(case.workload, case.conventions)
    for name, decide in QUEUES.items():
        same(run(name, scenario_of(case)), reference.replay(jobs, case.cpus, decide), name)
    for owned in TREES:
        scenario = scenario_of(case, owned)
        same(run("partition", scenario), slow_partition(scenario), "partition")
        same(run("capping", scenario), slow_capping(scenario), "capping")


def test_easy_promises_what_the_slow_one_does() -> None:
    promises = 0
    for seed in SEEDS:
        case = random_case(seed)
        promised, expected = run("easy", scenario_of(case)).promised, dict[int, float]()
        jobs = reference.jobs_of(case.workload, case.conventions)
        reference.replay(jobs, case.cpus, reference.easy_with_caps({}, expected))
        assert {job: promised[job] for job in np.flatnonzero(~np.isnan(promised)).tolist()} == expected, seed
        promises += len(expected)
    assert promises > len(SEEDS) // 2


def job_arrays(seed: int) -> Case:
    """Several hundred jobs that come faster than they can run, so that the queue fills many blocks and is packed."""
    draw = np.random.default_rng(seed)
    count = 700
    run_time = draw.integers(1, 200, count).astype(float)
    return Case(
        workload(
            f"deep queue {seed}",
            np.cumsum(draw.integers(0, 4, count)).astype(float),
            draw.choice([1, 1, 1, 2, 4, 8, 16], count),
            run_time,
            accounts=ACCOUNTS,
            limit=run_time * draw.choice([0.5, 1, 2, 8], count),
            account=draw.choice(3, count, p=[0.8, 0.1, 0.1]),
        ),
        16,
        Conventions(estimates=UserLimits(), kill=False),
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_deep_queues_replay_as_the_slow_ones_do(seed: int) -> None:
    case = job_arrays(seed)
    scenario = scenario_of(case, TREES[2])
    slow = reference.replay(reference.jobs_of(case.workload, case.conventions), case.cpus, reference.easy)
    same(run("easy", scenario), slow, "easy")
    same(run("capping", scenario), slow_capping(scenario), "capping")


# Estimates that have passed


def test_corrections_follow_one_another() -> None:
    assert corrected(100.0, 50.0, 149.0) == 150.0
    minutes = [1, 5, 15, 30, 60, 120, 300, 600, 1200, 3000, 6000, 12000, 18000]
    for before, after in zip([0, *minutes], minutes, strict=False):
        assert corrected(100.0, 50.0, 150.0 + before * 60) == 150.0 + after * 60
        assert corrected(100.0, 50.0, 149.0 + after * 60) == 150.0 + after * 60


# Agreed and published figures


@needs_traces
@pytest.mark.parametrize(
    ("kill", "wait", "slowdown", "bounded"), [(True, 5614.44, 122.80, 47.31), (False, 5627.88, 122.98, 47.41)]
)
def test_fcfs_on_hpc2n_gives_the_agreed_figures(kill: bool, wait: float, slowdown: float, bounded: float) -> None:
    jobs = recorded(HPC2N)
    outcome = run("fcfs", Scenario(jobs, Machine(240), Conventions(kill=kill)))
    waits, lasted = outcome.start - jobs.submit, outcome.run
    assert len(jobs) == 3145
    assert round(waits.mean(), 2) == wait
    assert round(((waits + lasted) / np.maximum(lasted, 1)).mean(), 2) == slowdown
    assert round(np.maximum((waits + lasted) / np.maximum(lasted, 10), 1).mean(), 2) == bounded
    assert outcome.finish.max() == 5309576


def with_urgent(jobs: Workload, name: str) -> Workload:
    """The trace with the urgent jobs of Agung et al. 2021 added."""
    number, submit, cpus, seconds = np.loadtxt(INPUTS / f"{name}-urgent.csv", delimiter=",", skiprows=1, unpack=True)
    return merged(jobs, workload(name, submit, cpus, seconds, job_id=number, urgent=np.ones(len(submit), dtype=bool)))


@needs_traces
@pytest.mark.parametrize(
    ("trace", "name", "cpus", "response", "u_l"),
    [(SDSC, "sdsc-ds", 1664, (35834, 35673), (491.51, 62.81)), (LANL, "lanl-cm5", 1024, (6113, 6113), (56.41, 16.26))],
)
def test_urgent_first_gives_the_published_figures(
    trace: str, name: str, cpus: int, response: tuple[float, float], u_l: tuple[float, float]
) -> None:
    """Agung et al. 2021, FCFS and UJF: mean response of regular jobs, greatest slowdown of urgent ones; to 1 %, for
    there each run takes up to 1 s longer."""
    jobs = with_urgent(recorded(trace), name)
    for place, policy in enumerate(("fcfs", "ujf")):
        outcome = run(policy, Scenario(jobs, Machine(cpus)))
        took = outcome.finish - jobs.submit
        assert took[~jobs.urgent].mean() == pytest.approx(response[place], rel=0.01), policy
        assert (took / np.maximum(outcome.run, 1))[jobs.urgent].max() == pytest.approx(u_l[place], rel=0.01), policy


# Laws


@pytest.mark.parametrize("name", ALL)
def test_no_cpu_is_used_twice(name: str) -> None:
    for seed in SEEDS[:500]:
        case = random_case(seed)
        outcome = run(name, scenario_of(case, tree_for(seed)))
        assert held_at_most(outcome, case.workload.cpus, np.ones(len(case.workload), dtype=bool)) <= case.cpus, seed
        started = ~outcome.rejected
        assert (outcome.start >= case.workload.submit)[started].all(), seed


@pytest.mark.parametrize("name", ["partition", "capping"])
def test_no_account_holds_more_than_its_entitlement(name: str) -> None:
    for seed in SEEDS[:500]:
        scenario = scenario_of(random_case(seed), tree_for(seed))
        outcome, owner = run(name, scenario), owners(scenario.workload, scenario.rules.tree)
        for index, owned in enumerate(scenario.rules.tree.entitled(scenario.machine.cpus)):
            assert held_at_most(outcome, scenario.workload.cpus, owner == index) <= owned, (seed, index)


@pytest.mark.parametrize("name", ALL)
def test_only_jobs_that_can_never_run_are_refused(name: str) -> None:
    for seed in SEEDS[:200]:
        scenario = scenario_of(random_case(seed), tree_for(seed))
        entitled = np.array(scenario.rules.tree.entitled(scenario.machine.cpus))
        most = (
            entitled[owners(scenario.workload, scenario.rules.tree)]
            if name in ("partition", "capping")
            else scenario.machine.cpus
        )
        outcome = run(name, scenario)
        assert np.array_equal(outcome.rejected, scenario.workload.cpus > most), seed
        assert np.array_equal(np.isnan(outcome.finish), outcome.rejected), seed


def test_a_cap_of_the_whole_machine_is_none() -> None:
    for seed in SEEDS[:500]:
        case = random_case(seed)
        alone = replace(case.workload, accounts=("bio",), account=np.zeros(len(case.workload), dtype=np.int64))
        scenario = scenario_of(replace(case, workload=alone), tree(bio=100))
        plain = run("easy", scenario)
        for name in ("capping", "partition"):
            assert np.array_equal(run(name, scenario).start, plain.start, equal_nan=True), (name, seed)
            assert np.array_equal(run(name, scenario).promised, plain.promised, equal_nan=True), (name, seed)


def test_jobs_over_their_cap_block_nobody() -> None:
    """Two of bio's jobs fill its half; its third waits for one to end, and physics' job behind it does not."""
    jobs = workload(
        "capped",
        np.array([0.0, 0.0, 1.0, 2.0]),
        np.array([2, 2, 2, 4]),
        np.array([10.0, 20.0, 5.0, 5.0]),
        accounts=("bio", "physics"),
        account=np.array([0, 0, 0, 1]),
    )
    outcome = run(
        "capping",
        Scenario(
            jobs, Machine(8), rules=Rules(tree=tree(bio=50, physics=50), methods=BUILT_IN_TRAITS, unmatched=REGULAR)
        ),
    )
    assert outcome.start.tolist() == [0.0, 0.0, 10.0, 2.0]


def test_a_head_is_promised_when_it_first_cannot_start() -> None:
    jobs = workload("promised", np.array([0.0, 1.0, 2.0]), np.array([3, 4, 1]), np.array([10.0, 5.0, 8.0]))
    outcome = run("easy", Scenario(jobs, Machine(4)))
    assert outcome.start.tolist() == [0.0, 10.0, 2.0]
    assert np.array_equal(outcome.promised, [np.nan, 10.0, np.nan], equal_nan=True)


def instants_with_waiting_jobs(outcome: Outcome, most: int) -> list[float]:
    """Instants after which jobs wait, at most so many of them, evenly chosen."""
    came, started = outcome.workload.submit[~outcome.rejected], outcome.start[~outcome.rejected]
    times = np.unique(np.concatenate((came, outcome.finish[~outcome.rejected])))
    waiting = np.searchsorted(came, times, "right") - np.searchsorted(np.sort(started), times, "right")
    times = times[waiting > 0]
    return list(times[:: max(ceil(len(times) / most), 1)])


def keeps_the_laws_of_easy(outcome: Outcome, at_most: int) -> int:
    """Assert them for a replay with exact estimates; how many instants with waiting jobs were checked."""
    jobs, capacity = outcome.workload, outcome.machine.cpus
    heads = ~np.isnan(outcome.promised)
    assert (outcome.start[heads] <= outcome.promised[heads]).all(), "a head starts later than promised"
    times = instants_with_waiting_jobs(outcome, at_most)
    for now in times:
        head, *others = np.flatnonzero((jobs.submit <= now) & (outcome.start > now))
        running = np.flatnonzero((outcome.start <= now) & (outcome.finish > now))
        free = capacity - jobs.cpus[running].sum()
        assert jobs.cpus[head] > free, f"the head could start at {now}"
        by_end = running[np.argsort(outcome.finish[running])]
        enough = np.searchsorted(free + np.cumsum(jobs.cpus[by_end]), jobs.cpus[head])
        shadow = outcome.finish[by_end[enough]]
        spare = capacity - jobs.cpus[head] - jobs.cpus[running[outcome.finish[running] > shadow]].sum()
        harmless = (now + outcome.run[others] <= shadow) | (jobs.cpus[others] <= spare)
        assert not ((jobs.cpus[others] <= free) & harmless).any(), f"a job is left waiting at {now}"
    return len(times)


def test_easy_keeps_its_laws_on_random_workloads() -> None:
    looked_at = 0
    for seed in SEEDS[:500]:
        case = random_case(seed)
        exact = replace(scenario_of(case), conventions=Conventions())
        looked_at += keeps_the_laws_of_easy(run("easy", exact), 1000)
    assert looked_at > len(SEEDS) // 2


@needs_traces
@pytest.mark.parametrize(("trace", "cpus", "squeeze"), MACHINES)
def test_easy_keeps_its_laws_on_recorded_workloads(trace: str, cpus: int, squeeze: float) -> None:
    jobs = recorded(trace, squeeze)
    outcome = run("easy", Scenario(jobs, Machine(cpus)))
    assert keeps_the_laws_of_easy(outcome, 300) > 50
    assert held_at_most(outcome, jobs.cpus, np.ones(len(jobs), dtype=bool)) <= cpus


def test_urgent_jobs_wait_for_no_regular_job_that_comes_to_run_after_them() -> None:
    """UJF: no regular job starts while an urgent one waits."""
    for seed in SEEDS[:500]:
        case = random_case(seed)
        outcome, jobs = run("ujf", scenario_of(case)), case.workload
        for job in np.flatnonzero(jobs.urgent & ~outcome.rejected):
            meanwhile = (outcome.start >= jobs.submit[job]) & (outcome.start < outcome.start[job]) & ~jobs.urgent
            assert not meanwhile.any(), (seed, job)


# Whole nodes


def test_jobs_get_whole_nodes() -> None:
    cpus = np.array([1, 16, 17, 64, 65])
    assert units(cpus, Machine(64, 4)).tolist() == [1, 1, 2, 4, 5]
    assert units(cpus, Machine(64)).tolist() == cpus.tolist()


@pytest.mark.parametrize("name", ALL)
def test_nodes_are_a_machine_of_as_many_units(name: str) -> None:
    for seed in SEEDS[:200]:
        case = random_case(seed)
        small = scenario_of(case, tree_for(seed))
        several: Workload = replace(case.workload, cpus=case.workload.cpus * 4 - np.arange(len(case.workload)) % 4)
        whole = replace(small, workload=several, machine=Machine(case.cpus * 4, case.cpus))
        assert np.array_equal(run(name, whole).start, run(name, small).start, equal_nan=True), seed
        assert counted(whole).capacity == case.cpus
        assert max(counted(whole).jobs.estimate, default=0) < inf
