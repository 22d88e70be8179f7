"""The lock files of the Debian packages: complete, with hashes, and for every machine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
LOCKS = {
    "requirements.lock": ("project", "dependencies"),
    "build.lock": ("build-system", "requires"),
}


def text(name: str) -> str:
    return (ROOT / "deploy/debian" / name).read_text(encoding="utf-8")


def pinned(name: str) -> dict[str, str]:
    """Release by normal name."""
    return {canonicalize_name(found[1]): found[2] for found in re.finditer(r"^([\w.-]+)==(\S+)", text(name), re.M)}


@pytest.mark.parametrize("name", LOCKS)
def test_each_entry_has_hashes(name: str) -> None:
    entries = re.split(r"^(?=[\w.-]+==)", text(name), flags=re.M)[1:]
    assert len(entries) == len(pinned(name))
    for entry in entries:
        lines = [line.strip() for line in entry.splitlines() if not line.strip().startswith("#")]
        assert re.fullmatch(r"[\w.-]+==[\w.]+ \\", lines[0]), lines[0]
        assert len(lines) > 1
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}( \\)?", line) for line in lines[1:]), entry


@pytest.mark.parametrize("name", LOCKS)
def test_each_requirement_of_the_project_is_met(name: str) -> None:
    table, key = LOCKS[name]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    locked = pinned(name)
    for line in project[table][key]:
        wanted = Requirement(line)
        release = locked.get(canonicalize_name(wanted.name))
        assert release is not None, f"{wanted.name} is missing: run deploy/debian/lock.sh"
        assert wanted.specifier.contains(release), f"{line} is not met: run deploy/debian/lock.sh"


@pytest.mark.parametrize("name", LOCKS)
def test_no_machine_or_index_is_named(name: str) -> None:
    assert not re.search(r"https?:|file:|--(index|extra-index|find-links|trusted-host)|(?<!\w)/", text(name))


def test_what_is_in_both_has_one_release() -> None:
    first, second = (pinned(name) for name in LOCKS)
    assert not {name for name in first.keys() & second.keys() if first[name] != second[name]}


@pytest.mark.parametrize("name", LOCKS)
def test_no_extra_is_part_of_the_packages(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {Requirement(line).name for lines in project["optional-dependencies"].values() for line in lines}
    assert {"numba", "ortools", "polars"} <= extras
    assert not {"numba", "ortools", "polars"} & pinned(name).keys()
