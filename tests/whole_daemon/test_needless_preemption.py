"""A slow preemption whose preemptor needs it no longer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.cluster.exemptions import Exemption, Exemptions, ExemptKind
from omfs_daemon.cluster.limits import SiteReservation
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from tests.support.fake_site import Site
from tests.support.preemption_cases import check_peace, lost, methods_site, preemptor, victim


def in_mid_preemption(directory: Path) -> tuple[Site, int, int, int]:
    """A victim that writes its checkpoint, one to which nothing was done yet, since it waits for that, and the urgent
    job that needs the CPUs of both."""
    site = methods_site(directory, hosts=1)
    slow = victim(site, "dmtcp", cpus=2, on="n1", run_time=200, launched=OmfsRunBehavior("dmtcp", seconds=20))
    quick = site.submit("bio", method="requeue", cpus=2, on="n1", run_time=200)
    site.run(3)
    urgent = preemptor(site, "", cpus=4)
    site.run(5)
    assert site.runs(slow, quick), "dmtcp is still at it, and the other one waits for it"
    return site, slow, quick, urgent


def test_nobody_more_is_preempted_for_a_preemptor_that_is_gone(tmp_path: Path) -> None:
    site, slow, quick, urgent = in_mid_preemption(tmp_path)
    site.slurm.cancel(urgent)
    site.run(40)
    assert len(site.slurm.history[quick].starts) == 1
    (preemption,) = site.history_database.preemptions(10, 0.0)
    assert preemption.outcome == "preemptor_gone"
    site.rest()
    assert lost(site, [slow, quick]) == 0
    check_peace(site)


def test_nobody_more_is_preempted_for_a_preemptor_that_runs_already(tmp_path: Path) -> None:
    """A third job on its node ends by itself, so it starts before the checkpoint of the first victim is written."""
    site = methods_site(tmp_path, hosts=1)
    third = site.submit("bio", method="", cpus=2, on="n1", run_time=12)
    slow = victim(site, "dmtcp", cpus=1, on="n1", run_time=200, launched=OmfsRunBehavior("dmtcp", seconds=30))
    quick = site.submit("bio", method="requeue", cpus=1, on="n1", run_time=200)
    site.run(3)
    assert site.runs(third, slow, quick)
    urgent = preemptor(site, "", cpus=2)
    site.run_until(lambda: site.runs(urgent), limit=20)
    assert site.runs(slow, quick)
    site.run(5)
    (preemption,) = site.history_database.preemptions(10, 0.0)
    assert preemption.outcome == "started"
    site.rest()
    assert len(site.slurm.history[quick].starts) == 1
    assert lost(site, [slow, quick]) == 0
    check_peace(site)


def test_an_order_without_effect_is_not_repeated_for_a_preemptor_that_is_gone(tmp_path: Path) -> None:
    site = Site(tmp_path, hosts=1)
    quick = site.submit("bio", method="requeue", run_time=60)
    site.run(2)
    urgent = site.submit("alarm", urgent=True, method="")
    site.gateway.faults.inject(Fault.IGNORE, ["requeue"], times=1)
    site.step()
    site.slurm.cancel(urgent)
    site.run(10)
    assert site.runs(quick)
    assert not site.held()
    site.rest()
    assert lost(site, [quick]) == 0


def test_nobody_more_is_preempted_for_a_preemptor_that_an_administrator_holds(tmp_path: Path) -> None:
    site, slow, quick, urgent = in_mid_preemption(tmp_path)
    site.slurm.admin_hold(urgent)
    site.run(40)
    assert len(site.slurm.history[quick].starts) == 1
    assert not site.job(urgent).request.required_nodes
    assert site.held() == [str(urgent)]
    (preemption,) = site.history_database.preemptions(10, 0.0)
    assert preemption.outcome == "preemptor_held"
    site.slurm.admin_release(urgent)
    site.run_until(lambda: site.runs(urgent), limit=60)
    site.rest()
    assert lost(site, [slow]) == 0


def test_a_victim_that_an_operator_exempts_meanwhile_is_left_to_run(tmp_path: Path) -> None:
    site, slow, quick, urgent = in_mid_preemption(tmp_path)
    exempted = Exemptions([Exemption(ExemptKind.JOB, str(quick))])
    site.settings = replace(site.settings, rules=replace(site.settings.rules, exemptions=exempted))
    site.run(40)
    assert site.runs(slow, quick) and not site.runs(urgent)
    assert [one.outcome for one in site.history_database.preemptions(10, 0.0)] == ["victim_exempted"]
    site.rest()
    assert len(site.slurm.history[quick].starts) == 1
    assert lost(site, [slow, quick]) == 0
    check_peace(site)


def changed_class(site: Site, name: str, **changes: Any) -> None:
    """A reload after which this class is another."""
    rules = site.settings.rules
    classes = tuple(replace(rule, **changes) if rule.name == name else rule for rule in rules.classes)
    site.settings = replace(site.settings, rules=replace(rules, classes=classes))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("regular", {"methods": ("dmtcp", "suspend")}),
        ("regular", {"methods": (), "default": ()}),
        ("urgent", {"urgent": False}),
    ],
    ids=["another method", "never preempted", "urgent no longer"],
)
def test_a_job_is_left_to_run_that_the_rules_after_a_reload_protect(
    tmp_path: Path, name: str, changes: dict[str, Any]
) -> None:
    site, _, quick, urgent = in_mid_preemption(tmp_path)
    changed_class(site, name, **changes)
    site.run(40)
    assert site.runs(quick) and not site.runs(urgent) and lost(site, [quick]) == 0
    assert [one.outcome for one in site.history_database.preemptions(10, 0.0)] == ["rules_changed"]
    assert not site.journal.state.backoff.until


@pytest.mark.parametrize("later", ["", "requeue"])
def test_the_last_resort_is_that_of_the_rules_in_force(tmp_path: Path, later: str) -> None:
    site = methods_site(tmp_path, last_resort="requeue", hosts=1, preempt_timeout=10)
    slow = victim(site, "dmtcp", on="n1", run_time=200, launched=OmfsRunBehavior("dmtcp", seconds=100))
    site.run(3)
    preemptor(site, "")
    site.run(5)
    assert site.runs(slow)
    changed_class(site, "regular", last_resort=later)
    site.run(30)
    assert (lost(site, [slow]) > 0) == bool(later)
    outcome = site.history_database.preemptions(10, 0.0)[0].outcome
    assert outcome == ("started" if later else "victim_not_preempted")


def test_another_word_of_its_owner_undoes_nothing(tmp_path: Path) -> None:
    """Else an owner could keep others waiting by changing it time and again."""
    site, _, quick, urgent = in_mid_preemption(tmp_path)
    site.slurm.set_comment(quick, "omfs:method=suspend")
    site.run_until(lambda: site.runs(urgent), limit=60)
    site.run(3)
    assert [one.outcome for one in site.history_database.preemptions(10, 0.0)] == ["started"]


@pytest.mark.parametrize("state", ["DOWN", "INACTIVE", "DRAIN"])
def test_nobody_is_preempted_in_a_partition_that_was_closed(tmp_path: Path, state: str) -> None:
    site, _, quick, urgent = in_mid_preemption(tmp_path)
    for partition in site.job(urgent).request.partitions:
        site.slurm.update_partition(partition, up=state == "DRAIN", state=state)
    site.run(40)
    is_open = state == "DRAIN"
    assert bool(site.slurm.history[urgent].starts) == is_open
    assert (len(site.slurm.history[quick].starts) > 1) == is_open
    (ended,) = site.history_database.preemptions(10, 0.0)
    assert ended.outcome == ("started" if is_open else "node_lost")
    assert not site.journal.state.backoff.until


def test_nobody_is_preempted_on_nodes_that_were_reserved(tmp_path: Path) -> None:
    site, _, quick, urgent = in_mid_preemption(tmp_path)
    reserved = SiteReservation("maintenance", site.now, site.now + 1e6, frozenset({"n1"}))
    site.slurm.set_limits(replace(site.slurm.site_limits(), reservations=(reserved,)))
    site.run(40)
    assert site.runs(quick) and not site.runs(urgent)
    assert [one.outcome for one in site.history_database.preemptions(10, 0.0)] == ["node_lost"]
    assert not site.journal.state.backoff.until


def test_the_last_resort_is_not_taken_for_a_change_of_the_rules(tmp_path: Path) -> None:
    """Of a class that names it for jobs that other methods do not preempt, and for nothing else."""
    site = methods_site(tmp_path, last_resort="requeue", hosts=1)
    changed_class(site, "regular", methods=("dmtcp",), default=())
    slow = victim(site, "dmtcp", cpus=2, on="n1", run_time=200, launched=OmfsRunBehavior("dmtcp", seconds=20))
    quick = site.submit("bio", method="dmtcp", cpus=2, on="n1", run_time=200)
    site.run(3)
    urgent = preemptor(site, "", cpus=4)
    site.run_until(lambda: site.runs(urgent), limit=60)
    site.run(3)
    assert [one.outcome for one in site.history_database.preemptions(10, 0.0)] == ["started"]
    site.rest()
    assert lost(site, [slow]) == 0 and len(site.slurm.history[quick].starts) == 2


def test_who_writes_a_checkpoint_ends_it_also_if_it_is_chosen_again(tmp_path: Path) -> None:
    """Another preemption finds that it is not ready for its method, and would take the last resort."""
    site = methods_site(tmp_path, last_resort="requeue", hosts=1)
    slow = victim(site, "dmtcp", cpus=2, on="n1", run_time=200, launched=OmfsRunBehavior("dmtcp", seconds=20))
    site.submit("bio", method="requeue", cpus=2, on="n1", run_time=200)
    site.run(30)
    urgent = preemptor(site, "", cpus=4)
    site.run(5)
    site.slurm.admin_hold(urgent)
    site.run(3)
    site.slurm.admin_release(urgent)
    site.run_until(lambda: site.runs(urgent), limit=200)
    site.rest()
    assert lost(site, [slow]) == 0
