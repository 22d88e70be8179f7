"""WCJS: against a slow replay of its rules, and by its laws, on random workloads."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.policy.rules.checkpoint_laws import ACT_AT
from omfs_daemon.policy.rules.realtime_terms import CostWeights, JobSize, RealtimeTerms
from omfs_daemon.policy.rules.slowdown_laws import VICTIM_MAX_SLOWDOWN, running_slowdown
from omfs_daemon.simulate.engine.checkpoint_scheme import CheckpointScheme
from omfs_daemon.simulate.engine.conventions import Conventions, UserLimits
from omfs_daemon.simulate.engine.outcome import Use
from omfs_daemon.simulate.engine.place_stays import PlaceStays
from omfs_daemon.simulate.engine.places import FLAT_LAYOUT, Layout, Place, layout_named
from omfs_daemon.simulate.engine.realtime_setting import RealtimeSetting
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.kernels.realtime.wcjs_kernel import ALIKE, CHEAPEST, CHEAPEST_BLOCKING, FIRST
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.policies.run_predictor import LEARNING
from omfs_daemon.simulate.policies.wcjs import outcome_on_places, served
from omfs_daemon.simulate.results.measure import seconds_by_use
from omfs_daemon.simulate.workload.workload import PreemptMode, workload
from tests.support.amounts import sample
from tests.support.reference_wcjs import PlaceReplay

pytestmark = pytest.mark.usefixtures("compiled")

ORDERS = {"wfp": ALIKE, "wfp-first": FIRST, "wcjs": CHEAPEST, "wcjs-text": CHEAPEST_BLOCKING}
CPUS = 8
# Places that overlap without being parts of each other, as on the real machine.
CROSSED = Layout(
    "crossed",
    (
        *(Place(1, (unit,)) for unit in range(CPUS)),
        *(Place(2, (unit, unit + 1)) for unit in range(CPUS - 1)),
        *(Place(4, (unit, unit + 1, unit + 2, (unit + 4) % CPUS)) for unit in range(4)),
        Place(6, tuple(range(6))),
        Place(6, tuple(range(2, 8))),
    ),
)
LAYOUTS = (layout_named("aligned:1", CPUS), layout_named("aligned:2", CPUS), CROSSED)
SCHEMES = (
    CheckpointScheme("jit"),
    CheckpointScheme("none"),
    CheckpointScheme("sys", 16.0),
    CheckpointScheme("app", 20.0),
)
SECOND_OF_CHECKPOINT = 4e9 / 128
SEEDS = sample(range(4000), 60)


def random_scenario(seed: int, layouts: tuple[Layout, ...] = LAYOUTS) -> Scenario:
    """Times are whole seconds."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(3, 40))
    run = draw.integers(0, 120, count).astype(np.float64)
    limit = np.maximum(np.round(run * draw.choice([0.5, 1, 1, 1.5, 3], count)), 1.0)
    jobs = workload(
        "random",
        np.sort(draw.integers(0, int(draw.choice([30, 200, 800])), count)).astype(np.float64),
        draw.choice([1, 1, 1, 2, 3, 4, 5, 8], count),
        run,
        limit=limit,
        realtime=draw.random(count) < draw.choice([0.0, 0.1, 0.3, 0.6]),
    )
    levels = [(1.0,) * 4, (1.1,) * 4, ACT_AT, tuple(draw.choice([1.05, 1.25, 1.5, 2.0], 4).tolist())]
    most = [VICTIM_MAX_SLOWDOWN, (inf,) * 4, tuple(draw.choice([1.2, 1.5, 3.0, 10.0], 4).tolist())]
    terms = RealtimeTerms(
        act_at=levels[draw.integers(len(levels))],
        victim_max=most[draw.integers(len(most))],
        weights=CostWeights(*draw.choice([1.0, 1.0, 0.0, 2.0], 3).tolist()),
    )
    setting = RealtimeSetting(
        layout=layouts[draw.integers(len(layouts))],
        scheme=SCHEMES[draw.integers(len(SCHEMES))],
        shared_file_system=bool(draw.integers(2)),
        memory_per_cpu=SECOND_OF_CHECKPOINT * float(draw.choice([0, 1, 4, 10])),
        terms=terms,
        sizes=JobSize(25.0, 60.0),
    )
    estimates = UserLimits() if draw.random() < 0.8 else None
    return Scenario(jobs, Machine(CPUS), Conventions(estimates, kill=bool(draw.integers(2))), realtime=setting)


@pytest.mark.parametrize("order", ORDERS)
def test_the_kernel_replays_as_the_slow_one(order: str) -> None:
    stopped = 0
    for seed in SEEDS:
        scenario = random_scenario(seed)
        _, stays = served(scenario, ORDERS[order])
        slow = PlaceReplay(scenario, order).run()
        place_at = scenario.realtime.layout.places.index
        fields = (stays.job, stays.place, stays.begin, stays.end, stays.gone, stays.preemptor)
        ours = sorted(zip(*(field.tolist() for field in fields), strict=True), key=_by_begin)
        theirs = [(one.job, place_at(one.place), one.begin, one.end, one.gone, one.preemptor) for one in slow.stays]
        assert ours == [pytest.approx(one) for one in sorted(theirs, key=_by_begin)], seed
        costs = [stays.cost[stays.preemptor == job].sum() for _, job, _ in slow.decisions]
        assert costs == pytest.approx([cost for _, _, cost in slow.decisions]), seed
        stopped += len(slow.decisions)
    assert (stopped > 0) == order.startswith("wcjs")


@pytest.mark.parametrize("seed", [420, 959, 968])
@pytest.mark.parametrize("order", ["wcjs", "wcjs-text"])
def test_nothing_is_scheduled_when_a_stay_would_have_ended_that_was_cut_short(seed: int, order: str) -> None:
    scenario = random_scenario(seed)
    case, _ = served(scenario, ORDERS[order])
    slow = PlaceReplay(scenario, order).run()
    starts = [slow.start.get(job, nan) for job in range(len(case.jobs))]
    assert case.jobs["start"].tolist() == pytest.approx(starts, nan_ok=True)


def with_users(scenario: Scenario, seed: int, learning: str, only: bool) -> Scenario:
    """Three users with two names; some jobs have no limit."""
    draw, jobs = np.random.default_rng([seed, 3]), scenario.workload
    count = len(jobs)
    jobs = replace(
        jobs,
        users=("ann", "bob", "eve"),
        user=draw.integers(0, 3, count),
        job_names=("a", "b"),
        job_name=draw.integers(0, 2, count),
        limit=np.where((draw.random(count) < 0.1) & ~jobs.realtime, inf, jobs.limit),
    )
    kill = scenario.conventions.kill
    return replace(
        scenario, workload=jobs, conventions=Conventions(kill=kill, learning=learning, for_victims_only=only)
    )


@pytest.mark.parametrize("learning", LEARNING)
@pytest.mark.parametrize("order", ORDERS)
def test_with_learned_estimates_it_replays_as_the_slow_one(order: str, learning: str) -> None:
    differs = 0
    for seed in SEEDS:
        only = seed % 4 == 0 and order.startswith("wcjs")
        scenario = with_users(random_scenario(seed), seed, learning, only)
        outcome, slow = policy_named(order).simulate(scenario), PlaceReplay(scenario, order).run()
        count = range(len(scenario.workload))
        assert outcome.start.tolist() == pytest.approx([slow.start.get(job, nan) for job in count], nan_ok=True), seed
        assert outcome.finish.tolist() == pytest.approx([slow.finish.get(job, nan) for job in count], nan_ok=True), seed
        assert outcome.estimate is not None
        expected = [slow.predicted.get(job, nan) for job in count]
        np.testing.assert_allclose(outcome.estimate, expected, rtol=1e-12, err_msg=str(seed))
        limits = replace(scenario, conventions=Conventions(UserLimits(), kill=scenario.conventions.kill))
        differs += not np.array_equal(policy_named(order).simulate(limits).start, outcome.start, equal_nan=True)
    assert differs > len(SEEDS) // 4


def _by_begin(stay: tuple[float, ...]) -> tuple[float, float]:
    return stay[2], stay[0]


@given(st.integers(0, 10**6), st.booleans())
def test_what_holds_whatever_comes(seed: int, flat: bool) -> None:
    scenario = random_scenario(seed, (FLAT_LAYOUT,) if flat else LAYOUTS)
    jobs = scenario.workload
    case, stays = served(scenario, CHEAPEST)
    of_job = case.jobs
    stops = np.flatnonzero(stays.preemptor >= 0)
    assert not jobs.realtime[stays.job[stops]].any()
    for at in stops:
        victim, preemptor, now = int(stays.job[at]), int(stays.preemptor[at]), stays.end[at]
        assert jobs.realtime[preemptor]
        assert now >= of_job["act_at"][preemptor]
        assert case.held[victim] <= case.held[preemptor]
        begun = stays.begin[(stays.job == preemptor)]
        of_same = stays.gone[stays.preemptor == preemptor]
        assert begun.tolist() == [of_same.max()], "each stop lets its beneficiary start"
        worked = stays.done[at] + now - stays.works_from[at]  # at most: less what it wrote meanwhile
        least = running_slowdown(jobs.submit[victim], of_job["limit"][victim], now, worked)
        assert least <= of_job["victim_max"][victim]
    assert _most_held(stays, case.held, scenario) <= CPUS
    outcome = outcome_on_places(scenario, "wcjs", case, stays)
    done = ~np.isnan(outcome.finish)
    assert (done == of_job["fits"]).all()
    by_use = seconds_by_use(outcome)
    assert by_use[done, Use.WORK] == pytest.approx(outcome.run[done])
    staying = np.bincount(stays.job, weights=stays.gone - stays.begin, minlength=len(jobs))
    assert by_use.sum(axis=1) == pytest.approx(staying), "held = run + stops + resumes + lost + checkpoints"


def _most_held(stays: PlaceStays, held: np.ndarray, scenario: Scenario) -> int:
    """CPUs at once; with places also asserts that no unit is held twice."""
    changes = sorted(
        [(begin, 1, at) for at, begin in enumerate(stays.begin)] + [(gone, 0, at) for at, gone in enumerate(stays.gone)]
    )
    places, now, most, units = scenario.realtime.layout.places, 0, 0, dict[int, int]()
    for _, comes, at in changes:
        if stays.begin[at] == stays.gone[at]:
            continue
        now += int(held[stays.job[at]]) * (1 if comes else -1)
        most = max(most, now)
        for unit in places[stays.place[at]].units if places else ():
            units[unit] = units.get(unit, 0) + (1 if comes else -1)
            assert units[unit] <= 1
    return most


@given(st.integers(0, 10**6), st.booleans())
def test_without_real_time_jobs_wcjs_is_wfp(seed: int, flat: bool) -> None:
    scenario = random_scenario(seed, (FLAT_LAYOUT,) if flat else LAYOUTS)
    scenario = replace(scenario, workload=replace(scenario.workload, realtime=np.zeros(len(scenario.workload), bool)))
    one, *others = (policy_named(name).simulate(scenario) for name in ("wfp", "wcjs", "wcjs-text", "wfp-first"))
    for other in others:
        assert np.array_equal(one.start, other.start, equal_nan=True)
        assert np.array_equal(one.finish, other.finish, equal_nan=True)


@given(st.integers(0, 10**6))
def test_a_due_job_on_a_counter_starts_unless_too_little_is_eligible(seed: int) -> None:
    scenario = random_scenario(seed, (FLAT_LAYOUT,))
    terms = replace(scenario.realtime.terms, victim_max=(inf,) * 4)
    scenario = replace(scenario, realtime=replace(scenario.realtime, terms=terms))
    case, stays = served(scenario, CHEAPEST)
    jobs, cpus = case.jobs, scenario.workload.cpus
    for job in case.crossings:
        at = jobs["act_at"][job]
        claimed = stays.end[stays.preemptor == job].min() if (stays.preemptor == job).any() else jobs["start"][job]
        if claimed > at:
            # At its crossing all that can be freed is not enough: real-time jobs, those stopped or wider are not.
            there = (stays.begin <= at) & (stays.end > at) & ~scenario.workload.realtime[stays.job]
            there &= cpus[stays.job] <= cpus[job]
            free = CPUS - cpus[stays.job[(stays.begin <= at) & (stays.gone > at)]].sum()
            assert free < cpus[job]
            claims = [one for one in np.unique(stays.preemptor[stays.preemptor >= 0]) if _claims(stays, one, at)]
            assert claims or free + cpus[stays.job[there & (stays.begin < at)]].sum() < cpus[job]


def _claims(stays: PlaceStays, job: int, at: float) -> bool:
    """Whether jobs are being stopped for it then."""
    return bool(stays.end[stays.preemptor == job].min() <= at <= stays.begin[stays.job == job].min())


def test_urgent_and_non_preemptible_jobs_are_not_stopped() -> None:
    jobs = workload(
        "three",
        np.array([0.0, 0.0, 1.0]),
        np.array([4, 4, 4]),
        np.array([1000.0, 1000.0, 100.0]),
        limit=np.array([1000.0, 1000.0, 100.0]),
        urgent=np.array([True, False, False]),
        mode=np.array([PreemptMode.NEVER, PreemptMode.NEVER, PreemptMode.SWAP]),
        realtime=np.array([False, False, True]),
    )
    scenario = Scenario(jobs, Machine(8))
    assert policy_named("wcjs").simulate(scenario).start[2] == 1000.0
    stoppable = replace(scenario, workload=replace(jobs, mode=np.full(3, PreemptMode.SWAP)))
    # Eight CPUs, four of which a real-time job wants: from a wide job's threshold of 2 on.
    assert policy_named("wcjs").simulate(stoppable).start[2] == 1.0 + (2.0 - 1.0) * 100.0


def test_a_crossing_is_an_event_even_if_nothing_else_happens() -> None:
    jobs = workload(
        "two", np.array([0.0, 10.0]), np.array([8, 8]), np.array([9000.0, 100.0]), limit=np.array([9000.0, 100.0]),
        realtime=np.array([False, True]),
    )  # fmt: skip
    terms = RealtimeTerms(act_at=(1.25,) * 4, victim_max=(inf,) * 4)
    setting = RealtimeSetting(terms=terms, memory_per_cpu=SECOND_OF_CHECKPOINT * 7)
    outcome = policy_named("wcjs").simulate(Scenario(jobs, Machine(8), realtime=setting))
    assert outcome.start.tolist() == [0.0, 10.0 + 25.0 + 7.0]
    assert outcome.finish.tolist() == [142.0 + 7.0 + 9000.0 - 35.0, 142.0]
    assert outcome.preemptions.tolist() == [1, 0]
