"""Checks of Slurm's settings: what hurts is found, and each finding has a fix."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.slurm.gateway import SlurmSettings
from omfs_daemon.slurm.settings_check import Finding, Level, SiteFacts, findings
from omfs_daemon.slurm.submit_plugin import (
    PlugIn,
    daemon_uid,
    max_age,
    operator_uids,
    plug_in_settings,
    privileged_uids,
)

GOOD = {
    "AuthInfo": "cred_expire=5",
    "JobRequeue": "1",
    "JobSubmitPlugins": "lua",
    "KillWait": "5 sec",
    "PreemptType": "preempt/none",
    "PriorityFlags": "ACCRUE_ALWAYS,FAIR_TREE",
    "PriorityType": "priority/multifactor",
    "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,bf_interval=1",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CORE",
    "SlurmUser": "slurm(64030)",
}
FACTS = SiteFacts(
    uid=64030,
    admin_level="",
    operators=frozenset(),
    plugin=PlugIn.OURS,
    heartbeat=Path("/run/omfs/heartbeat"),
    heartbeat_age=1.0,
    watched=Path("/run/omfs/heartbeat"),
    max_age=10.0,
    daemon_uid="64030",
    privileged_uids=frozenset({"0", "64030"}),
    operator_uids=frozenset(),
    poll_seconds=1.0,
    running=True,
    entitlements=(Entitlement("bio", Fraction(50)),),
    cpus=16,
)


def found(
    version: str = "22.05.8", facts: SiteFacts = FACTS, without: tuple[str, ...] = (), **values: str
) -> dict[str, Finding]:
    settings = {name: value for name, value in {**GOOD, **values}.items() if name not in without}
    return {finding.subject: finding for finding in findings(SlurmSettings(version, settings), facts)}


def test_good_settings_need_no_fix() -> None:
    assert [finding for finding in found().values() if finding.level is not Level.OK or finding.fix] == []


def test_what_is_not_right_has_a_fix() -> None:
    bare = findings(SlurmSettings("20.11.2", {}), replace(FACTS, uid=5, entitlements=()))
    assert all(finding.fix for finding in bare if finding.level is not Level.OK and finding.subject != "KillWait")
    assert {finding.subject for finding in bare if finding.level is Level.FAIL} == {
        "version",
        "permissions",
        "PriorityType",
        "SelectType",
    }


@pytest.mark.parametrize(
    ("subject", "level", "values"),
    [
        ("PriorityType", Level.FAIL, {"PriorityType": "priority/basic"}),
        ("PriorityFlags", Level.WARN, {"PriorityFlags": ""}),
        ("PriorityFlags", Level.WARN, {"PriorityFlags": "NO_FAIR_TREE"}),
        ("AuthInfo cred_expire", Level.WARN, {"AuthInfo": "(null)"}),
        ("AuthInfo cred_expire", Level.WARN, {"AuthInfo": "socket=/x,cred_expire=1"}),
        ("AuthInfo cred_expire", Level.OK, {"AuthInfo": "socket=/x,cred_expire=6"}),
        ("JobRequeue", Level.WARN, {"JobRequeue": "0"}),
        ("KillWait", Level.WARN, {"KillWait": "30 sec"}),
        ("SchedulerParameters", Level.WARN, {"SchedulerParameters": "(null)"}),
        ("SchedulerParameters", Level.WARN, {"SchedulerParameters": "batch_sched_delay=0,sched_interval=1"}),
        ("JobSubmitPlugins", Level.WARN, {"JobSubmitPlugins": "(null)"}),
        ("PreemptType", Level.WARN, {"PreemptType": "preempt/partition_prio"}),
        ("SelectType", Level.FAIL, {"SelectType": "select/linear"}),
    ],
)
def test_settings(subject: str, level: Level, values: dict[str, str]) -> None:
    assert found(**values)[subject].level is level


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("22.05.8", Level.OK),
        ("24.11.5", Level.OK),
        ("26.05.5", Level.OK),
        ("25.11.2", Level.WARN),
        ("21.08.8-2", Level.FAIL),
        ("unknown", Level.WARN),
    ],
)
def test_versions(version: str, level: Level) -> None:
    assert found(version)["version"].level is level


def test_the_delay_of_a_requeued_job_is_reported() -> None:
    assert "after 121 s" in found(without=("AuthInfo",))["AuthInfo cred_expire"].what
    ignored = found(AuthInfo="cred_expire=1")["AuthInfo cred_expire"].what
    assert "after 121 s" in ignored and "cred_expire=1 is ignored" in ignored
    assert "after 6 s" in found()["AuthInfo cred_expire"].what


def test_only_the_slow_parameters_are_named() -> None:
    finding = found(SchedulerParameters="batch_sched_delay=0,bf_interval=1")["SchedulerParameters"]
    assert finding.fix == "SchedulerParameters=sched_interval=1 (besides what is there)"


@pytest.mark.parametrize(
    ("uid", "admin_level", "level"),
    [
        (0, "", Level.WARN),
        (64030, "", Level.OK),
        (7, "Administrator", Level.OK),
        (7, "Operator", Level.FAIL),
        (7, "None", Level.FAIL),
    ],
)
def test_permissions(uid: int, admin_level: str, level: Level) -> None:
    assert found(facts=replace(FACTS, uid=uid, admin_level=admin_level))["permissions"].level is level


@pytest.mark.parametrize(
    ("values", "fix"),
    [
        ({"SlurmUser": "slurm(64030)"}, 'daemon.user = "slurm", or daemon.user = "omfs", a user with AdminLevel='),
        ({"SlurmUser": "root(0)"}, 'SlurmUser=slurm in slurm.conf, and daemon.user = "slurm"'),
        (
            {"SlurmUser": "root(0)", "AccountingStorageType": "accounting_storage/slurmdbd"},
            'daemon.user = "omfs", a user with AdminLevel=Administrator',
        ),
    ],
)
def test_a_daemon_that_is_root(values: dict[str, str], fix: str) -> None:
    finding = found(facts=replace(FACTS, uid=0), **values)["permissions"]
    assert finding.fix.startswith(fix) and "root's holds and releases" in finding.what


@pytest.mark.parametrize(
    ("plugin", "level"),
    [
        (PlugIn.OURS, Level.OK),
        (PlugIn.ANOTHER, Level.WARN),
        (PlugIn.UNKNOWN, Level.WARN),
        (PlugIn.MISSING, Level.FAIL),
    ],
)
def test_plug_in(plugin: PlugIn, level: Level) -> None:
    assert found(facts=replace(FACTS, plugin=plugin))["JobSubmitPlugins"].level is level


def test_plug_in_that_reads_another_heartbeat() -> None:
    finding = found(facts=replace(FACTS, watched=Path("/elsewhere")))["JobSubmitPlugins"]
    assert finding.level is Level.WARN
    assert finding.fix == "heartbeat=/run/omfs/heartbeat in omfs_job_submit.conf beside slurm.conf"


@pytest.mark.parametrize("heartbeat_age", [None, 11.0])
def test_a_heartbeat_that_rests_while_the_daemon_runs(heartbeat_age: float | None) -> None:
    facts = replace(FACTS, heartbeat_age=heartbeat_age)
    finding = found(facts=facts)["JobSubmitPlugins"]
    assert finding.level is Level.WARN and "the gate holds nothing" in finding.what
    assert found(facts=replace(facts, running=False))["JobSubmitPlugins"].level is Level.OK
    assert found(facts=replace(facts, max_age=1e9, heartbeat_age=11.0))["JobSubmitPlugins"].level is Level.OK


def test_a_daemon_that_polls_too_seldom_for_the_plug_in() -> None:
    finding = found(facts=replace(FACTS, poll_seconds=10.0))["JobSubmitPlugins"]
    assert (finding.level, finding.fix.split()[0]) == (Level.WARN, "max_age=25")


def test_the_plug_in_must_take_the_daemons_orders() -> None:
    assert found()["daemon_uid"].level is Level.OK
    facts = replace(FACTS, daemon_uid="0", privileged_uids=frozenset({"0"}))
    finding = found(facts=facts)["daemon_uid"]
    assert finding.level is Level.FAIL and finding.fix.startswith("daemon_uid=64030 ")
    assert found(facts=replace(facts, privileged_uids=frozenset({"64030"})))["daemon_uid"].level is Level.WARN
    assert found(facts=replace(facts, daemon_uid="64030"))["daemon_uid"].level is Level.OK
    assert "daemon_uid" not in found(facts=replace(facts, plugin=PlugIn.MISSING))


def test_the_plug_in_must_know_the_operators() -> None:
    assert "operator_uids" not in found()
    facts = replace(FACTS, operators=frozenset({"70", "7"}), operator_uids=frozenset({"8"}))
    assert found(facts=facts)["operator_uids"].what.startswith("Operators (uid 7, 70) ")
    assert "operator_uids" not in found(facts=replace(facts, operator_uids=frozenset({"7", "70"})))


@pytest.mark.parametrize(
    ("text", "age", "uid", "privileged", "operators"),
    [
        ("", 10.0, "0", {"0"}, set()),
        ("# x\nmax_age = 30\n privileged_uids = 0, 64030 \n", 30.0, "0", {"0", "64030"}, set()),
        ("max_age=5\nmax_age=soon\nprivileged_uids=\n", 10.0, "0", set(), set()),
        ("daemon_uid = 64030\noperator_uids=7, 8\n", 10.0, "64030", {"0"}, {"7", "8"}),
    ],
)
def test_the_plug_ins_settings(
    tmp_path: Path, text: str, age: float, uid: str, privileged: set[str], operators: set[str]
) -> None:
    settings = SlurmSettings("22.05.8", {"SLURM_CONF": str(tmp_path / "slurm.conf")})
    (tmp_path / "omfs_job_submit.conf").write_text(text)
    plug_in = plug_in_settings(settings)
    assert (max_age(plug_in), daemon_uid(plug_in)) == (age, uid)
    assert (privileged_uids(plug_in), operator_uids(plug_in)) == (privileged, operators)


def test_entitlements_that_leave_nothing_for_others() -> None:
    entitlements = (
        Entitlement("a", Fraction(60)),
        Entitlement("b", Fraction(40)),
        Entitlement("c", Fraction(50), "a"),
    )
    assert found(facts=replace(FACTS, entitlements=entitlements))["entitlements"].level is Level.WARN
    many = (entitlements[1], Entitlement("cut", Fraction(0), cpus=99999))
    cut = found(facts=replace(FACTS, entitlements=many))["entitlements"]
    assert cut.level is Level.WARN and "cut 15" in cut.what and cut.fix
    assert found(facts=replace(FACTS, entitlements=many, cpus=0))["entitlements"].level is Level.OK, "all are down"
    assert "40 % is left" in found(facts=replace(FACTS, entitlements=entitlements[:1]))["entitlements"].what
