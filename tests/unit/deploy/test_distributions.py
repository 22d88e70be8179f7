"""The sdist and the wheel that is built from it: a site needs nothing else of the clone."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploy.hatch_build import SHARED
from deploy.manual.pages import command_names

ROOT = Path(__file__).parents[3]
SECONDS = 300.0

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("sdist and wheel")]


def build(source: Path, target: str, directory: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=SECONDS)
    (made,) = directory.iterdir()
    return made


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist."""
    made = build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))
    directory = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(made) as archive:
        archive.extractall(directory, filter="data")
    (root,) = directory.iterdir()
    return root


@pytest.fixture(scope="module")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from the sdist alone."""
    return zipfile.ZipFile(build(unpacked, "wheel", tmp_path_factory.mktemp("wheel")))


def shared(wheel: zipfile.ZipFile) -> set[str]:
    """What pip puts below the environment's share/."""
    return {name.split(".data/data/share/")[1] for name in wheel.namelist() if ".data/data/share/" in name}


def files_below(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_the_sdist_has_all_sources_and_the_manual_pages(unpacked: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=SECONDS
    ).stdout.split("\n")
    tracked = {name for name in listed if name and (ROOT / name).is_file()}
    assert not tracked - files_below(unpacked)
    assert (unpacked / "man/man8/omfsd.8").is_file()


def test_the_sdist_has_nothing_that_was_built(unpacked: Path) -> None:
    names = files_below(unpacked)
    assert not {name for name in names if name.startswith(("build/site", ".venv", "dist/"))}
    assert not {name for name in names if name.endswith((".pyc", ".so", ".o"))}


def test_the_wheel_has_all_manual_pages(wheel: zipfile.ZipFile) -> None:
    pages = {name for name in shared(wheel) if name.startswith("man/")}
    commands = {f"man/man1/omfs-{name}.1" for name in command_names()}
    assert pages == commands | {"man/man1/omfs.1", "man/man1/omfs-run.1", "man/man5/omfs.toml.5", "man/man8/omfsd.8"}


def test_the_wheel_has_what_a_site_installs(wheel: zipfile.ZipFile, unpacked: Path) -> None:
    names = shared(wheel)
    for source, target in SHARED.items():
        path, inside = unpacked / source, target.removeprefix("share/")
        expected = {f"{inside}/{name}" for name in files_below(path)} if path.is_dir() else {inside}
        assert not path.exists() or expected <= names, source
    assert {"omfs/plugins/job_submit.lua", "omfs/plugins/spank/omfs_spank.c", "omfs/omfs.toml"} <= names
    assert "bash-completion/completions/omfs" in names


def test_the_wheel_s_programs_and_the_epilog_keep_their_mode(wheel: zipfile.ZipFile) -> None:
    (epilog,) = [info for info in wheel.infolist() if info.filename.endswith("/epilog_slurmctld")]
    assert epilog.external_attr >> 16 & 0o777 == 0o755
    (entries,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "omfsd = omfs_daemon.cli.omfsd:run" in wheel.read(entries).decode()


def test_the_sample_configuration_is_that_of_the_docs(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith("/share/omfs/omfs.toml")]
    assert wheel.read(name) == (ROOT / "docs/omfs.toml").read_bytes()
