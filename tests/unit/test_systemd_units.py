"""The units fit together, the configuration's defaults, and the oldest systemd that they are for."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from omfs_daemon.config.schema import DaemonSection
from omfs_daemon.daemon.root_process.own_user import ROOT_SOCKET

SYSTEMD = Path(__file__).parents[2] / "systemd"
UNITS = sorted(path.name for path in SYSTEMD.iterdir() if path.is_file())
NEWER_THAN_252 = ("RestartSteps", "RestartMaxDelaySec", "RestartMode", "ProtectHostname=private", "notify-reload")
ROOT_UNITS = ("omfs-root.service",)


def keys(path: Path) -> dict[str, list[str]]:
    """``Section.Key`` to its values."""
    found, section = defaultdict(list), ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals and section, f"{path.name}: {line}"
            found[f"{section}.{key}"].append(value)
    return dict(found)


def unit(name: str) -> dict[str, list[str]]:
    return keys(SYSTEMD / name)


def test_the_units_are_these() -> None:
    assert UNITS == [
        "omfs-failsafe.service",
        "omfs-failsafe.timer",
        "omfs-root.service",
        "omfs-root.socket",
        "omfsd.service",
    ]


@pytest.mark.parametrize("name", UNITS)
def test_an_old_systemd_knows_every_key(name: str) -> None:
    lines = [line for line in (SYSTEMD / name).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert [line for line in lines if any(word in line for word in NEWER_THAN_252)] == []


@pytest.mark.parametrize("name", ["omfsd.service", "omfs-failsafe.service"])
def test_directories_and_user_are_the_defaults(name: str) -> None:
    service, defaults = unit(name), DaemonSection()
    assert Path("/var/lib", *service["Service.StateDirectory"]) == defaults.state_dir
    assert Path("/run", *service["Service.RuntimeDirectory"]) == defaults.run_dir
    assert service["Service.RuntimeDirectoryPreserve"] == ["yes"], "else the heartbeat goes with the daemon"
    tmpfiles = (SYSTEMD / "tmpfiles.d/omfs.conf").read_text(encoding="utf-8").splitlines()
    entries = {line.split()[1]: line.split()[2:5] for line in tmpfiles if not line.startswith("#")}
    user = service["Service.User"]
    assert entries == {str(defaults.run_dir): ["0755", *user, *user], str(defaults.state_dir): ["0700", *user, *user]}
    assert (SYSTEMD / "sysusers.d/omfs.conf").read_text(encoding="utf-8").split()[:2] == ["u", *user]


@pytest.mark.parametrize("name", ["omfsd.service", "omfs-failsafe.service"])
def test_the_socket_of_the_root_process_is_for_the_daemon_alone(name: str) -> None:
    listening = unit("omfs-root.socket")
    (address,) = listening["Socket.ListenSequentialPacket"]
    assert unit(name)["Service.Environment"] == [f"{ROOT_SOCKET}={address}"]
    assert listening["Socket.SocketUser"] == unit(name)["Service.User"]
    assert listening["Socket.SocketMode"] == ["0600"]
    assert Path(address).parent == Path("/run"), "a directory of root's: omfsd could replace the file in its own"


def test_programs_are_where_the_package_puts_them() -> None:
    started = {name: unit(name)["Service.ExecStart"] for name in UNITS if name.endswith(".service")}
    assert started == {
        "omfs-failsafe.service": ["/usr/bin/omfs failsafe"],
        "omfs-root.service": ["/usr/bin/omfsd --root-process"],
        "omfsd.service": ["/usr/bin/omfsd"],
    }


def test_only_the_root_process_has_capabilities() -> None:
    bounds = {name: unit(name)["Service.CapabilityBoundingSet"] for name in started_as_service()}
    assert {name for name, bound in bounds.items() if bound != [""]} == set(ROOT_UNITS)


def test_watchdog_and_restarts() -> None:
    service = unit("omfsd.service")
    assert service["Service.Type"] == ["notify"] and service["Service.Restart"] == ["on-failure"]
    assert service["Service.RestartPreventExitStatus"] == ["2"], "the exit code of a wrong configuration"
    assert "Service.WatchdogSec" in service and "Service.LogsDirectory" in service
    newer = keys(SYSTEMD / "systemd-254/omfsd.service.d/254.conf")
    assert newer["Service.Type"] == ["notify-reload"] and "Service.RestartSteps" in newer


def started_as_service() -> list[str]:
    return [name for name in UNITS if name.endswith(".service")]
