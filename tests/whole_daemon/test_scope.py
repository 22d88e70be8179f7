"""Jobs out of scope: nothing is done to them, and they are use of their nodes only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omfs_daemon.cluster.jobs import Hold, JobRequest, JobState
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.cluster.scope import OUT_OF_SCOPE, Scope
from omfs_daemon.daemon.failsafe import rescue
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.fake_site import Site, site_rules
from tests.whole_daemon.test_process import ALICE, ROOT, Stand
from tests.whole_daemon.test_set_aside import ordered

SCOPE = Scope(partitions=frozenset(["main", "urgent"]))
PARTITIONS = ("main", "urgent", "other")


def scoped_site(directory: Path, scope: Scope = SCOPE) -> Site:
    return Site(directory, rules=site_rules(scope=scope), partitions=PARTITIONS)


def outside(site: Site, account: str = "bio", method: str = "requeue", **more: object) -> int:
    """A job in a partition that is out of scope."""
    request = JobRequest(4, max_nodes=1, partitions=("other",))
    comment = f"omfs:method={method}" if method else ""
    options = {"user": account, "run_time": 1000.0, "comment": comment, **more}
    return site.slurm.submit(Submission(request, account=account, **options))  # type: ignore[arg-type]


def used(site: Site) -> dict[str, int]:
    plan = site.reports[-1].plan
    assert plan is not None
    return {row.account: row.used for row in plan.accounts}


def test_one_that_runs_is_no_victim_and_no_use_of_its_account(tmp_path: Path) -> None:
    site = scoped_site(tmp_path)
    refs = ordered(site)
    others = [outside(site) for _ in range(2)]
    inside = [site.submit("bio", run_time=1000) for _ in range(2)]
    site.run(2)
    assert used(site)["bio"] == 8, "the account's own jobs in scope only"
    physics = site.submit("physics", run_time=1000)
    site.run(30)
    assert site.runs(*others, *inside), "bio is within its entitlement; the others are not the daemon's"
    assert site.state(physics) is JobState.PENDING
    urgent = site.submit("physics", run_time=30, urgent=True)
    site.run_until(lambda: site.runs(urgent), 60)
    assert site.runs(*others)
    assert refs.isdisjoint({str(job) for job in others})


@pytest.mark.parametrize("method", ["requeue", ""])
def test_one_that_waits_is_neither_held_nor_ranked_and_nobody_is_preempted_for_it(tmp_path: Path, method: str) -> None:
    site = scoped_site(tmp_path)
    refs = ordered(site)
    inside = [site.submit("bio", run_time=1000) for _ in range(4)]
    site.run(2)
    one = [outside(site, "physics", method) for _ in range(5)]
    site.run(20)
    assert site.runs(*inside)
    assert all((site.job(job).hold, site.job(job).nice) == (Hold.NONE, 0) for job in one)
    assert refs.isdisjoint({str(job) for job in one})


def test_what_others_hold_out_of_scope_stays_held(tmp_path: Path) -> None:
    site = scoped_site(tmp_path)
    held = outside(site, hold=Hold.USER)
    refs = ordered(site)
    site.run(5)
    assert site.job(held).hold is Hold.USER
    assert str(held) not in refs


def test_a_job_that_waits_in_a_partition_in_scope_and_another_is_not_in_scope(tmp_path: Path) -> None:
    site = scoped_site(tmp_path)
    for _ in range(4):
        site.submit("bio", run_time=1000)
    site.run(1)
    both = site.slurm.submit(Submission(JobRequest(4, partitions=("main", "other")), account="bio"))
    site.run(1)
    snapshot = site.reports[-1].snapshot
    assert snapshot is not None
    assert snapshot.jobs[both].set_aside == OUT_OF_SCOPE


def test_entitlements_are_parts_of_the_nodes_in_scope(tmp_path: Path) -> None:
    site = scoped_site(tmp_path)
    some = frozenset(["n1", "n2"])
    site.slurm.partitions["main"] = Partition("main", some)
    site.slurm.partitions["urgent"] = Partition("urgent", some)
    site.run(1)
    plan = site.reports[-1].plan
    assert plan is not None
    assert {row.account: row.entitled for row in plan.accounts}["bio"] == 4, "half of two nodes of four CPUs"


NARROW = Scope(partitions=frozenset(["urgent"]))


def test_what_is_held_is_released_when_it_leaves_the_scope(tmp_path: Path) -> None:
    site = scoped_site(tmp_path)
    for _ in range(4):
        site.submit("bio", run_time=20)
    site.run(1)
    jobs = [site.submit("physics", method="", run_time=1000) for _ in range(4)]
    site.run(2)
    held = [job for job in jobs if site.job(job).hold is Hold.ADMIN]
    assert len(held) == 2
    site.settings = replace(site.settings, rules=site_rules(scope=NARROW))
    site.run_until(lambda: not site.held(), 10)


def test_ranks_are_taken_back_when_jobs_leave_the_scope(tmp_path: Path) -> None:
    site = scoped_site(tmp_path)
    for _ in range(4):
        site.submit("bio", run_time=1000)
    site.run(1)
    site.settings = replace(site.settings, rules=replace(site_rules(scope=SCOPE), max_preemptions_per_hour=0))
    jobs = [site.submit("physics", run_time=1000) for _ in range(2)]
    more = [site.submit("bio", run_time=1000) for _ in range(2)]
    site.settings = replace(site.settings, rules=replace(site.settings.rules, quantum=1e6))
    site.run(3)
    assert any(site.job(job).nice for job in (*jobs, *more))
    site.settings = replace(site.settings, rules=replace(site.settings.rules, scope=NARROW))
    site.run(5)
    assert [site.job(job).nice for job in (*jobs, *more)] == [0, 0, 0, 0]


@pytest.mark.parametrize("method", ["requeue", "suspend"])
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8])
def test_a_preemption_under_way_is_undone_when_its_jobs_leave_the_scope(
    tmp_path: Path, method: str, steps: int
) -> None:
    site = scoped_site(tmp_path)
    victims = [site.submit("bio", method=method, run_time=100) for _ in range(4)]
    site.run(2)
    preemptor = site.submit("physics", method=method, run_time=50)
    for _ in range(steps):
        site.step(0.1)
    site.settings = replace(site.settings, rules=site_rules(scope=NARROW))
    refs = [str(job) for job in (*victims, preemptor)]
    site.run(30)
    assert not site.journal.state.preemptions
    assert not [ref for ref in site.held() if ref in refs]
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_no_job_out_of_scope_ever_gets_an_order(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever users submit, and in whichever order, in virtual time."""
    accounts = frozenset(data.draw(st.sets(st.sampled_from(["bio", "physics"]), max_size=1)))
    site = scoped_site(tmp_path_factory.mktemp("scope"), Scope(SCOPE.partitions, accounts))
    refs = ordered(site)
    strangers: list[int] = []
    for _ in range(data.draw(st.integers(3, 14))):
        account = data.draw(st.sampled_from(["bio", "physics", "other"]))
        method = data.draw(st.sampled_from(["requeue", "suspend", ""]))
        seconds = data.draw(st.sampled_from([5.0, 40.0, 1000.0]))
        if data.draw(st.booleans()):
            hold = data.draw(st.sampled_from([Hold.NONE, Hold.USER]))
            strangers.append(outside(site, account, method, run_time=seconds, hold=hold))
        else:
            urgent = data.draw(st.booleans())
            job = site.submit(account, method=method, run_time=seconds, urgent=urgent)
            strangers += [job] if accounts and account not in accounts else []
        site.run(data.draw(st.sampled_from([0.5, 2.0, 10.0])))
    site.run(20)
    assert all(report.error is None for report in site.reports)
    assert refs.isdisjoint({str(job) for job in strangers})
    snapshot = site.reports[-1].snapshot
    assert snapshot is not None
    assert {job.id for job in snapshot.jobs.values() if job.set_aside} <= set(strangers)


# -- the process ------------------------------------------------------------------------------------------------
@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def narrow(stand: Stand) -> None:
    stand.path.write_text(stand.path.read_text() + '[scope]\naccounts = ["bio"]\n')


def test_a_reload_gives_back_what_is_out_of_the_new_scope_and_status_and_why_say_so(stand: Stand) -> None:
    jobs = [stand.submit("bob", "physics", "", run_time=1000) for _ in range(4)]
    stand.run(2)
    narrow(stand)
    stand.service.answers.reload(ROOT)
    stand.run(5)
    assert all(job.state is JobState.RUNNING for job in stand.gateway.jobs())
    status = stand.service.answers.status(ALICE)
    assert (status["scope"], status["not_in_scope"], status["set_aside"]) == ("accounts bio", 4, 0)
    why = stand.service.answers.why(ROOT, str(jobs[0]))
    assert why["now"].startswith("not in scope: ")
    assert why["class"].startswith("not in scope")
    stand.service.close()


def test_the_failsafe_leaves_jobs_out_of_scope_alone(stand: Stand) -> None:
    """Also one that looks as if it had a rank of ours."""
    narrow(stand)
    stand.service.answers.reload(ROOT)
    for _ in range(4):
        stand.submit("alice", "bio", run_time=1000)
    stand.run(1)
    owned = [stand.submit("alice", "bio", "", run_time=1000) for _ in range(4)]
    one = stand.slurm.submit(Submission(JobRequest(4), account="physics", user="bob", hold=Hold.USER))
    stand.run(2)
    stand.gateway.set_nice([str(one)], -500_000_000)
    held = [job for job in owned if stand.gateway.find(job).hold is Hold.ADMIN]  # type: ignore[union-attr]
    assert held
    config = stand.service.config
    stand.service.close()
    stand.now += 100
    assert rescue(config, stand.gateway, lambda: stand.now) == 0
    kept = stand.gateway.find(one)
    assert kept is not None
    assert (kept.hold, kept.nice) == (Hold.USER, -500_000_000)
    assert all(stand.gateway.find(job).hold is Hold.NONE for job in held)  # type: ignore[union-attr]
