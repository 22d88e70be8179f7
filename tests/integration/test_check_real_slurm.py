"""`omfs check` on a real Slurm with slurmdbd: it finds what an administrator gets wrong, each with its fix."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.accounted_slurm import accounted_slurm
from tests.support.daemons import Daemon

pytestmark = pytest.mark.slurm

OPTIONS = {
    "PrivateData": "jobs",
    "SchedulerParameters": "batch_sched_delay=0,enable_user_top",
}
WRONG = """
[slurm]
conf = "{conf}"
[daemon]
run_dir = "{directory}/run"
state_dir = "{directory}/state"
operators_group = "no-such-group"
[metrics]
address = "::"
[entitlements.bio]
percent = 50
[entitlements.lab]
percent = 50
parent = "bio"
[entitlements.physics]
percent = 20
[entitlements.phsics]
percent = 10
[entitlements.chem]
percent = 10
[[class]]
name = "rest"
methods = ["requeue"]
[[class]]
name = "urgent"
partition = ["urgnt"]
qos = ["high", "normal"]
account = ["weather", "root"]
urgent = true
"""


@pytest.fixture(scope="module")
def site() -> Iterator[LocalSlurm]:
    with accounted_slurm(Shape(nodes=1, options=OPTIONS)) as slurm:
        slurm.command("sacctmgr", "--immediate", "add", "account", "lab", "parent=physics")
        yield slurm


def findings(site: LocalSlurm, directory: Path, text: str = WRONG) -> dict[str, list[tuple[str, str]]]:
    """Level and text by subject."""
    daemon = Daemon(site, directory)
    daemon.config.write_text(text.format(conf=site.conf, directory=directory))
    found: dict[str, list[tuple[str, str]]] = {}
    for row in json.loads(daemon.omfs("check", "--json", check=False).stdout)["findings"]:
        found.setdefault(row["subject"], []).append((row["level"], row["what"]))
        assert row["level"] == "ok" or row["fix"], f"no fix: {row}"
    return found


def test_everything_that_is_wrong_is_found_at_once(site: LocalSlurm, tmp_path: Path) -> None:
    found = findings(site, tmp_path)
    assert found["AccountingStorageEnforce"][0][0] == "fail"
    assert any("enable_user_top" in what for _, what in found["SchedulerParameters"])
    assert found["PrivateData"] == [("ok", "jobs: hides nothing from uid 0, omfsd's")]
    assert found["munge"] == [("ok", "munged answers")]
    assert found["slurmdbd"] == [("ok", "answers")]
    assert found["metrics"][0][0] == "warn"
    assert found["operators_group"][0][0] == "fail"
    assert found["JobFileAppend"][0][0] == "warn"
    accounts = [what for _, what in found["accounts"]]
    assert any("entitlements.phsics, chem" in what and "'physics'" in what for what in accounts), accounts
    assert "lab: its parent is 'bio' in the entitlements, 'physics' in slurmdbd" in accounts
    assert [what for _, what in found["classes"]] == [
        "class 'urgent': partition = urgnt: unknown to Slurm",
        "class 'urgent': qos = high: unknown to Slurm",
        "class 'urgent': account = weather: unknown to Slurm",
        "class 'urgent' has no jobs: 'rest', which is before it, matches every job",
    ]


def test_a_slurmdbd_that_is_away_is_named_and_ends_no_other_check(site: LocalSlurm, tmp_path: Path) -> None:
    site.kill_slurmdbd()
    try:
        found = findings(site, tmp_path)
    finally:
        site.start_slurmdbd()
    assert found["slurmdbd"][0][0] == "fail"
    assert "accounts" not in found, "nobody can say whether they exist"
    assert "class 'urgent': partition = urgnt: unknown to Slurm" in [what for _, what in found["classes"]]


def test_a_missing_slurm_conf_is_found_at_once(site: LocalSlurm, tmp_path: Path) -> None:
    found = findings(site, tmp_path, WRONG.replace("{conf}", "{directory}/none/slurm.conf"))
    assert "there is no such file" in found["connection"][0][1]


def test_of_a_wrong_slurm_conf_the_key_is_named(site: LocalSlurm, tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"{site.conf.read_text()}\nBogus=1\n")
    found = findings(site, tmp_path, WRONG.replace("{conf}", str(conf)))
    assert "unrecognized key: Bogus" in found["connection"][0][1]


def test_an_address_that_is_not_of_this_host_is_found(site: LocalSlurm, tmp_path: Path) -> None:
    for address in ("192.0.2.1", "300.1.1.1", "a..b"):
        found = findings(site, tmp_path, WRONG.replace("::", address))
        assert found["metrics"][0][0] == "fail", address


def test_a_munged_that_is_away_is_named(site: LocalSlurm, tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"AuthType=auth/munge\nAuthInfo=cred_expire=5,socket={tmp_path}/no-munge\n")
    found = findings(
        site, tmp_path, WRONG.replace("{conf}", str(conf)).replace("[slurm]", "[slurm]\ntimeout_seconds = 1")
    )
    assert found["munge"][0][0] == "fail" and "no-munge" in found["munge"][0][1]
