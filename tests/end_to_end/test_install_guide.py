"""docs/install.md, carried out on a private real Slurm: all its commands but those that need systemd or a package."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.daemons import ROOT
from tests.support.guide_host import Host, blocks, guide_host
from tests.support.waiting import wait_until

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


BLOCKS = blocks("install.md")


def texts(kind: str) -> list[str]:
    return [block.text for block in BLOCKS if block.kind == kind]


@pytest.fixture
def host(own_slurm: Callable[..., LocalSlurm]) -> Iterator[Host]:
    with guide_host(own_slurm(Shape())) as made:
        yield made


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
