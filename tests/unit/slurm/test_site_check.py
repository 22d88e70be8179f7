"""Checks of who can go round the rules of the site, and of what omfsd depends on."""

from __future__ import annotations

from fractions import Fraction

import pytest

from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.slurm.class_check import ClassNames
from omfs_daemon.slurm.gateway import AccountRow
from omfs_daemon.slurm.settings_check import Level
from omfs_daemon.slurm.site_check import (
    enforcement_finding,
    expansion_finding,
    login_finding,
    metrics_finding,
    munge_finding,
    parent_differences,
    private_data_finding,
    user_top_finding,
)

BY_QOS, BY_ACCOUNT = ClassNames("q", qos=["high"]), ClassNames("a", account=["weather"])
BIO = Entitlement("bio", Fraction(50))


@pytest.mark.parametrize(
    ("enforce", "job_class", "level"),
    [
        ("(null)", BY_QOS, Level.FAIL),
        ("none", BY_ACCOUNT, Level.FAIL),
        ("associations", BY_QOS, Level.FAIL),
        ("limits", BY_ACCOUNT, Level.OK),
        ("qos", BY_QOS, Level.OK),
        ("none", ClassNames("p", partition=["urgent"]), Level.WARN),
    ],
)
def test_classes_by_account_or_qos_need_enforcement(enforce: str, job_class: ClassNames, level: Level) -> None:
    found = enforcement_finding({"AccountingStorageEnforce": enforce}, [job_class], [BIO])
    assert found is not None and found.level is level
    assert level is Level.OK or "associations,limits,qos" in found.fix


def test_what_goes_by_partition_alone_needs_no_enforcement() -> None:
    assert enforcement_finding({}, [ClassNames("p", partition=["urgent"])], []) is None


def test_enable_user_top_is_found_among_other_parameters() -> None:
    found = user_top_finding({"SchedulerParameters": "bf_interval=1,enable_user_top"})
    assert found is not None and found.level is Level.WARN and "scontrol top" in found.what
    assert user_top_finding({"SchedulerParameters": "bf_interval=1"}) is None


def test_jobs_that_may_take_over_nodes_of_others_are_found() -> None:
    found = expansion_finding({"SchedulerParameters": "bf_interval=1, permit_job_expansion"})
    assert found is not None and found.level is Level.WARN and "take over the nodes" in found.what
    assert expansion_finding({"SchedulerParameters": "bf_interval=1"}) is None


def test_private_data_hides_jobs_from_a_daemon_without_rights() -> None:
    def level(uid: int, is_privileged: bool) -> Level | None:
        found = private_data_finding({"PrivateData": "jobs,usage"}, uid, is_privileged)
        return None if found is None else found.level

    assert level(1000, False) is Level.FAIL
    assert level(0, True) is Level.OK
    assert private_data_finding({"PrivateData": "none"}, 1000, False) is None


def test_metrics_beyond_this_host_and_a_bad_address_are_found() -> None:
    assert metrics_finding("127.0.0.1", 9345, {"127.0.0.1"}).level is Level.OK
    assert metrics_finding("localhost", 9345, {"127.0.0.1", "::1"}).level is Level.OK
    assert metrics_finding("head", 9345, {"10.0.0.1", "127.0.0.1"}).level is Level.WARN
    assert metrics_finding("fe80::1", 9345, {"fe80::1%eth0"}).level is Level.WARN
    assert metrics_finding("300.1.1.1", 9345, (), "Name or service not known").level is Level.FAIL


def test_a_login_address_that_cannot_work_is_found() -> None:
    good = login_finding("head:9346", {"10.0.0.1"}, False, "", "")
    assert (good.level, good.what) == (Level.OK, "head:9346, for users on login nodes: their own jobs")
    assert login_finding("head:9346", {"127.0.1.1"}, False, "", "").level is Level.WARN
    for is_metrics, failure, munge in [(True, "", ""), (False, "Name or service not known", ""), (False, "", "away")]:
        found = login_finding("head:9346", {"10.0.0.1"}, is_metrics, failure, munge)
        assert found.level is Level.FAIL and "daemon.login_address = 'head:9346'" in found.what


def test_munge_that_is_away_is_named() -> None:
    assert munge_finding("").level is Level.OK
    assert munge_finding("Failed to access socket").level is Level.FAIL


def test_parents_that_differ_from_those_of_slurmdbd_are_reported_with_both() -> None:
    lab, unnamed = AccountRow("lab", "group"), AccountRow("group", "bio")
    rows = [AccountRow("bio", ""), AccountRow("physics", ""), unnamed, lab]
    physics = Entitlement("physics", Fraction(50))
    assert parent_differences([BIO, physics, Entitlement("lab", Fraction(10), "bio")], rows) == []
    assert parent_differences([BIO, physics, Entitlement("lab", Fraction(10), "physics")], rows) == [
        "lab: its parent is 'physics' in the entitlements, 'bio' in slurmdbd"
    ]
    assert parent_differences([BIO, Entitlement("lab", Fraction(10))], rows) == [
        "lab: its parent is none in the entitlements, 'bio' in slurmdbd"
    ]
    assert parent_differences([Entitlement("new", Fraction(1), "")], rows) == [], "unknown ones are reported elsewhere"
