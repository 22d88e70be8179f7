"""docs/high-availability.md, carried out on a private real Slurm by two omfsd on this host, and back to one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omfs_daemon.config.load import parse_config
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.daemons import Daemon
from tests.support.guide_host import Host, blocks, guide_host
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

PAGE = "high-availability.md"
NOT_RUN = ("systemctl restart omfsd.service", "systemctl stop omfsd.service")
"""The blocks of the kind ``console``: this host has no systemd. tests/containers/test_systemd.py stops and starts."""


def texts(kind: str) -> list[str]:
    return [block.text for block in blocks(PAGE) if block.kind == kind]


@pytest.fixture
def host(own_slurm: Callable[..., LocalSlurm]) -> Iterator[Host]:
    with guide_host(own_slurm(Shape())) as made:
        yield made


def test_blocks_that_are_not_run_are_known() -> None:
    assert texts("console") == list(NOT_RUN)
    assert {block.kind for block in blocks(PAGE)} == {"sh", "console", "toml", "ini"}


def test_the_configuration_and_the_drop_in_name_the_directory_that_is_made() -> None:
    (configuration,), (drop_in,) = texts("toml"), texts("ini")
    directory = tomllib.loads(configuration)["daemon"]["shared_directory"]
    assert str(parse_config(configuration, PAGE).daemon.shared_directory) == directory
    assert drop_in.count(directory) == 2 and directory in texts("sh")[0]


def pair_text(daemon: Daemon) -> str:
    found = daemon.ask("status", check=False).get("pair")
    return found["text"] if found else ""


def test_the_guide(host: Host) -> None:
    make, check, status, back = texts("sh")
    first, user = host.daemon, host.daemon.program.user or "root"
    shared = host.directory / "shared"
    host.places |= {"-o omfs -g omfs": f"-o {user}", "/srv/slurm/omfs": str(shared)}
    host.run(make)
    added = host.here(texts("toml")[0])
    first.config.write_text(first.config.read_text().replace("[daemon]", added))
    host.run(check)
    (host.directory / "other").mkdir()
    second = Daemon(host.daemon.slurm, host.directory / "other")
    second.config.write_text(second.config.read_text().replace("[daemon]", added))
    first.start(ready=False)
    wait_until(lambda: pair_text(first) == "active", lambda: first.tail())
    job = first.submit("bio", method="requeue")
    first.wait_running(job)
    first.omfs("entitlements", "set", "bio", "40")
    assert "(epoch 1); the other omfsd stands by" in host.run(status).stdout
    try:
        second.start(ready=False)
        wait_until(lambda: "is active" in pair_text(second), lambda: second.tail())
        assert first.stop() == 0
        wait_until(lambda: pair_text(second) == "active", lambda: second.tail())
    finally:
        second.stop()
    assert first.runs(job)
    host.run(back)
    first.config.write_text(first.config.read_text().replace(added, "[daemon]"))
    first.start()
    assert "pair" not in first.ask("status")
    assert "percent = 40" in first.omfs("entitlements", "export").stdout
    assert not (Path(first.directory) / "run" / "epoch").exists()
    first.let_end(job)
    first.wait_rest()
