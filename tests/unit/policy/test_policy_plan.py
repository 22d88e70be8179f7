"""Whole plans: which jobs start, are preempted for others, are held, and why the others wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.cluster.snapshot import PreemptedJob, PreemptionHistory, Snapshot
from omfs_daemon.cluster.units import CPU, Unit
from omfs_daemon.policy.admission_holds import BELIEF
from omfs_daemon.policy.arrays.node_arrays import NodeArrays
from omfs_daemon.policy.plan import TEXT, HoldChange, PlannedResume, Reason, Victim, set_back_since
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.rules.queue_order import BAND_STEP, Band
from omfs_daemon.policy.validator import REFUSAL_TEXT, RefusalReason, validate
from tests.support.policy_builders import (
    FRESH,
    NOW,
    array,
    decide,
    held,
    nodes,
    request,
    rules,
    running,
    snapshot,
    started,
    suspended,
    under_way,
    urgent,
    victims_by_preemptor,
    waiting,
    why_waiting,
    world,
)

HALVES = rules(bio=50, physics=50)


def full(account: str = "bio", count: int = 4, first: int = 1, **fields: object) -> list[object]:
    return [running(first + i, account, on=f"n{i // 4}", priority=i, **fields) for i in range(count)]  # type: ignore[arg-type]


# -- regular jobs ---
def test_idle_cpus_are_lent_and_taken_back_from_the_least_priority() -> None:
    assert started(decide(nodes(1), [waiting(1, "bio", 4)], HALVES)) == ["1"]
    suggested = decide(nodes(1), [*full(), waiting(9, "physics", 2)], HALVES)
    assert victims_by_preemptor(suggested) == {"9": {"1", "2"}}
    assert suggested.preemptions[0].numbers == {"cpus": 2, "idle": 0, "entitled": 2, "used": 0}


def test_nobody_is_preempted_if_not_enough_can_be() -> None:
    suggested = decide(nodes(1), [*full(), waiting(9, "physics", 3)], HALVES)  # beyond its own half
    assert not suggested.preemptions and why_waiting(suggested) == {"9": "BEYOND_ENTITLEMENT"}
    non_preemptible = [replace(job, comment="") for job in full()]
    suggested = decide(nodes(1), [*non_preemptible, waiting(9, "physics", 2)], HALVES)
    assert not suggested.preemptions and why_waiting(suggested) == {"9": "NOT_ENOUGH_VICTIMS"}


def test_an_account_gives_only_while_it_is_above() -> None:
    jobs = [*full(count=2), running(3, "stranger", priority=99), running(4, "stranger", priority=98)]
    assert victims_by_preemptor(decide(nodes(1), [*jobs, waiting(9, "physics", 2)], HALVES)) == {"9": {"3", "4"}}


def test_useless_jobs_of_a_giver_do_not_use_up_what_it_must_give() -> None:
    """The four of least priority lie one on each node; only those that lie together make room for four CPUs."""
    jobs = [running(node * 4 + i + 1, "bio", on=f"n{node}", priority=i) for node in range(4) for i in range(4)]
    pinned = waiting(99, "physics", request=request(4, required_nodes=frozenset({"n3"})))
    assert victims_by_preemptor(decide(nodes(4), [*jobs, pinned], HALVES)) == {"99": {"13", "14", "15", "16"}}
    by = rules(bio=75, physics=25)
    assert len(victims_by_preemptor(decide(nodes(4), [*jobs, waiting(99, "physics", 4)], by))["99"]) == 4


def test_a_preemption_over_several_nodes() -> None:
    jobs = [running(1, "bio", request=request(8, nodes=2), on=("n0", "n1"))]
    assert victims_by_preemptor(
        decide(nodes(2), [*jobs, waiting(9, "physics", request=request(4, nodes=2))], HALVES)
    ) == {"9": {"1"}}


def test_what_is_being_freed_is_promised_once() -> None:
    leaving = replace(running(1, "bio", 2), state=JobState.COMPLETING)
    jobs = [leaving, running(2, "bio", 2), waiting(8, "physics", 2), waiting(9, "physics", 2)]
    suggested = decide(nodes(1), jobs, rules(physics=100))
    assert why_waiting(suggested)["8"] == "BEING_FREED"
    assert [promise.ref for promise in suggested.promises] == ["8"]
    assert victims_by_preemptor(suggested) == {"9": {"2"}}


def test_leftovers_of_a_preemption_serve_the_next_one() -> None:
    jobs = [running(1, "bio", 4), waiting(8, "physics", 1), waiting(9, "physics", 1)]
    suggested = decide(nodes(1), jobs, HALVES)
    assert victims_by_preemptor(suggested) == {"8": {"1"}} and why_waiting(suggested)["9"] == "BEING_FREED"
    assert not validate(suggested, snapshot(nodes(1), jobs), PreemptionHistory(), HALVES, NOW, FRESH).refused


def test_exclusive_jobs_count_for_whole_nodes() -> None:
    alone = waiting(9, "physics", request=request(1, exclusive=True))
    assert why_waiting(decide(nodes(1), [*full(), alone], HALVES)) == {"9": "BEYOND_ENTITLEMENT"}
    assert len(victims_by_preemptor(decide(nodes(2), [*full(count=8), alone], HALVES))["9"]) == 4


def test_quantum_preemptions_per_hour_and_sparing_protect() -> None:
    jobs = [*full(start=NOW - 10), waiting(9, "physics", 1)]
    assert why_waiting(decide(nodes(1), jobs, replace(HALVES, quantum=11.0))) == {"9": "NOT_ENOUGH_VICTIMS"}
    assert victims_by_preemptor(decide(nodes(1), jobs, replace(HALVES, quantum=10.0)))
    resumed = PreemptionHistory(running_since={"1": NOW - 1})
    assert victims_by_preemptor(decide(nodes(1), jobs, replace(HALVES, quantum=10.0), resumed)) == {"9": {"2"}}
    often = PreemptionHistory(
        preemption_times={"1": (NOW - 3599, NOW - 5), "2": (NOW - 3601, NOW - 3)}, spared={"2": NOW + 1}
    )
    assert victims_by_preemptor(decide(nodes(1), jobs, replace(HALVES, max_preemptions_per_hour=2), often)) == {
        "9": {"3"}
    }
    assert victims_by_preemptor(decide(nodes(1), jobs, HALVES, PreemptionHistory(spared={"1": NOW}))) == {"9": {"1"}}


@pytest.mark.parametrize(
    ("comment", "allowed", "protects"),
    [
        ("omfs:min_runtime=12", 100.0, True),
        ("omfs:min_runtime=10", 100.0, False),  # it has run for ten
        ("omfs:min_runtime=5", 100.0, False),
        ("omfs:min_runtime=1000", 11.0, True),
        ("omfs:min_runtime=1000", 10.0, False),
        ("omfs:min_runtime=1000", 0.0, False),
        ("omfs:min_runtime=-12", 100.0, False),
        ("omfs:min_runtime=12s", 100.0, False),
        ("note=omfs:min_runtime=12", 100.0, False),
    ],
)
def test_a_job_may_request_a_longer_min_runtime_as_far_as_the_site_allows(
    comment: str, allowed: float, protects: bool
) -> None:
    borrowers = [replace(job, comment=f"{job.comment} {comment}") for job in full(start=NOW - 10)]
    jobs = [*borrowers, waiting(9, "physics", 1)]
    terms = replace(HALVES, quantum=8.0, min_runtime_max=allowed)
    free_to_stop = decide(nodes(1), jobs, replace(terms, min_runtime_max=0.0))
    verdict = validate(free_to_stop, snapshot(nodes(1), jobs), PreemptionHistory(), terms, NOW, FRESH)
    assert bool(victims_by_preemptor(decide(nodes(1), jobs, terms))) is not protects
    assert [refused.reason for refused in verdict.refused] == ([RefusalReason.IN_QUANTUM] if protects else [])


def test_min_runtime_does_not_protect_from_urgent_jobs() -> None:
    borrowers = [replace(job, comment=f"{job.comment} omfs:min_runtime=1000") for job in full(start=NOW - 10)]
    terms = replace(HALVES, min_runtime_max=1000.0)
    assert victims_by_preemptor(decide(nodes(1), [*borrowers, urgent(9, cpus=1)], terms))


def test_min_runtime_starts_again_with_a_resume() -> None:
    borrowers = [replace(job, comment=f"{job.comment} omfs:min_runtime=50") for job in full(start=NOW - 100)]
    terms = replace(HALVES, quantum=10.0, min_runtime_max=50.0)
    resumed = PreemptionHistory(running_since={job.ref: NOW - 20 for job in borrowers[:3]})
    assert victims_by_preemptor(decide(nodes(1), [*borrowers, waiting(9, "physics", 1)], terms, resumed)) == {
        "9": {borrowers[3].ref}
    }


def test_backoff_is_for_one_job_only() -> None:
    jobs = [*full(), waiting(8, "physics", 2), waiting(9, "physics", 2)]
    suggested = decide(nodes(1), jobs, HALVES, PreemptionHistory(backoff={"8": NOW + 1}))
    assert why_waiting(suggested)["8"] == "TRIED_IN_VAIN" and "9" in victims_by_preemptor(suggested)


def test_preemptions_per_cycle_are_limited() -> None:
    jobs = [*full(), waiting(8, "physics", 1), waiting(9, "physics", 1)]
    suggested = decide(nodes(1), jobs, replace(HALVES, max_preemptions_per_cycle=1))
    assert list(victims_by_preemptor(suggested)) == ["8"] and why_waiting(suggested) == {"9": "ENOUGH_PREEMPTIONS"}
    large = decide(nodes(1), [*full(), waiting(8, "physics", 2)], replace(HALVES, max_preemptions_per_cycle=1))
    assert len(victims_by_preemptor(large)["8"]) == 2  # the first one of a plan may be larger, or it would never come


def test_preemptions_under_way_count_once() -> None:
    """Victims no longer use, the preemptor does already, and neither is planned for again."""
    jobs = [*full(), array(8, 3, "physics")]
    history = PreemptionHistory(under_way=(under_way("8_0", "physics", [("n0", 1)], "1"),))
    suggested = decide(nodes(1), jobs, HALVES, history)
    assert victims_by_preemptor(suggested) == {"8_1": {"2"}}
    assert [row.used for row in suggested.accounts] == [4, 0, 0]


def test_a_non_preemptible_preemptor_under_way_counts_as_non_preemptible() -> None:
    jobs = [*full(), held(8, "physics", 2), held(9, "physics", 1)]
    history = PreemptionHistory(under_way=(under_way("8", "physics", [("n0", 2)], "1", "2"),))
    assert why_waiting(decide(nodes(1), jobs, HALVES, history)) == {"9": "NON_PREEMPTIBLE_BEYOND"}


def test_a_job_that_slurm_would_not_requeue_is_preempted_only_if_it_keeps_its_work() -> None:
    owner = waiting(9, "physics", 2)
    lost = [replace(job, requeue=False) for job in full()]
    suggested = decide(nodes(1), [*lost, owner], HALVES)
    assert not suggested.preemptions and why_waiting(suggested) == {"9": "NOT_ENOUGH_VICTIMS"}
    assert not suggested.holds  # its class stays what it is: it may borrow
    for comment in ("omfs:method=suspend", "omfs:method=requeue,suspend"):
        kept = [replace(job, comment=comment) for job in lost]
        (planned,) = decide(nodes(1), [*kept, owner], HALVES).preemptions
        assert {victim.method for victim in planned.victims} == {"suspend"}


def test_the_validator_refuses_to_requeue_what_slurm_would_not() -> None:
    jobs = [*full(), waiting(9, "physics", 2)]
    suggested = decide(nodes(1), jobs, HALVES)
    lost = [replace(job, requeue=False) for job in jobs]
    verdict = validate(suggested, snapshot(nodes(1), lost), PreemptionHistory(), HALVES, NOW, FRESH)
    assert not verdict.preemptions and [one.reason for one in verdict.refused] == [RefusalReason.NEVER_PREEMPTED]
    assert set(REFUSAL_TEXT) == set(RefusalReason)


# -- non-preemptible jobs ---
def test_non_preemptible_jobs_are_held_and_released() -> None:
    late = [waiting(1, "bio", 2, non_preemptible=True), waiting(2, "bio", 1, non_preemptible=True)]
    suggested = decide(nodes(1), late, HALVES)
    assert [hold.ref for hold in suggested.holds] == ["2"] and started(suggested) == ["1"]
    suggested = decide(nodes(1), [held(1, "bio", 2), held(2, "bio", 1)], HALVES)
    assert [release.ref for release in suggested.releases] == ["1"]
    assert why_waiting(suggested) == {"2": "NON_PREEMPTIBLE_BEYOND"}


def test_an_open_number_of_nodes_counts_with_the_most_that_it_may_get() -> None:
    def waits_for_nodes(most: int) -> dict[str, str]:
        job = held(1, "bio", request=request(2, nodes=2, max_nodes=most))
        return why_waiting(decide(nodes(4, cpus=1), [job], HALVES))

    assert waits_for_nodes(2) == {}
    assert waits_for_nodes(3) == {"1": "NON_PREEMPTIBLE_BEYOND"}


def test_a_job_behind_the_first_of_its_account_waits_unless_it_ends_in_time() -> None:
    begun = running(1, "bio", 1, comment="", time_limit=600.0, start=NOW)
    late = [held(number, "bio", 1, time_limit=limit) for number, limit in ((3, 900.0), (4, 500.0))]
    suggested = decide(nodes(1), [begun, held(2, "bio", 2, time_limit=60.0), *late], HALVES)
    assert [release.ref for release in suggested.releases] == ["4"]
    assert why_waiting(suggested) == {"2": "NON_PREEMPTIBLE_BEYOND", "3": "ACCOUNT_ORDER"}
    greedy = decide(nodes(1), [begun, *late], replace(HALVES, keeps_account_order=False))
    assert [release.ref for release in greedy.releases] == ["3"]


def test_nothing_is_released_in_the_place_of_a_job_that_is_still_to_be_held() -> None:
    """Slurm may start it until it is held."""
    unheld = waiting(2, "bio", 1, non_preemptible=True)
    suggested = decide(nodes(1), [held(1, "bio", 2), unheld], HALVES)
    assert [hold.ref for hold in suggested.holds] == ["2"] and not suggested.releases
    assert "1" in suggested.kept


def test_a_held_job_whose_deadline_has_passed_is_released() -> None:
    late = held(2, "bio", 1, deadline=NOW - 2)
    suggested = decide(nodes(1), [running(1, "bio", 2, comment=""), late, held(3, "bio", deadline=NOW)], HALVES)
    assert [release.ref for release in suggested.releases] == ["2"] and suggested.kept == ("3",)


def test_a_hold_that_the_owner_could_release_becomes_an_administrators() -> None:
    jobs = [running(1, "bio", 2, comment=""), held(2, "bio", 1, hold=Hold.USER)]
    assert [hold.ref for hold in decide(nodes(1), jobs, HALVES).holds] == ["2"]
    foreign = waiting(3, "bio", hold=Hold.USER)
    assert not decide(nodes(1), [foreign], HALVES).releases


def test_preemptible_and_urgent_jobs_are_released_at_once() -> None:
    on_hold = {"hold": Hold.ADMIN, "admin_comment": SUBMIT_MARK}
    suggested = decide(nodes(1), [*full(), waiting(8, **on_hold), urgent(9, **on_hold)], HALVES)
    assert {release.ref for release in suggested.releases} == {"8", "9"}


def test_arrays_are_held_by_task_in_one_order() -> None:
    suggested = decide(nodes(1), [array(7, 4, "bio", non_preemptible=True)], HALVES)
    assert [hold.ref for hold in suggested.holds] == ["7_[2-3]"]
    assert started(suggested) == ["7_0", "7_1"]


# -- urgent jobs ---
def test_urgent_fits_preempts_or_waits() -> None:
    assert started(decide(nodes(1), [urgent(1), waiting(2, "bio", 4)], HALVES))[0] == "1"
    young = [running(i, "bio", time_limit=100.0 * i, start=NOW) for i in range(1, 5)]
    suggested = decide(nodes(1), [*young, urgent(9, cpus=2)], replace(HALVES, quantum=1e6))
    assert victims_by_preemptor(suggested) == {"9": {"4", "3"}}
    others = [running(1, "bio", 4, qos="urgent")]
    assert why_waiting(decide(nodes(1), [*others, urgent(9)], HALVES)) == {"9": "NOT_ENOUGH_VICTIMS"}


def test_an_exclusive_urgent_job_takes_a_whole_node_of_an_uneven_cluster() -> None:
    node_arrays = [*nodes(1, 6), replace(nodes(1)[0], name="odd", cpus=1)]
    jobs = [running(1, "bio", on="n0"), running(2, "bio", on="odd", comment="")]
    suggested = decide(node_arrays, [*jobs, urgent(9, request=request(2, exclusive=True))], HALVES)
    assert victims_by_preemptor(suggested) == {"9": {"1"}}


def test_urgent_spares_owners_if_it_can_or_must() -> None:
    jobs = [*full("bio", 2), *full("stranger", 2, first=3), urgent(9, cpus=1)]
    assert victims_by_preemptor(decide(nodes(1), jobs, HALVES))["9"] <= {"3", "4"}
    jobs[-1] = urgent(9, cpus=3)
    assert len(victims_by_preemptor(decide(nodes(1), jobs, HALVES))["9"]) == 3
    strict = replace(HALVES, urgent_may_take_entitled=False)
    assert why_waiting(decide(nodes(1), jobs, strict)) == {"9": "NOT_ENOUGH_VICTIMS"}


# -- suspended jobs ---
def test_suspended_jobs_resume_where_they_were_when_cpus_are_free() -> None:
    suspended_job, history = (
        suspended(1, "bio", 2),
        PreemptionHistory(preempted={"1": PreemptedJob(NOW, "suspend", "9")}),
    )
    suggested = decide(nodes(2), [suspended_job], HALVES, history)
    assert [resume.ref for resume in suggested.resumes] == ["1"]
    assert not decide(nodes(2), [suspended_job], HALVES).resumes  # not suspended by us
    busy = [suspended_job, running(2, "bio", 3)]
    assert why_waiting(decide(nodes(2), busy, rules(physics=50), history)) == {"1": "BEYOND_ENTITLEMENT"}
    leaving = PreemptionHistory(preempted=history.preempted, under_way=(under_way("9", "physics", [("n1", 1)], "2"),))
    assert not decide(nodes(2), busy, HALVES, leaving).resumes  # the victim still is on those CPUs


def with_units(cpus: dict[int, tuple[int, ...]], jobs: list[Job], on: str = "n0") -> Snapshot:
    """One node of four CPUs, and which of them each of these jobs has."""
    units = {number: frozenset(Unit(on, CPU, cpu) for cpu in theirs) for number, theirs in cpus.items()}
    return replace(snapshot(nodes(1), jobs), units=units)


@pytest.mark.parametrize(("theirs", "resumes"), [((2, 3), ["1"]), ((0, 1), []), ((1, 2), [])])
def test_suspended_jobs_resume_on_their_own_cpus_only(theirs: tuple[int, ...], resumes: list[str]) -> None:
    history = PreemptionHistory(preempted={"1": PreemptedJob(NOW, "suspend", "9")})
    seen = with_units({1: (0, 1), 2: theirs}, [suspended(1, "bio", 2), running(2, "bio", 2, comment="")])
    plan = make_plan(seen, history, HALVES, NOW)
    assert [resume.ref for resume in plan.resumes] == resumes
    assert why_waiting(plan) == ({} if resumes else {"1": "OWN_CPUS_TAKEN"})
    forced = replace(plan, resumes=(PlannedResume("1", "bio", suspended(1, "bio", 2).allocations),))
    verdict = validate(forced, seen, history, HALVES, NOW, FRESH)
    assert [resume.ref for resume in verdict.resumes] == resumes


def test_victims_of_a_suspended_job_are_those_on_its_cpus() -> None:
    history = PreemptionHistory(preempted={"1": PreemptedJob(NOW, "suspend", "9")})
    jobs = [suspended(1, "bio", 2), running(2, "stranger", 2), running(3, "stranger", 2, start=5.0)]
    seen = with_units({1: (0, 1), 2: (0, 1), 3: (2, 3)}, jobs)
    plan = make_plan(seen, history, HALVES, NOW)
    assert victims_by_preemptor(plan) == {"1": {"2"}}
    assert validate(plan, seen, history, HALVES, NOW, FRESH).preemptions == plan.preemptions
    wrong = replace(plan.preemptions[0], victims=(Victim("3", "stranger", "requeue", 2),))
    verdict = validate(replace(plan, preemptions=(wrong,)), seen, history, HALVES, NOW, FRESH)
    assert [refused.reason for refused in verdict.refused] == [RefusalReason.DOES_NOT_FIT]
    seen = with_units({1: (0, 1), 2: (0, 1), 3: (2, 3)}, [jobs[0], replace(jobs[1], comment=""), jobs[2]])
    assert not make_plan(seen, history, HALVES, NOW).preemptions


def test_no_suspended_job_resumes_beside_a_preemptor_that_has_not_started() -> None:
    preemption = under_way("9", "physics", [("n0", 1)], "2")
    history = PreemptionHistory(preempted={"1": PreemptedJob(NOW, "suspend", "9")}, under_way=(preemption,))
    jobs = [suspended(1, "bio", 1), waiting(9, "physics", 1)]
    assert not make_plan(with_units({1: (0,)}, jobs), history, HALVES, NOW).resumes
    started = [jobs[0], running(9, "physics", 1)]
    assert make_plan(with_units({1: (0,), 9: (1,)}, started), history, HALVES, NOW).resumes


def test_of_suspended_jobs_with_the_same_cpus_one_resumes() -> None:
    history = PreemptionHistory(preempted={str(n): PreemptedJob(NOW, "suspend", "9") for n in (1, 2, 3)})
    jobs = [suspended(number, "bio", 1) for number in (1, 2, 3)]
    plan = make_plan(with_units({1: (0,), 2: (0,), 3: (1,)}, jobs), history, HALVES, NOW)
    assert [resume.ref for resume in plan.resumes] == ["1", "3"]


def test_a_suspended_job_may_preempt_for_its_cpus() -> None:
    history = PreemptionHistory(preempted={"1": PreemptedJob(NOW, "suspend", "9")})
    jobs = [suspended(1, "bio", 2, request=request(2, memory_per_node=10)), *full("stranger", 4, first=2)]
    suggested = decide(nodes(1), jobs, HALVES, history)
    assert suggested.preemptions[0].suspended and len(suggested.preemptions[0].victims) == 2


def test_a_suspended_victim_keeps_its_memory() -> None:
    victim = running(1, "bio", request=request(4, memory_per_node=10), comment="omfs:method=suspend")
    wants = waiting(9, "physics", request=request(2, memory_per_node=8))
    assert why_waiting(decide(nodes(1), [victim, wants], HALVES)) == {"9": "NOT_ENOUGH_VICTIMS"}
    either = replace(victim, comment="omfs:method=suspend,requeue")
    assert decide(nodes(1), [either, wants], HALVES).preemptions[0].victims[0].method == "requeue"
    small = waiting(9, "physics", request=request(2, memory_per_node=6))
    assert decide(nodes(1), [either, small], HALVES).preemptions[0].victims[0].method == "suspend"


def test_the_last_resort_frees_the_memory_that_a_suspended_victim_would_keep() -> None:
    resort = replace(HALVES, classes=tuple(replace(rule, last_resort="requeue") for rule in HALVES.classes))
    victim = running(1, "bio", request=request(4, memory_per_node=10), comment="omfs:method=suspend")
    wants = waiting(9, "physics", request=request(2, memory_per_node=8))
    (preemption,) = decide(nodes(1), [victim, wants], resort).preemptions
    assert [(one.ref, one.method) for one in preemption.victims] == [("1", "requeue")]
    small = waiting(9, "physics", request=request(2, memory_per_node=6))
    assert decide(nodes(1), [victim, small], resort).preemptions[0].victims[0].method == "suspend"
    never = replace(victim, comment="omfs:method=suspend omfs:exclude=requeue")
    assert why_waiting(decide(nodes(1), [never, wants], resort)) == {"9": "NOT_ENOUGH_VICTIMS"}


# -- ranks ---
def test_ranks_only_when_somebody_waits() -> None:
    assert decide(nodes(1), [waiting(1, "bio")], HALVES).ranks == ()
    jobs = [*full("bio", 2), *full("physics", 2, first=3), waiting(8, "bio"), urgent(9)]
    strict = replace(HALVES, urgent_may_take_entitled=False)
    assert {rank.ref: rank.band for rank in decide(nodes(1), jobs, strict).ranks} == {"9": Band.URGENT}
    ranked = [*jobs[:-1], waiting(7, "bio", nice=-4 * BAND_STEP + 5)]
    assert [(rank.ref, rank.nice) for rank in decide(nodes(1), ranked, HALVES).ranks] == [("7", 5)]


def test_ranks_are_as_many_as_could_start_soon() -> None:
    jobs = [*full(comment=""), *(waiting(10 + i, "physics") for i in range(5)), waiting(20, "bio")]
    assert len(decide(nodes(1), jobs, HALVES).ranks) == 2  # as many as the account owns
    assert len(decide(nodes(1), jobs, replace(HALVES, rank_depth=1)).ranks) == 1


def test_a_large_job_is_not_overtaken_by_small_ones_where_only_its_account_waits() -> None:
    large, small = waiting(8, "physics", cpus=2), waiting(9, "physics")
    running_jobs = [*full("bio", 3, comment=""), running(4, "physics", comment="")]
    assert decide(nodes(1), [*running_jobs, large, small], HALVES).ranks == ()
    (rank,) = decide(nodes(1), [*running_jobs, large, small, waiting(20, "bio")], HALVES).ranks
    assert (rank.ref, rank.band) == ("9", Band.ENTITLED)
    published = replace(HALVES, keeps_account_order=False)
    assert [rank.ref for rank in decide(nodes(1), [*running_jobs, large, small], published).ranks] == ["9"]


def test_preempted_jobs_come_first_in_their_band() -> None:
    history = PreemptionHistory(preempted={"9": PreemptedJob(NOW, "requeue", "1")})
    jobs = [*full(comment=""), waiting(8, "physics", priority=5), waiting(9, "physics"), waiting(20, "bio")]
    suggested = decide(nodes(1), jobs, HALVES, history)
    assert [(rank.ref, rank.band) for rank in suggested.ranks] == [("9", Band.PREEMPTED_ENTITLED), ("8", Band.ENTITLED)]


def test_preempted_jobs_of_almost_equal_priority_keep_their_ranks() -> None:
    """There is room for one more in their account's entitlement."""
    history = PreemptionHistory(preempted={ref: PreemptedJob(NOW, "requeue", "1") for ref in ("8", "9")})
    bands = {8: Band.NONE, 9: Band.PREEMPTED_ENTITLED}
    ranked = [
        waiting(number, "physics", nice=-band * BAND_STEP, priority=band * BAND_STEP + 110 - number)
        for number, band in bands.items()
    ]
    jobs = [*full(comment="", count=3), running(4, "physics", comment=""), *ranked]
    assert decide(nodes(1), jobs, HALVES, history).ranks == ()


@pytest.mark.parametrize("method", ["requeue", "suspend"])
def test_a_victim_cannot_preempt_its_preemptor(method: str) -> None:
    borrowers = [waiting(i, "bio", comment=f"omfs:method={method}") for i in range(1, 5)]
    site = world(nodes(1), borrowers, HALVES)
    site.rest()
    site.jobs[9] = waiting(9, "physics", 2)
    site.rest()
    assert len(site.preemptions) == 2 and site.used("bio") == site.used("physics") == 2
    site.end("9")
    site.rest()
    assert site.used("bio") == 4


def test_a_job_that_waits_for_a_limit_counts_for_a_while_and_then_comes_last() -> None:
    def stuck(waited: float, **fields: object) -> Job:
        usual = {"reason": "QOSMaxCpuPerUserLimit", "eligible": NOW - waited}
        return waiting(1, "bio", 2, non_preemptible=True, **(usual | fields))

    other = held(2, "bio", 1)
    patient = decide(nodes(1), [stuck(BELIEF), other], HALVES)
    assert not patient.holds and why_waiting(patient) == {"2": "NON_PREEMPTIBLE_BEYOND"}
    (hold,) = decide(nodes(1), [stuck(BELIEF + 1), other], HALVES).holds
    assert (hold.ref, hold.reason) == ("1", Reason.WAITS_TOO_LONG) and hold.text.startswith("QOSMaxCpuPerUserLimit: ")
    assert set_back_since(f"omfs:held:7 [omfs] {hold.text} | x") == NOW
    assert not decide(nodes(1), [stuck(BELIEF + 1, reason="Resources"), other], HALVES).holds
    assert not decide(nodes(1), [stuck(BELIEF + 1)], HALVES).holds, "nobody else needs its place"


def test_a_job_that_was_held_for_others_comes_after_those_that_waited_then() -> None:
    text = HoldChange("1", "bio", Reason.WAITS_TOO_LONG, "Licenses", 5.0).text
    set_back = replace(held(1, "bio", 2), admin_comment=f"omfs:held:7 [omfs] {text}")
    before, after = held(3, "bio", 2, submit=4.0), held(4, "bio", 2, submit=6.0)
    assert [one.ref for one in decide(nodes(1), [set_back, before, after], HALVES).releases] == ["3"]
    assert [one.ref for one in decide(nodes(1), [set_back, after], HALVES).releases] == ["1"]


@pytest.mark.parametrize("text", ["", "omfs:held:7", "x (since now)", "its turn (since 2026-01-01T00:00:00+00:00)"])
def test_other_texts_set_no_job_back(text: str) -> None:
    assert set_back_since(text) == 0.0
    assert set_back_since(f"{TEXT[Reason.WAITS_TOO_LONG]} (since {text})") == 0.0


@pytest.mark.parametrize(
    ("cpus", "count", "expected"), [(1, 1, 2), (3, 1, 4), (2, 2, 4), (5, 2, 6), (4, 3, 6), (3, 2, 4)]
)
def test_a_job_counts_with_whole_cores(cpus: int, count: int, expected: int) -> None:
    """As 22.05 allocates them on nodes of two cores with two threads each."""
    arrays = NodeArrays({node.name: node for node in nodes(4, threads=2)}, {})
    wanted = request(cpus, nodes=count, partitions=())
    assert arrays.cpus_of(wanted) == arrays.most_cpus_of(wanted) == expected


def test_no_more_jobs_are_released_than_their_cores_fit() -> None:
    jobs = [held(number, "bio", 1) for number in range(1, 5)]
    assert [release.ref for release in decide(nodes(2, threads=2), jobs, HALVES).releases] == ["1", "2"]
