"""``scontrol ping`` as recorded from each release, and with a backup."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omfs_daemon.slurm.commands.parse_ping import active_controller, is_same_host

FIXTURES = Path(__file__).parents[2] / "fixtures" / "slurm"


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_what_each_release_prints(release: str) -> None:
    def hosts(part: str) -> set[str]:
        files = list((FIXTURES / release / part).glob("*-scontrol-ping.json"))
        assert files
        return {active_controller("\n".join(json.loads(file.read_text())["stdout"])) for file in files}

    assert hosts("orders") == {"head"}
    assert hosts("away") == {""}


@pytest.mark.parametrize(
    ("printed", "host"),
    [
        ("Slurmctld(primary) at ctl1 is UP\nSlurmctld(backup) at ctl2 is UP\n", "ctl1"),
        ("Slurmctld(primary) at ctl1 is DOWN\nSlurmctld(backup) at ctl2 is UP\n", "ctl2"),
        ("Slurmctld(primary) at ctl1 is DOWN\nSlurmctld(backup1) at ctl2 is DOWN\nSlurmctld(backup2) at c is UP", "c"),
        ("Slurmctld(primary) at ctl1 is DOWN\nSlurmctld(backup) at ctl2 is DOWN\n", ""),
        ("slurm_load_ctl_conf error: Unable to contact slurm controller\n", ""),
        ("", ""),
    ],
)
def test_the_first_that_is_up_is_active(printed: str, host: str) -> None:
    assert active_controller(printed) == host


@pytest.mark.parametrize(
    ("name", "other", "same"),
    [
        ("ctl1", "ctl1", True),
        ("ctl1", "CTL1.site.org", True),
        ("ctl1.site.org", "ctl1.site.org", True),
        ("ctl1.site.org", "ctl1.other.org", False),
        ("ctl1", "ctl2", False),
    ],
)
def test_hosts_are_compared_with_or_without_their_domains(name: str, other: str, same: bool) -> None:
    assert is_same_host(name, other) is same
