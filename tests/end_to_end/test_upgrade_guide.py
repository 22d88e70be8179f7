"""docs/upgrade.md, carried out on a private real Slurm with preempted jobs: to a version with newer formats, and back.

That version is this one with a higher number of each file, in a package of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import omfs_daemon
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.daemon.store.file_format import AUDIT, ENTITLEMENTS, HISTORY, JOURNAL, STATE_FILES
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.daemons import OMFSD, ROOT
from tests.support.guide_host import Host, blocks, code_of, guide_host
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm

PLACE = "usr/lib/omfs/venv"
CONTROL = """\
Package: omfs-daemon
Version: 99
Architecture: all
Maintainer: none <none@localhost>
Description: the next version
"""
SCRIPT = """\
import os, sys
sys.path[:0] = [os.path.join(os.path.dirname(__file__), "../lib"), *{packages!r}]
from omfs_daemon.cli.omfsd import run
run()
"""
NOT_RUN = (
    "apt install ./omfs-daemon_*.deb",
    "systemctl stop omfsd.service\napt install --allow-downgrades ./omfs-daemon_*.deb",
    "systemctl start omfsd.service",
)
"""The blocks of the kind ``console``: this host has no systemd, and no package is installed. tests/containers has both:
test_packages.py upgrades and downgrades, test_systemd.py stops and starts."""


def texts(kind: str) -> list[str]:
    return [block.text for block in blocks("upgrade.md") if block.kind == kind]


@pytest.fixture
def host(own_slurm: Callable[..., LocalSlurm]) -> Iterator[Host]:
    with guide_host(own_slurm(Shape())) as made:
        yield made


def next_version(host: Host) -> Path:
    """Its package; also unpacked below ``next`` beside it."""
    root = host.directory / "next"
    package = root / PLACE / "lib" / "omfs_daemon"
    shutil.copytree(Path(omfs_daemon.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    table = package / "daemon/store/file_format.py"
    text, changed = re.subn(r"newest=(\d+)", lambda found: f"newest={int(found[1]) + 1}", table.read_text())
    assert changed == len(STATE_FILES)
    table.write_text(text)
    programs = root / PLACE / "bin"
    programs.mkdir()
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (programs / "python3").symlink_to(os.path.realpath(shutil.which(host.daemon.program.python) or "python3"))
    (programs / "omfsd").write_text(SCRIPT.format(packages=[path for path in sys.path if "-packages" in path]))
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(CONTROL)
    made = host.directory / "omfs-daemon_99_all.deb"
    build = ["dpkg-deb", "-Zgzip", "-z1", "-b", str(root), str(made)]
    subprocess.run(build, check=True, capture_output=True, timeout=LIMIT)
    return made


def state_files(host: Host) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (host.directory / "state").iterdir() if path.is_file()}


def test_blocks_that_are_not_run_are_known() -> None:
    assert texts("console") == list(NOT_RUN)
    assert {block.kind for block in blocks("upgrade.md")} == {"sh", "console"}


def test_the_page_names_each_file() -> None:
    rows = re.findall(r"^\| `(\S+)` \|", (ROOT / "docs/upgrade.md").read_text(), re.M)
    assert rows == [file.name for file in STATE_FILES]


def test_the_guide(host: Host) -> None:
    """Jobs are preempted before, and go on through the upgrade and the way back."""
    daemon, state = host.daemon, host.directory / "state"
    deb = next_version(host)
    host.places |= {
        "/root/omfs-new": str(host.directory / "new"),
        "./omfs-daemon_*.deb": str(deb),
        "/root/entitlements.toml": str(host.directory / "entitlements.toml"),
    }
    ask, export, after, look, move, put_back = texts("sh")
    daemon.start()
    daemon.omfs("entitlements", "set", "bio", "40")
    daemon.omfs("exempt", "add", "user=daemon")
    full = [daemon.submit("bio", method="suspend") for _ in range(4)]
    daemon.wait_running(*full)
    owned = daemon.submit("physics", method="requeue")
    daemon.wait_running(owned)
    (suspended,) = wait_until(
        lambda: [number for number in full if daemon.job(number).state is JobState.SUSPENDED], "a job to be suspended"
    )

    before = state_files(host)
    said = host.run(ask).stdout
    for file in (JOURNAL, HISTORY):
        line = f"{state / file.name}: format {file.newest}: this version, which writes format {file.newest + 1},"
        assert f"{line} {file.conversion}\n" in said
    assert f"{state}: this version reads what is there" in said
    same = (ENTITLEMENTS.name, AUDIT.name)
    assert {name: state_files(host)[name] for name in same} == {name: before[name] for name in same}
    assert state_files(host).keys() == before.keys()
    host.run(export)

    daemon.stop()
    host.install(host.directory / "next" / PLACE / "lib")
    daemon.start(code_of(host.directory / "next" / PLACE / "lib", OMFSD))
    status, check, again = after.splitlines()
    host.run(status)
    assert host.run(check, check=False).returncode in (0, 1), "this cluster lacks settings of install.md"
    said = host.run(again).stdout
    assert f"{state / JOURNAL.name}: format {JOURNAL.newest + 1}, which this version writes\n" in said
    assert JOURNAL.number(state / JOURNAL.name) == JOURNAL.newest + 1
    assert HISTORY.number(state / HISTORY.name) == HISTORY.newest + 1
    assert daemon.runs(owned) and daemon.job(suspended).state is JobState.SUSPENDED
    daemon.omfs("entitlements", "set", "bio", "41")
    daemon.omfs("exempt", "add", "user=bin")
    daemon.stop()

    host.install(ROOT)
    newer = state_files(host)
    daemon.start(ready=False)
    wait_until(daemon.has_ended, "the older version to refuse them")
    assert daemon.log.read_text().count(f"{state / JOURNAL.name}: was written by a later version of omfs-daemon") == 1
    assert state_files(host) == newer
    named = host.run(look, check=False)
    assert named.returncode == 1 and named.stdout.count("was written by a later version") == len(STATE_FILES)
    left = [file.name for file in STATE_FILES if file not in (JOURNAL, ENTITLEMENTS)]
    host.run("".join(f"mv /var/lib/omfs/{name} /var/lib/omfs/{name}.newer\n" for name in left))
    assert host.run(move).stdout.endswith("this version reads what is there\n")
    daemon.start()
    assert "bio: 50 % -> 40 %" in host.run(put_back).stdout

    daemon.let_end(owned)
    wait_until(lambda: daemon.runs(suspended), lambda: f"job {suspended} to go on: {daemon.tail()}")
    daemon.let_end(*full)
    daemon.wait_rest()
    assert daemon.completed([*full, owned])
