"""Whole decisions: who starts, who is stopped for whom, who is held, and why the others wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.cluster.snapshot import Stopped
from omfs_daemon.policy.validator import REFUSAL_TEXT
from omfs_daemon.policy.validator import Refusal
from omfs_daemon.policy.validator import judge
from omfs_daemon.policy.rules.queue_order import Band
from omfs_daemon.policy.rules.queue_order import BAND_STEP
from tests.unit.policy.policy_builders import FRESH
from tests.unit.policy.policy_builders import NOW
from tests.unit.policy.policy_builders import array
from tests.unit.policy.policy_builders import commitment
from tests.unit.policy.policy_builders import decide
from tests.unit.policy.policy_builders import gated
from tests.unit.policy.policy_builders import nodes
from tests.unit.policy.policy_builders import request
from tests.unit.policy.policy_builders import rules
from tests.unit.policy.policy_builders import running
from tests.unit.policy.policy_builders import snapshot
from tests.unit.policy.policy_builders import started
from tests.unit.policy.policy_builders import stopped_for
from tests.unit.policy.policy_builders import suspended
from tests.unit.policy.policy_builders import urgent
from tests.unit.policy.policy_builders import waiting
from tests.unit.policy.policy_builders import why_waiting
from tests.unit.policy.policy_builders import world

HALVES = rules(bio=50, physics=50)


def full(account: str = "bio", count: int = 4, first: int = 1, **fields: object) -> list[object]:
    return [running(first + i, account, on=f"n{i // 4}", priority=i, **fields) for i in range(count)]  # type: ignore[arg-type]


# -- regular jobs ---
def test_idle_cpus_are_lent_and_taken_back_from_the_least_priority() -> None:
    assert started(decide(nodes(1), [waiting(1, "bio", 4)], HALVES)) == ["1"]
    suggested = decide(nodes(1), [*full(), waiting(9, "physics", 2)], HALVES)
    assert stopped_for(suggested) == {"9": {"1", "2"}}
    assert suggested.reclaims[0].numbers == {"cpus": 2, "idle": 0, "entitled": 2, "used": 0}


def test_nobody_is_stopped_if_not_enough_can_be() -> None:
    suggested = decide(nodes(1), [*full(), waiting(9, "physics", 3)], HALVES)  # beyond its own half
    assert not suggested.reclaims and why_waiting(suggested) == {"9": "BEYOND_ENTITLEMENT"}
    fixed = [replace(job, comment="") for job in full()]
    suggested = decide(nodes(1), [*fixed, waiting(9, "physics", 2)], HALVES)
    assert not suggested.reclaims and why_waiting(suggested) == {"9": "NOT_ENOUGH_TO_STOP"}


def test_an_account_gives_only_while_it_is_above() -> None:
    jobs = [*full(count=2), running(3, "stranger", priority=99), running(4, "stranger", priority=98)]
    assert stopped_for(decide(nodes(1), [*jobs, waiting(9, "physics", 2)], HALVES)) == {"9": {"3", "4"}}


def test_useless_jobs_of_a_giver_do_not_use_up_what_it_must_give() -> None:
    """The four of least priority lie one on each node; only those that lie together make room for four CPUs."""
    jobs = [running(node * 4 + i + 1, "bio", on=f"n{node}", priority=i) for node in range(4) for i in range(4)]
    pinned = waiting(99, "physics", asks=request(4, required_nodes=frozenset({"n3"})))
    assert stopped_for(decide(nodes(4), [*jobs, pinned], HALVES)) == {"99": {"13", "14", "15", "16"}}
    by = rules(bio=75, physics=25)
    assert len(stopped_for(decide(nodes(4), [*jobs, waiting(99, "physics", 4)], by))["99"]) == 4


def test_a_reclaim_over_several_nodes() -> None:
    jobs = [running(1, "bio", asks=request(8, nodes=2), on=("n0", "n1"))]
    assert stopped_for(decide(nodes(2), [*jobs, waiting(9, "physics", asks=request(4, nodes=2))], HALVES)) == {
        "9": {"1"}
    }


def test_what_is_being_freed_is_promised_once() -> None:
    leaving = replace(running(1, "bio", 2), state=JobState.COMPLETING)
    jobs = [leaving, running(2, "bio", 2), waiting(8, "physics", 2), waiting(9, "physics", 2)]
    suggested = decide(nodes(1), jobs, rules(physics=100))
    assert why_waiting(suggested)["8"] == "BEING_FREED"
    assert [promise.ref for promise in suggested.promises] == ["8"]
    assert stopped_for(suggested) == {"9": {"2"}}


def test_leftovers_of_a_reclaim_serve_the_next_one() -> None:
    jobs = [running(1, "bio", 4), waiting(8, "physics", 1), waiting(9, "physics", 1)]
    suggested = decide(nodes(1), jobs, HALVES)
    assert stopped_for(suggested) == {"8": {"1"}} and why_waiting(suggested)["9"] == "BEING_FREED"
    assert not judge(suggested, snapshot(nodes(1), jobs), Ledger(), HALVES, NOW, FRESH).refused


def test_exclusive_jobs_count_for_whole_nodes() -> None:
    alone = waiting(9, "physics", asks=request(1, exclusive=True))
    assert why_waiting(decide(nodes(1), [*full(), alone], HALVES)) == {"9": "BEYOND_ENTITLEMENT"}
    assert len(stopped_for(decide(nodes(2), [*full(count=8), alone], HALVES))["9"]) == 4


def test_quantum_stops_per_hour_and_spared_jobs_protect() -> None:
    jobs = [*full(start=NOW - 10), waiting(9, "physics", 1)]
    assert why_waiting(decide(nodes(1), jobs, replace(HALVES, quantum=11.0))) == {"9": "NOT_ENOUGH_TO_STOP"}
    assert stopped_for(decide(nodes(1), jobs, replace(HALVES, quantum=10.0)))
    resumed = Ledger(running_since={"1": NOW - 1})
    assert stopped_for(decide(nodes(1), jobs, replace(HALVES, quantum=10.0), resumed)) == {"9": {"2"}}
    often = Ledger(stop_times={"1": (NOW - 3599, NOW - 5), "2": (NOW - 3601, NOW - 3)}, spared={"2": NOW + 1})
    assert stopped_for(decide(nodes(1), jobs, replace(HALVES, max_stops_per_hour=2), often)) == {"9": {"3"}}
    assert stopped_for(decide(nodes(1), jobs, HALVES, Ledger(spared={"1": NOW}))) == {"9": {"1"}}


@pytest.mark.parametrize(
    ("asked", "granted", "protects"),
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
def test_a_job_may_ask_to_run_longer_undisturbed_as_far_as_the_site_grants(
    asked: str, granted: float, protects: bool
) -> None:
    asks = [replace(job, comment=f"{job.comment} {asked}") for job in full(start=NOW - 10)]
    jobs = [*asks, waiting(9, "physics", 1)]
    terms = replace(HALVES, quantum=8.0, min_runtime_max=granted)
    free_to_stop = decide(nodes(1), jobs, replace(terms, min_runtime_max=0.0))
    verdict = judge(free_to_stop, snapshot(nodes(1), jobs), Ledger(), terms, NOW, FRESH)
    assert bool(stopped_for(decide(nodes(1), jobs, terms))) is not protects
    assert [refused.reason for refused in verdict.refused] == ([Refusal.IN_QUANTUM] if protects else [])


def test_a_longer_time_undisturbed_does_not_protect_from_urgent_jobs() -> None:
    asks = [replace(job, comment=f"{job.comment} omfs:min_runtime=1000") for job in full(start=NOW - 10)]
    terms = replace(HALVES, min_runtime_max=1000.0)
    assert stopped_for(decide(nodes(1), [*asks, urgent(9, cpus=1)], terms))


def test_a_longer_time_undisturbed_begins_anew_with_a_resume() -> None:
    asks = [replace(job, comment=f"{job.comment} omfs:min_runtime=50") for job in full(start=NOW - 100)]
    terms = replace(HALVES, quantum=10.0, min_runtime_max=50.0)
    resumed = Ledger(running_since={job.ref: NOW - 20 for job in asks[:3]})
    assert stopped_for(decide(nodes(1), [*asks, waiting(9, "physics", 1)], terms, resumed)) == {"9": {asks[3].ref}}


def test_backoff_is_for_one_job_only() -> None:
    jobs = [*full(), waiting(8, "physics", 2), waiting(9, "physics", 2)]
    suggested = decide(nodes(1), jobs, HALVES, Ledger(backoff={"8": NOW + 1}))
    assert why_waiting(suggested)["8"] == "TRIED_IN_VAIN" and "9" in stopped_for(suggested)


def test_enough_stops_at_once() -> None:
    jobs = [*full(), waiting(8, "physics", 1), waiting(9, "physics", 1)]
    suggested = decide(nodes(1), jobs, replace(HALVES, max_stops_per_cycle=1))
    assert list(stopped_for(suggested)) == ["8"] and why_waiting(suggested) == {"9": "ENOUGH_STOPS"}
    large = decide(nodes(1), [*full(), waiting(8, "physics", 2)], replace(HALVES, max_stops_per_cycle=1))
    assert len(stopped_for(large)["8"]) == 2  # the first one of a plan may be larger, or it would never come


def test_stops_under_way_count_once() -> None:
    """Victims no longer use, the beneficiary does already, and neither is planned for again."""
    jobs = [*full(), array(8, 3, "physics")]
    ledger = Ledger(commitments=(commitment("8_0", "physics", [("n0", 1)], "1"),))
    suggested = decide(nodes(1), jobs, HALVES, ledger)
    assert stopped_for(suggested) == {"8_1": {"2"}}
    assert [row.used for row in suggested.accounts] == [4, 0, 0]


def test_a_committed_fixed_job_counts_as_never_stopped() -> None:
    jobs = [*full(), gated(8, "physics", 2), gated(9, "physics", 1)]
    ledger = Ledger(commitments=(commitment("8", "physics", [("n0", 2)], "1", "2"),))
    assert why_waiting(decide(nodes(1), jobs, HALVES, ledger)) == {"9": "NON_PREEMPTIBLE_BEYOND"}


def test_a_job_that_slurm_would_not_requeue_is_stopped_only_if_it_keeps_its_work() -> None:
    owner = waiting(9, "physics", 2)
    lost = [replace(job, requeue=False) for job in full()]
    suggested = decide(nodes(1), [*lost, owner], HALVES)
    assert not suggested.reclaims and why_waiting(suggested) == {"9": "NOT_ENOUGH_TO_STOP"}
    assert not suggested.holds  # its class stays what it is: it may borrow
    for comment in ("omfs:method=suspend", "omfs:method=requeue,suspend"):
        kept = [replace(job, comment=comment) for job in lost]
        (reclaim,) = decide(nodes(1), [*kept, owner], HALVES).reclaims
        assert {victim.method for victim in reclaim.victims} == {"suspend"}


def test_the_gate_refuses_to_requeue_what_slurm_would_not() -> None:
    jobs = [*full(), waiting(9, "physics", 2)]
    suggested = decide(nodes(1), jobs, HALVES)
    lost = [replace(job, requeue=False) for job in jobs]
    verdict = judge(suggested, snapshot(nodes(1), lost), Ledger(), HALVES, NOW, FRESH)
    assert not verdict.reclaims and [one.reason for one in verdict.refused] == [Refusal.NEVER_STOPPED]
    assert set(REFUSAL_TEXT) == set(Refusal)


# -- jobs that are never stopped ---
def test_fixed_jobs_are_held_and_let_go() -> None:
    late = [waiting(1, "bio", 2, fixed=True), waiting(2, "bio", 1, fixed=True)]
    suggested = decide(nodes(1), late, HALVES)
    assert [hold.ref for hold in suggested.holds] == ["2"] and started(suggested) == ["1"]
    suggested = decide(nodes(1), [gated(1, "bio", 2), gated(2, "bio", 1)], HALVES)
    assert [release.ref for release in suggested.releases] == ["1"]
    assert why_waiting(suggested) == {"2": "NON_PREEMPTIBLE_BEYOND"}


def test_a_hold_that_the_owner_could_release_is_made_firm() -> None:
    jobs = [running(1, "bio", 2, comment=""), gated(2, "bio", 1, hold=Hold.USER)]
    assert [hold.ref for hold in decide(nodes(1), jobs, HALVES).holds] == ["2"]
    foreign = waiting(3, "bio", hold=Hold.USER)
    assert not decide(nodes(1), [foreign], HALVES).releases


def test_jobs_that_may_be_stopped_or_are_urgent_are_let_go_at_once() -> None:
    held = {"hold": Hold.ADMIN, "admin_comment": "omfs:gate"}
    suggested = decide(nodes(1), [*full(), waiting(8, **held), urgent(9, **held)], HALVES)
    assert {release.ref for release in suggested.releases} == {"8", "9"}


def test_arrays_are_held_by_task_in_one_order() -> None:
    suggested = decide(nodes(1), [array(7, 4, "bio", fixed=True)], HALVES)
    assert [hold.ref for hold in suggested.holds] == ["7_[2,3]"]
    assert started(suggested) == ["7_0", "7_1"]


# -- urgent jobs ---
def test_urgent_fits_preempts_or_waits() -> None:
    assert started(decide(nodes(1), [urgent(1), waiting(2, "bio", 4)], HALVES))[0] == "1"
    young = [running(i, "bio", time_limit=100.0 * i, start=NOW) for i in range(1, 5)]
    suggested = decide(nodes(1), [*young, urgent(9, cpus=2)], replace(HALVES, quantum=1e6))
    assert stopped_for(suggested) == {"9": {"4", "3"}}
    others = [running(1, "bio", 4, qos="urgent")]
    assert why_waiting(decide(nodes(1), [*others, urgent(9)], HALVES)) == {"9": "NOT_ENOUGH_TO_STOP"}


def test_an_exclusive_urgent_job_takes_a_whole_node_of_an_uneven_machine() -> None:
    machine = [*nodes(1, 6), replace(nodes(1)[0], name="odd", cpus=1)]
    jobs = [running(1, "bio", on="n0"), running(2, "bio", on="odd", comment="")]
    suggested = decide(machine, [*jobs, urgent(9, asks=request(2, exclusive=True))], HALVES)
    assert stopped_for(suggested) == {"9": {"1"}}


def test_urgent_spares_owners_if_it_can_or_must() -> None:
    jobs = [*full("bio", 2), *full("stranger", 2, first=3), urgent(9, cpus=1)]
    assert stopped_for(decide(nodes(1), jobs, HALVES))["9"] <= {"3", "4"}
    jobs[-1] = urgent(9, cpus=3)
    assert len(stopped_for(decide(nodes(1), jobs, HALVES))["9"]) == 3
    strict = replace(HALVES, urgent_may_take_entitled=False)
    assert why_waiting(decide(nodes(1), jobs, strict)) == {"9": "NOT_ENOUGH_TO_STOP"}


# -- suspended jobs ---
def test_suspended_jobs_resume_where_they_were_when_cpus_are_free() -> None:
    asleep, ledger = suspended(1, "bio", 2), Ledger(stopped={"1": Stopped(NOW, "suspend", "9")})
    suggested = decide(nodes(2), [asleep], HALVES, ledger)
    assert [resume.ref for resume in suggested.resumes] == ["1"]
    assert not decide(nodes(2), [asleep], HALVES).resumes  # not suspended by us
    busy = [asleep, running(2, "bio", 3)]
    assert why_waiting(decide(nodes(2), busy, rules(physics=50), ledger)) == {"1": "BEYOND_ENTITLEMENT"}
    leaving = Ledger(stopped=ledger.stopped, commitments=(commitment("9", "physics", [("n1", 1)], "2"),))
    assert not decide(nodes(2), busy, HALVES, leaving).resumes  # the victim still is on those CPUs


def test_a_suspended_job_may_reclaim_its_cpus() -> None:
    ledger = Ledger(stopped={"1": Stopped(NOW, "suspend", "9")})
    jobs = [suspended(1, "bio", 2, asks=request(2, memory_per_node=10)), *full("stranger", 4, first=2)]
    suggested = decide(nodes(1), jobs, HALVES, ledger)
    assert suggested.reclaims[0].suspended and len(suggested.reclaims[0].victims) == 2


def test_a_suspended_victim_keeps_its_memory() -> None:
    victim = running(1, "bio", asks=request(4, memory_per_node=10), comment="omfs:method=suspend")
    wants = waiting(9, "physics", asks=request(2, memory_per_node=8))
    assert why_waiting(decide(nodes(1), [victim, wants], HALVES)) == {"9": "NOT_ENOUGH_TO_STOP"}
    either = replace(victim, comment="omfs:method=suspend,requeue")
    assert decide(nodes(1), [either, wants], HALVES).reclaims[0].victims[0].method == "requeue"
    small = waiting(9, "physics", asks=request(2, memory_per_node=6))
    assert decide(nodes(1), [either, small], HALVES).reclaims[0].victims[0].method == "suspend"


# -- ranks ---
def test_ranks_only_when_somebody_waits() -> None:
    assert decide(nodes(1), [waiting(1, "bio")], HALVES).ranks == ()
    jobs = [*full("bio", 2), *full("physics", 2, first=3), waiting(8, "bio"), urgent(9)]
    strict = replace(HALVES, urgent_may_take_entitled=False)
    assert {rank.ref: rank.band for rank in decide(nodes(1), jobs, strict).ranks} == {"9": Band.URGENT}
    ranked = [*jobs[:-1], waiting(7, "bio", nice=-4 * BAND_STEP + 5)]
    assert [(rank.ref, rank.nice) for rank in decide(nodes(1), ranked, HALVES).ranks] == [("7", 5)]


def test_ranks_are_as_many_as_could_start_soon() -> None:
    jobs = [*full(comment=""), *(waiting(10 + i, "physics") for i in range(5))]
    assert len(decide(nodes(1), jobs, HALVES).ranks) == 2  # as many as the account owns
    assert len(decide(nodes(1), jobs, replace(HALVES, rank_depth=1)).ranks) == 1


def test_stopped_jobs_come_first_in_their_band() -> None:
    ledger = Ledger(stopped={"9": Stopped(NOW, "requeue", "1")})
    jobs = [*full(comment=""), waiting(8, "physics", priority=5), waiting(9, "physics")]
    suggested = decide(nodes(1), jobs, HALVES, ledger)
    assert [(rank.ref, rank.band) for rank in suggested.ranks] == [("9", Band.STOPPED_ENTITLED), ("8", Band.ENTITLED)]


@pytest.mark.parametrize("method", ["requeue", "suspend"])
def test_an_evicted_job_cannot_evict_its_evictor(method: str) -> None:
    borrowers = [waiting(i, "bio", comment=f"omfs:method={method}") for i in range(1, 5)]
    site = world(nodes(1), borrowers, HALVES)
    site.rest()
    site.jobs[9] = waiting(9, "physics", 2)
    site.rest()
    assert len(site.evictions) == 2 and site.used("bio") == site.used("physics") == 2
    site.end("9")
    site.rest()
    assert site.used("bio") == 4
