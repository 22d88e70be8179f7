"""What the preemption methods and node licenses need of Slurm's settings."""

from __future__ import annotations

import pytest

from omfs_daemon.cli.check_preemption import preemption_findings
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.config.load import parse_config
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS
from omfs_daemon.slurm import preemption_check
from omfs_daemon.slurm.gateway import LicenseRow, SlurmSettings
from omfs_daemon.slurm.node_licenses import NodeLicense
from omfs_daemon.slurm.settings_check import Finding, Level
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway

VE, MEM = NodeLicense("ve_{node}", "devices", any="ve"), NodeLicense("mem_{node}", "memory")
NODES = [Node("n1", 4, 1), Node("n2", 4, 1), Node("n3", 4, 1)]
ROWS = [LicenseRow("ve_n1", 2, 0), LicenseRow("ve_n2", 2, 1), LicenseRow("ve", 9999, 0), LicenseRow("mem_n1", 8, 0)]


def row(name: str, total: int, used: int = 0) -> list[LicenseRow]:
    return [one for one in ROWS if one.name != name] + [LicenseRow(name, total, used)]


def test_methods_that_leave_memory_to_preempted_jobs_are_warned_of() -> None:
    suspend, requeue, pageout = (BUILT_IN_TRAITS[name] for name in ("suspend", "requeue", "pageout"))
    offered = {"any": [suspend, requeue], "out": [pageout], "again": [requeue], "none": []}
    counted = {"SelectTypeParameters": "CR_CORE_MEMORY"}
    (found,) = preemption_check.suspended_memory(counted, offered)
    assert (found.level, found.subject) == (Level.WARN, "methods of class any")
    assert "which suspend leaves" in found.what and "when_preemption_fails" in found.fix
    assert preemption_check.suspended_memory({"SelectTypeParameters": "CR_CORE"}, offered) == []


@pytest.mark.parametrize(
    ("hold", "plain", "level"),
    [
        ("101-109", "(null)", Level.OK),
        ("99,100-110,SPECIAL_EXIT", "100", Level.OK),
        ("101-108", "", Level.FAIL),
        ("101", "", Level.FAIL),
        ("(null)", "", Level.FAIL),
        ("nonsense,-", "", Level.FAIL),
        ("101-109", "100-101", Level.FAIL),
    ],
)
def test_exit_codes_that_hold(hold: str, plain: str, level: Level) -> None:
    values = {"RequeueExitHold": hold, "RequeueExit": plain, "JobFileAppend": "1"}
    (found,) = preemption_check.requeue_exit_hold(values, {"dmtcp"})
    assert found.level is level and "dmtcp" in found.what
    assert bool(found.fix) is (level is not Level.OK)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", []),
        ("[policy]\npreempt_timeout_seconds = 30", ["policy"]),
        ("[methods.requeue]\npreempt_timeout_seconds = 29", ["methods.requeue"]),
        ("[policy]\npreempt_timeout_seconds = 9\n[methods.requeue]\npreempt_timeout_seconds = 31", []),
        ("[methods.suspend]\npreempt_timeout_seconds = 9\n[methods.dmtcp]\npreempt_timeout_seconds = 9", []),
    ],
)
def test_victims_that_are_given_up_before_slurm_kills_them_fail(text: str, keys: list[str]) -> None:
    config = parse_config(text, "omfs.toml")
    settings = SlurmSettings("22.05.8", {"KillWait": "30 sec"})
    found = preemption_findings(config, FakeGateway(FakeSlurm(lambda: 0.0, NODES)), settings, NODES, {})
    failed = [one for one in found if one.level is Level.FAIL]
    assert [one.subject for one in failed] == [f"{key}.preempt_timeout_seconds" for key in keys]
    assert all("KillWait (30 s)" in one.what and one.fix for one in failed)


def test_output_that_would_be_emptied_is_warned_of() -> None:
    (found,) = preemption_check.job_output({"JobFileAppend": "0"}, ["requeue"])
    assert (found.level, found.subject) == (Level.WARN, "JobFileAppend")
    assert preemption_check.job_output({"JobFileAppend": "1"}, ["requeue"]) == []
    assert preemption_check.job_output({"JobFileAppend": "0"}, []) == [], "suspended jobs go on writing"


def test_where_nothing_is_launched_or_counted_nothing_is_reported() -> None:
    assert preemption_check.requeue_exit_hold({}, ()) == []
    assert preemption_check.node_license_findings((), NODES, ROWS) == []
    assert preemption_check.plug_in_findings((), "", "") == []
    assert preemption_check.grants({}, (), NODES, {"suspend": ()}) == []


def node_license(which: NodeLicense, rows: list[LicenseRow]) -> Finding:
    (found,) = preemption_check.node_license_findings([which], NODES, rows)
    return found


def test_node_licenses_that_slurm_has() -> None:
    assert node_license(VE, ROWS) == (Level.OK, "node license ve", "4 on 2 nodes, as ve_{node}; not on n3", "")


@pytest.mark.parametrize(
    ("which", "rows", "level", "word", "fix"),
    [
        (VE, [], Level.FAIL, "no license ve_{node}", "Licenses=ve_n1:N,ve_n2:N"),
        (VE, [LicenseRow("ve_n1", 2, 0)], Level.FAIL, "no license ve,", "Licenses=ve:9999"),
        (VE, row("ve", 20), Level.WARN, "20 of ve may run out", "Licenses=ve:9999"),
        (VE, row("ve_n1", 2, 3), Level.WARN, "more is held than there is: ve_n1", "squeue -L"),
    ],
)
def test_node_licenses_that_slurm_lacks(
    which: NodeLicense, rows: list[LicenseRow], level: Level, word: str, fix: str
) -> None:
    found = node_license(which, rows)
    assert found.level is level and word in found.what and fix in found.fix


@pytest.mark.parametrize(
    ("node_licenses", "any_licenses", "words"),
    [
        ("ve_{node}, mem_{node}", "ve", []),
        ("mem_{node}", "ve", ["give up ve_{node}", "node_licenses=ve_{node},mem_{node}"]),
        ("ve_{node},mem_{node}", "", ["jobs with ve start", "any_licenses=ve"]),
        ("", "", ["ve_{node}, mem_{node}", "jobs with ve"]),
    ],
)
def test_the_plug_in_guards_them(node_licenses: str, any_licenses: str, words: list[str]) -> None:
    (found,) = preemption_check.plug_in_findings([VE, MEM], node_licenses, any_licenses)
    assert found.level is (Level.FAIL if words else Level.OK)
    assert all(word in found.what + found.fix for word in words)


@pytest.mark.parametrize(
    ("select", "node_licenses", "level", "word"),
    [
        ("CR_CORE", [MEM], Level.OK, "other jobs get"),
        ("CR_CORE", [VE], Level.WARN, "no node license counts memory"),
        ("CR_CORE_MEMORY", [MEM], Level.WARN, "counts memory"),
    ],
)
def test_memory_that_slurm_grants(select: str, node_licenses: list[NodeLicense], level: Level, word: str) -> None:
    (found,) = preemption_check.grants({"SelectTypeParameters": select}, node_licenses, NODES, {"pageout": {"memory"}})
    assert found.level is level and word in found.what and "pageout" in found.what
    assert bool(found.fix) is (level is not Level.OK)


@pytest.mark.parametrize(
    ("gres", "node_licenses", "level", "word"),
    [
        ("gpu", [VE], Level.OK, "other jobs get"),
        ("ve", [VE], Level.WARN, "a Gres as well"),
        ("gpu", [MEM], Level.WARN, "no node license counts devices"),
    ],
)
def test_devices_that_slurm_grants(gres: str, node_licenses: list[NodeLicense], level: Level, word: str) -> None:
    nodes = [Node("n1", 4, 1, gres=((gres, 2),))]
    (found,) = preemption_check.grants({}, node_licenses, nodes, {"ve_swap": {"devices"}, "suspend": ()})
    assert found.level is level and word in found.what


def test_methods_that_were_never_tried_in_cgroups_are_named() -> None:
    values = {"ProctrackType": "proctrack/cgroup", "TaskPlugin": "task/affinity,task/cgroup", "CgroupPlugin": "(null)"}
    (found,) = preemption_check.cgroups(values, ["dmtcp", "criu"], ["pageout"])
    assert found.level is Level.WARN
    assert found.what == (
        "ProctrackType=proctrack/cgroup and TaskPlugin=task/affinity,task/cgroup: untested with criu, dmtcp, pageout"
    )
    (found,) = preemption_check.cgroups({**values, "CgroupPlugin": "cgroup/v1"}, ["criu"], ["pageout"])
    assert found.what.endswith("untested with pageout")
    assert preemption_check.cgroups({**values, "CgroupPlugin": "cgroup/v1"}, ["dmtcp", "criu"], []) == []
    assert preemption_check.cgroups({"ProctrackType": "proctrack/linuxproc"}, ["dmtcp"], ["pageout"]) == []
    assert preemption_check.cgroups(values, [], []) == []
