"""docs/install.md, carried out on a private real Slurm: all its commands but those that need systemd or a package."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.daemons import OMFS, ROOT, Daemon
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm

NOT_RUN = (
    "apt install ./omfs-daemon_*.deb",
    "sacctmgr add user omfs account=root adminlevel=Administrator",
    "systemctl enable --now omfsd.service",
    "systemctl reload omfsd.service\nsystemctl enable --now omfs-failsafe.timer",
    "systemctl disable --now omfsd.service omfs-failsafe.timer",
    "apt purge omfs-daemon",
)
"""The blocks of the kind ``console``: this host has no systemd, and no package is installed."""


class Block(NamedTuple):
    kind: str
    text: str


BLOCKS = [
    Block(kind, text.strip())
    for kind, text in re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "docs" / "install.md").read_text(), re.M | re.S)
]


def texts(kind: str) -> list[str]:
    return [block.text for block in BLOCKS if block.kind == kind]


class Host:
    """A head node whose directories lie elsewhere."""

    def __init__(self, slurm: LocalSlurm, directory: Path) -> None:
        self.daemon = Daemon(slurm, directory)
        self.daemon.config.unlink()
        commands = directory / "bin"
        commands.mkdir()
        python = shlex.join([self.daemon.program.python, "-c", OMFS])
        (commands / "omfs").write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        (commands / "omfs").chmod(0o755)
        self.directory = directory
        self.places = {
            "/etc/slurm": str(slurm.directory),
            "/etc/omfs": str(directory),
            "/var/lib/omfs": str(directory / "state"),
            "/run/omfs": str(directory / "run"),
            "/usr/share/omfs/plugins": str(ROOT / "plugins"),
        }
        variables = {"PATH": f"{commands}:/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": str(slurm.conf)}
        self.variables = variables | {"OMFS_CONFIG": str(self.daemon.config), **self.daemon.program.variables}

    def here(self, text: str) -> str:
        for path, place in self.places.items():
            text = text.replace(path, place)
        return text

    def add_to_slurm_conf(self, lines: str) -> None:
        """In place of what is there; AuthInfo names this cluster's munge, too."""
        conf = self.daemon.slurm.conf
        new = [line for line in lines.splitlines() if not line.startswith("AuthInfo=")]
        keys = {line.partition("=")[0].lower() for line in new}
        kept = [line for line in conf.read_text().splitlines() if line.partition("=")[0].lower() not in keys]
        conf.write_text("\n".join([*kept, *new, ""]))

    def run(self, text: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = ["/bin/sh", "-euxc", self.here(text)]
        done = subprocess.run(
            command, cwd=ROOT, env=self.variables, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert not check or done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done


@pytest.fixture
def host(own_slurm: Callable[..., LocalSlurm], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    slurm = own_slurm(Shape())
    directory = slurm.directory / "omfs"
    directory.mkdir()
    made = Host(slurm, directory)
    try:
        yield made
    finally:
        made.daemon.kill()


def test_blocks_that_are_not_run_are_known() -> None:
    assert texts("console") == list(NOT_RUN)
    assert {block.kind for block in BLOCKS} == {"sh", "console", "conf", "toml"}


def test_each_line_of_slurm_conf_has_its_reason() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    lines, _gate = texts("conf")
    for line in lines.splitlines():
        assert f"| `{line.partition('=')[0]}` |" in page


def test_the_guide(host: Host) -> None:
    """In the order of the page: it watches, then it acts, then it is gone, and no job is left held."""
    daemon, slurm = host.daemon, host.daemon.slurm
    (lines, gate_line), (toml,) = texts("conf"), texts("toml")
    host.add_to_slurm_conf(lines)
    slurm.kill_controller(signal.SIGTERM)
    slurm.start_controller()
    daemon.config.write_text(
        host.here(toml).replace('user = "slurm"', f'user = "{daemon.program.user}"\nfailsafe_grace_seconds = 0')
        + "\n[metrics]\nenabled = false\n[policy]\nquantum_seconds = 0\n"
    )
    check, gate, reconfigure, shadow, report, switch, after, wider, pause, ungate, failsafe = texts("sh")
    host.run(check)
    host.run(gate)
    host.add_to_slurm_conf(gate_line)
    host.run(reconfigure)

    daemon.start()
    host.run(shadow)
    full = [daemon.submit("bio", method="requeue") for _ in range(4)]
    daemon.wait_running(*full)
    owned = daemon.submit("physics", method="requeue")
    wait_until(lambda: daemon.ask("shadow")["accounts"], "the decision of a dry run")
    assert daemon.runs(*full)
    assert "physics" in host.run(report).stdout

    host.run(switch)
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_running(owned)
    large = daemon.submit("bio", "-n16", "-N4")
    assert daemon.job(large).admin_comment == "omfs:held:0", "by the gate"
    host.run(after)
    host.run(wider)
    host.run(pause)
    slurm.conf.write_text(slurm.conf.read_text().replace("JobSubmitPlugins=lua\n", ""))
    host.run(ungate)
    daemon.stop()
    wait_until(lambda: host.run(failsafe, check=False).returncode == 0, "everything to be given back")
    assert daemon.job(large).hold is Hold.NONE
    daemon.slurm.command("scancel", str(owned), str(large))
    wait_until(lambda: all(job.state is JobState.RUNNING for job in daemon.gateway.jobs()), "all other jobs to run")
