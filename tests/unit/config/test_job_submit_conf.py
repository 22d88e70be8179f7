"""The settings of job_submit.lua, made from the configuration."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.config.job_submit_conf import as_text, plugin_settings
from omfs_daemon.config.load import parse_config
from omfs_daemon.config.schema import Config
from omfs_daemon.errors import ConfigError

SITE = parse_config(
    """
[slurm]
poll_seconds = 6
[daemon]
run_dir = "/run/other"
[scope]
partitions = ["scratch", "main"]
accounts = ["weather"]
[policy]
min_runtime_max_seconds = 90.5
[[class]]
name = "alarms"
qos = ["urgent", "alarm"]
account = ["weather"]
urgent = true
[[class]]
name = "scratch"
partition = ["scratch"]
methods = ["requeue", "suspend"]
default = ["requeue"]
[[class]]
name = "beamline"
qos = ["beamline"]
realtime = true
slowdown_bound = 1.5
[[node_license]]
license = "ve_{node}"
kind = "devices"
anywhere = "ve"
""",
    "site",
)


def test_the_settings_follow_the_configuration() -> None:
    assert plugin_settings(SITE, [998, 0], 998, [8, 7]) == {
        "heartbeat": "/run/other/heartbeat",
        "wake": "/run/other/wake",
        "max_age": "17",
        "daemon_uid": "998",
        "privileged_uids": "0,998",
        "operator_uids": "7,8",
        "scope_partitions": "main,scratch",
        "scope_accounts": "weather",
        "methods": "requeue,suspend,dmtcp,criu,application,pageout,ve_swap",
        "min_runtime_max": "90",
        "node_licenses": "ve_{node}",
        "any_licenses": "ve",
        "class_1": "qos=urgent,alarm;account=weather;urgent=yes",
        "class_2": "partition=scratch;methods=requeue,suspend;default=requeue",
        "class_3": "qos=beamline;urgent=yes;bound=1.5",
    }
    text = as_text(plugin_settings(Config(), [0]))
    assert text.startswith("# Written by `omfs config job-submit`")
    assert "\nnode_licenses =\nany_licenses =\n" in text


@pytest.mark.parametrize("name", ["a b", "a,b", "a;urgent=yes", "a\\nclass_1 = x", "\\u00a0"])
def test_a_name_that_the_plug_in_would_misread_is_refused(name: str) -> None:
    config = parse_config(f'[[class]]\nname = "x"\naccount = ["{name}"]\n', "site")
    with pytest.raises(ConfigError, match=r"class\.account = .* of 'x': must be a name without blanks"):
        plugin_settings(config, [0])


def test_the_command_prints_the_file(tmp_path: Path) -> None:
    path = tmp_path / "omfs.toml"
    path.write_text('[[class]]\nname = "x"\nqos = ["q"]\n')

    def omfs(*words: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, ["-c", str(path), "config", "job-submit", *words])
        return result.exit_code, result.stdout, result.stderr

    nobody = pwd.getpwnam("nobody").pw_uid
    code, printed, _ = omfs("--privileged", "nobody", "--privileged", "7")
    uids = ",".join(str(uid) for uid in sorted({0, 7, nobody, os.geteuid()}))
    assert (code, f"\nprivileged_uids = {uids}\n" in printed, "\nclass_1 = qos=q;methods=" in printed) == (
        0,
        True,
        True,
    )
    path.write_text('[daemon]\nuser = "nobody"\n')
    assert f"\ndaemon_uid = {nobody}\nprivileged_uids = 0,{nobody}\n" in omfs()[1]
    code, printed, told = omfs("--privileged", "no such one")
    assert (code, printed) == (2, "")
    assert told == "omfs: --privileged no such one: must be a user of this host, or a uid\n"


def test_the_command_asks_slurm_who_is_an_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, programs = tmp_path / "omfs.toml", tmp_path / "bin"
    path.write_text("")
    programs.mkdir()
    for name, printed in (
        (
            "scontrol",
            "AccountingStorageType = accounting_storage/slurmdbd\nSlurmUser = slurm(77)\nSLURM_VERSION = 22.05.8",
        ),
        ("sacctmgr", "daemon|Operator\nnobody|Administrator\nroot|None\nno such one|Operator"),
    ):
        (programs / name).write_text(f"#!/bin/sh\ncat << END\n{printed}\nEND\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    printed = CliRunner().invoke(app, ["-c", str(path), "config", "job-submit"]).stdout
    operator, administrator = (pwd.getpwnam(name).pw_uid for name in ("daemon", "nobody"))
    uids = ",".join(str(uid) for uid in sorted({0, 77, administrator, os.geteuid()}))
    assert f"\ndaemon_uid = {os.geteuid()}\nprivileged_uids = {uids}\noperator_uids = {operator}\n" in printed
