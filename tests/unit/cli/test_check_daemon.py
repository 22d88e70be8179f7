"""``omfs check``: whether omfsd has taken over what the file says."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import cast

import pytest

from omfs_daemon.cli.check_daemon import daemon_findings, entitlements_findings
from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.config.load import parse_config
from omfs_daemon.config.login_place import HostPort
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.api import login_client
from omfs_daemon.daemon.api.callers import Caller, Role, operators
from omfs_daemon.daemon.api.client import Client
from omfs_daemon.daemon.api.control_socket import ControlServer
from omfs_daemon.daemon.api.cycle_report import CycleReport
from omfs_daemon.daemon.api.entitlements_view import entitlements_view
from omfs_daemon.daemon.api.login_client import LoginClient
from omfs_daemon.daemon.api.munge import Munge, MungeError, MungeFault
from omfs_daemon.slurm.settings_check import Finding, Level
from tests.unit.cli.test_cli import STATUS, Site

ROOT = Caller(0, 0, "root", Role.OPERATOR)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path)
    view = lambda _: entitlements_view(made.store, CycleReport(0.0, ""))  # noqa: E731
    monkeypatch.setattr(made.handler, "entitlements", view)
    with ControlServer(tmp_path / "omfs.sock", made.handler, operators(None, None), peer=lambda _: made.peer):
        yield made


def entitlements_of(site: Site, percent: int) -> list[Finding]:
    text = f"{site.config.read_text()}[entitlements.bio]\npercent = {percent}\n"
    return entitlements_findings(parse_config(text, "omfs.toml"), Client(site.directory / "omfs.sock"))


def test_a_refused_reload_fails_the_check(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(site.directory / "omfs.sock")
    assert [finding.subject for finding in daemon_findings(client)] == ["omfsd"]
    refused = {**STATUS, "reload_refused": {"time": 999.0, "text": "omfs.toml: policy.x = 1"}}
    monkeypatch.setattr(site.handler, "status", lambda _: refused)
    _, finding = daemon_findings(client)
    assert (finding.level, finding.subject) == (Level.FAIL, "reload") and "policy.x = 1" in finding.what
    assert "policy.x = 1" in site.omfs("status").stdout


def test_an_omfsd_that_cannot_be_asked_is_not_called_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (dead,) = daemon_findings(Client(tmp_path / "omfs.sock"))
    assert (dead.what.partition(":")[0], dead.fix) == ("not running", "start omfsd")

    def no_credential(*_: object) -> None:
        raise MungeError(MungeFault.MUNGED, "no socket")

    monkeypatch.setattr(login_client, "sealed_request", no_credential)
    (unknown,) = daemon_findings(LoginClient(HostPort("head", 9346), 0, cast(Munge, None)))
    assert unknown.what == "cannot be asked from here: munged on this host makes no credential: no socket"
    assert "start omfsd" not in unknown.fix


def test_an_edited_file_is_found_before_it_is_loaded(site: Site) -> None:
    assert entitlements_of(site, 50) == []
    (finding,) = entitlements_of(site, 40)
    assert finding.level is Level.WARN and "bio: 50 % -> 40 %" in finding.what and finding.fix == "reload omfsd"
    assert entitlements_findings(Config(), Client(site.directory / "omfs.sock")) == [], "no file was read"


def test_a_file_whose_reload_will_be_refused_fails_the_check(site: Site) -> None:
    site.store.set([Entitlement("bio", Fraction(30))], (), ROOT)
    assert entitlements_of(site, 50) == [], "the file is as it was at the change"
    (finding,) = entitlements_of(site, 40)
    assert finding.level is Level.FAIL and "bio: 30 % -> 40 %" in finding.what
    assert entitlements_of(site, 30) == []
