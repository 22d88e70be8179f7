"""Which adapter is chosen, and what is said about it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from omfs_daemon.config.open_gateway import open_gateway
from omfs_daemon.config.schema import SlurmSection
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.errors import ConfigError, GatewayError
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.gateway import SlurmSettings
from omfs_daemon.slurm.releases import SlurmRelease
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.pyslurm_stand_in.server import HERE
from tests.support.waiting import LIMIT

STAND_IN = {"PYTHONPATH": str(HERE)}
ANOTHER = STAND_IN | {"OMFS_STAND_IN_VERSION": "25.11.2"}
BROKEN = STAND_IN | {"OMFS_STAND_IN_IMPORT": "ends"}
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def running_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Slurm that says it is 22.05.8."""
    monkeypatch.setattr(CommandGateway, "settings", lambda _: SlurmSettings("22.05.8", {}))


def chosen(gateway: Literal["auto", "commands", "pyslurm"], variables: dict[str, str]) -> tuple[str, str]:
    section = SlurmSection(gateway=gateway, timeout_seconds=LIMIT)
    with open_gateway(section, variables=variables) as (made, why):
        return made.name, why


@pytest.mark.parametrize("gateway", ["auto", "pyslurm"])
def test_pyslurm_that_fits_is_taken(gateway: Literal["auto", "pyslurm"]) -> None:
    assert chosen(gateway, STAND_IN) == ("pyslurm", "PySlurm 22.5.3 fits Slurm 22.05.8")


UNFIT = [
    (ANOTHER, "PySlurm 25.11.2 does not fit Slurm 22.05.8"),
    (BROKEN, "PySlurm's process ended (exit code 1): fatal: Could not establish a configuration source"),
    (STAND_IN | {"OMFS_STAND_IN_IMPORT": "fails"}, "PySlurm: cannot import pyslurm: libslurm.so.38: cannot open"),
    (STAND_IN | {"OMFS_STAND_IN_VERSION": "unknown"}, "PySlurm unknown does not fit Slurm 22.05.8"),
]


@pytest.mark.parametrize(("variables", "why"), UNFIT)
def test_by_itself_one_that_does_not_fit_is_left_for_commands(variables: dict[str, str], why: str) -> None:
    name, said = chosen("auto", variables)
    assert name == "commands" and said.startswith(why)


@pytest.mark.parametrize(("variables", "why"), UNFIT)
def test_asked_for_it_must_fit(variables: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError) as raised:
        chosen("pyslurm", variables)
    said = str(raised.value)
    assert said.startswith(f'slurm.gateway = "pyslurm" cannot be used: {why}') and "\n" not in said
    assert said.endswith('fix it, or set "auto" or "commands"')


def test_commands_are_taken_without_looking_for_pyslurm() -> None:
    assert chosen("commands", BROKEN) == ("commands", 'slurm.gateway = "commands"')


@pytest.mark.parametrize(("installed", "name"), [("slurm-wlm 22.05.8", "pyslurm"), ("slurm 24.11.5", "commands")])
def test_while_slurm_does_not_answer_the_release_of_its_commands_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, installed: str, name: str
) -> None:
    def away(_: CommandGateway) -> SlurmSettings:
        raise GatewayError("scontrol: no answer from Slurm within 10 s")

    monkeypatch.setattr(CommandGateway, "settings", away)
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{installed}'\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert chosen("auto", STAND_IN)[0] == name
    (tmp_path / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    assert chosen("auto", STAND_IN)[0] == "commands"


def test_its_process_lives_as_long_as_it_is_needed() -> None:
    section = SlurmSection(timeout_seconds=LIMIT)
    with open_gateway(section, variables=STAND_IN) as (made, _):
        pid = made._process.pid  # type: ignore[attr-defined]
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()
    with open_gateway(section, variables=ANOTHER) as (made, _):
        assert isinstance(made, CommandGateway)


@pytest.mark.parametrize("version", ["22.5.3", "22.05.8", "slurm-wlm 22.05.8"])
def test_releases_are_compared_as_numbers(version: str) -> None:
    assert SlurmRelease.of(version) == (22, 5)


@pytest.mark.parametrize("version", ["", "new"])
def test_what_is_no_version_fits_no_slurm(version: str) -> None:
    with pytest.raises(GatewayError, match="not a version"):
        SlurmRelease.of(version)


# -- how it is told --------------------------------------------------------------------------------
def test_the_metrics_name_it() -> None:
    metrics = Metrics("1.0")
    metrics.slurm.observe_gateway("commands")
    metrics.slurm.observe_gateway("pyslurm")
    lines = [line for line in metrics.text().splitlines() if line.startswith("omfs_gateway_info")]
    assert lines == ['omfs_gateway_info{gateway="pyslurm"} 1.0']


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("program", "arguments"),
    [("omfs_daemon.cli.omfsd", ("--once", "--dry-run")), ("omfs_daemon.cli.main", ("check", "--json"))],
)
def test_the_log_and_omfs_check_show_which_and_why(
    slurm: LocalSlurm, tmp_path: Path, program: str, arguments: tuple[str, ...]
) -> None:
    config = tmp_path / "omfs.toml"
    config.write_text(
        f'[slurm]\nconf = "{slurm.conf}"\n[metrics]\nenabled = false\n'
        f'[daemon]\nstate_dir = "{tmp_path / "state"}"\nrun_dir = "{tmp_path / "run"}"\n'
    )
    run_it = f"from {program} import run; run()"
    ended = subprocess.run(
        [sys.executable, "-c", run_it, "--config", str(config), *arguments],
        env=os.environ | STAND_IN | {"OMFS_STAND_IN_IMPORT": "fails"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    said = ended.stdout + ended.stderr
    assert "commands" in said and "cannot import pyslurm: libslurm.so.38: cannot open shared object file" in said
    assert "Traceback" not in said
