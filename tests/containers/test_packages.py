"""The Debian packages: built, checked by lintian, installed, upgraded, removed, and purged in a container."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.manual.pages import command_names
from omfs_daemon import __version__
from omfs_daemon.daemon.store.file_format import AUDIT
from tests.support.amounts import is_soak
from tests.support.guide_host import blocks
from tests.support.package_host import ROOT, PackageHost, bare_debian, build_packages, engine, make_image

SUITES = ("bookworm", "trixie") if is_soak() else ("bookworm",)
STATE = "/var/lib/omfs/audit.jsonl"
CONFIGURATION = "/etc/omfs/omfs.toml"
ASK = blocks("upgrade.md")[0].text
"""How the new version is asked before it is installed."""

pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("packages"), pytest.mark.timeout(3600)]


@pytest.fixture(scope="module", params=SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def image(suite: str) -> str:
    return make_image(suite)


@pytest.fixture(scope="module")
def packages(suite: str, image: str) -> dict[str, Path]:
    return build_packages(image, ROOT, ROOT / "build/packages" / suite)


@pytest.fixture(scope="module")
def host(suite: str, packages: dict[str, Path]) -> Iterator[PackageHost]:
    with bare_debian(suite) as made:
        for name, path in packages.items():
            made.copy(path, f"/{name}.deb")
        yield made


def version(host: PackageHost, name: str) -> str:
    return host.run(f"dpkg-query -W -f '${{Version}}' {name}")


def processes(host: PackageHost) -> str:
    return host.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")


def lower_version(host: PackageHost, name: str) -> str:
    """The same package with a version that comes before it; its path."""
    host.run(f"dpkg-deb -R /{name}.deb /old && sed -i 's/^Version: /Version: 0~/' /old/DEBIAN/control")
    host.run(f"dpkg-deb -Zgzip -z1 -b /old /{name}-old.deb && rm -r /old")
    return f"/{name}-old.deb"


def test_both_packages_have_the_version_of_the_project(packages: dict[str, Path]) -> None:
    assert set(packages) == {"omfs-daemon", "omfs-node"}
    assert all(
        re.fullmatch(rf"omfs-\w+_{re.escape(__version__)}\+deb\d+_amd64\.deb", p.name) for p in packages.values()
    )


def test_lintian_finds_no_error(image: str, packages: dict[str, Path]) -> None:
    directory = packages["omfs-node"].parent
    command = ("docker", "run", "--rm", "--volume", f"{directory}:/packages:ro", image, "sh", "-c")
    engine(*command, "lintian --allow-root --fail-on error /packages/*.deb", seconds=1500)


def test_a_second_build_makes_nothing_new(image: str, packages: dict[str, Path]) -> None:
    before = {path: path.stat().st_mtime_ns for path in packages.values()}
    again = build_packages(image, ROOT, packages["omfs-node"].parent)
    assert {path: path.stat().st_mtime_ns for path in again.values()} == before


def test_a_file_with_another_hash_is_refused(image: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=lambda folder, names: {".git", ".venv", "build", "tests"} & set(names))
    lock = source / "deploy/debian/build.lock"
    lock.write_text(re.sub(r"(--hash=sha256:)[0-9a-f]{8}", r"\g<1>00000000", lock.read_text()))
    with pytest.raises(AssertionError, match="DO NOT MATCH THE HASHES"):
        build_packages(image, source, tmp_path / "packages")
    assert not list((tmp_path / "packages").glob("*.deb"))


def test_the_daemon_is_installed_upgraded_removed_and_purged(host: PackageHost) -> None:
    old = lower_version(host, "omfs-daemon")
    host.apt(f"install {old} man-db bash-completion")
    assert version(host, "omfs-daemon").startswith("0~")
    _check_daemon(host)

    host.run(f"omfs config default >{CONFIGURATION} && echo '{{}}' >{STATE}")
    told = host.run(ASK.replace("./omfs-daemon_*.deb", "/omfs-daemon.deb"))
    assert f"{STATE}: format {AUDIT.newest}, which this version writes\n" in told

    host.apt("install /omfs-daemon.deb")
    assert version(host, "omfs-daemon").startswith(__version__)
    assert host.run(f"cat {STATE}") == "{}\n"
    host.run("omfs config check")
    _check_daemon(host)

    host.apt(f"install --allow-downgrades {old}")
    assert version(host, "omfs-daemon").startswith("0~")
    assert host.run("omfsd --check-state") == told
    host.apt("install /omfs-daemon.deb")

    host.apt("remove omfs-daemon")
    assert host.fails("command -v omfs") and host.fails("test -e /usr/lib/omfs/venv/lib")
    host.run(f"test -e {STATE} && test -e {CONFIGURATION}")

    host.apt("purge omfs-daemon")
    assert host.run("find /etc/omfs /var/lib/omfs /var/log/omfs /run/omfs /usr/lib/omfs 2>/dev/null || true") == ""


def _check_daemon(host: PackageHost) -> None:
    """It works, belongs to root, and nothing of it runs or is enabled."""
    assert host.run("omfs --version").strip() == f"omfs {__version__}"
    assert "--config" in host.run("omfsd --help")
    host.run("mkdir -p /tmp/own && echo 'raise SystemExit(9)' >/tmp/own/typer.py && PYTHONPATH=/tmp/own omfs --version")
    for page in ("omfs", "omfs.toml", "omfsd", *(f"omfs-{name}" for name in command_names())):
        assert page in host.run(f"MANPAGER=cat man {page}").lower()
    assert "_omfs_completion" in host.run("cat /usr/share/bash-completion/completions/omfs")

    listed = "dpkg -L omfs-daemon | xargs -d '\\n' stat -c '%U:%G %A %n' --"
    files = host.run(listed).splitlines()
    assert not [line for line in files if not line.startswith("root:root ")]
    assert not [line for line in files if line.split()[1][0] != "l" and "w" in line.split()[1][4:]]
    assert not host.run("find /usr/lib/omfs /usr/share/omfs ! -user root -o -perm /6000 -o ! -type l -perm /022")

    units = sorted(path.name for path in (ROOT / "systemd").glob("omfs*.*") if path.is_file())
    installed = host.run("dpkg -L omfs-daemon | grep /systemd/system/")
    assert units and all(f"/systemd/system/{unit}\n" in installed for unit in units)
    assert host.fails("ls /etc/systemd/system/*/omfs* /etc/systemd/system/omfs*")
    assert "omfsd" not in processes(host)
    assert host.run("stat -c '%U %a' /var/lib/omfs").split() == ["omfs", "700"]
    assert "nologin" in host.run("getent passwd omfs")


def test_the_node_package_is_installed_upgraded_and_purged(host: PackageHost) -> None:
    old = lower_version(host, "omfs-node")
    host.apt(f"install {old} man-db")
    host.apt("install /omfs-node.deb")
    assert version(host, "omfs-node").startswith(__version__)
    assert "usage: omfs-run" in host.run("omfs-run --help")
    assert "not in a Slurm job" in host.run("omfs-run true 2>&1")
    assert '"ok": false' in host.run("echo '{}' | /usr/libexec/omfs/omfs-node")
    assert "omfs-run" in host.run("MANPAGER=cat man omfs-run").lower()
    assert "cap_checkpoint_restore=ep" in host.run("getcap /usr/libexec/omfs/omfs-criu")
    host.run("test -f /usr/lib/omfs/omfs_spank.so")
    assert host.run("cat /usr/share/omfs/plugstack.conf") == "optional /usr/lib/omfs/omfs_spank.so\n"
    assert host.fails("ls /etc/slurm/plugstack.conf.d/omfs.conf")
    assert not host.run("dpkg -L omfs-node | xargs stat -c '%U:%G %n' | grep -v '^root:root ' || true")
    assert "omfs" not in processes(host)

    host.apt("purge omfs-node")
    assert host.fails("command -v omfs-run") and host.fails("test -e /usr/libexec/omfs/omfs-node")
