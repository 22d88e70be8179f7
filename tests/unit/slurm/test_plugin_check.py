"""Whether the settings of job_submit.lua are those of the configuration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omfs_daemon.config.job_submit_conf import plugin_settings
from omfs_daemon.config.schema import Config
from omfs_daemon.slurm.plugin_check import plugin_settings_findings
from omfs_daemon.slurm.settings_check import Finding, Level

PLUGIN = Path(__file__).parents[3] / "plugins/job_submit.lua"
DEFAULT = {
    "heartbeat": "/run/omfs/heartbeat",
    "wake": "/run/omfs/wake",
    "max_age": "10",
    "daemon_uid": "0",
    "privileged_uids": "0",
    "operator_uids": "",
    "node_licenses": "",
}
WANTED = DEFAULT | {
    "wake": "/run/other/wake",
    "node_licenses": "ve_{node}",
    "class_1": "qos=urgent;urgent=yes",
    "class_2": "partition=scratch;methods=requeue;default=requeue",
}


def findings(found: dict[str, str]) -> list[Finding]:
    return plugin_settings_findings(WANTED, DEFAULT, found)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"max_age": "60", "let_in_qos": "x"},
        {"daemon_uid": "8", "privileged_uids": "7", "operator_uids": "6"},
        {"node_licenses": "  ve_{node} "},
    ],
)
def test_the_same_settings(change: dict[str, str]) -> None:
    assert [finding.level for finding in findings(WANTED | change)] == [Level.OK]


def test_no_file_is_the_plug_ins_defaults() -> None:
    assert [finding.level for finding in plugin_settings_findings(DEFAULT, DEFAULT, {})] == [Level.OK]
    (found,) = findings({})
    assert found.what.startswith("class_1, class_2, node_licenses, wake: not as in the configuration")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"class_2": "partition=scratch;methods=suspend;default=suspend"}, "class_2"),
        ({"class_3": "account=old"}, "class_3"),
        ({"node_licenses": "", "wake": "/run/omfs/wake"}, "node_licenses, wake"),
    ],
)
def test_other_settings(change: dict[str, str], named: str) -> None:
    (found,) = findings(WANTED | change)
    assert found.level is Level.WARN
    assert found.what.startswith(f"{named}: not as in the configuration")
    assert "omfs config job-submit" in found.fix


def test_an_unknown_setting_is_named_with_those_that_are_allowed() -> None:
    compared, unknown = findings(WANTED | {"books": "ve_{node}", "class_x": ""})
    assert compared.level is Level.OK
    assert unknown == Finding(
        Level.WARN,
        "omfs_job_submit.conf",
        "books, class_x: unknown, and ignored by the plug-in",
        "remove it from omfs_job_submit.conf; allowed: daemon_uid, heartbeat, let_in_accounts, let_in_partitions, "
        "let_in_qos, max_age, node_licenses, operator_uids, privileged_uids, wake, class_1, class_2, ...",
    )


def test_every_setting_of_the_plug_in_is_known() -> None:
    (defaults,) = re.findall(r"(?s)\nlocal DEFAULTS = \{(.*?)\n\}", PLUGIN.read_text())
    found = dict(re.findall(r"(?m)^  (\w+) = \"(.*)\",$", defaults))
    default = plugin_settings(Config(), ())
    assert [finding.level for finding in plugin_settings_findings(default, default, found)] == [Level.OK]
    assert set(default) <= set(found)
