"""What the failsafe reads of a configuration file that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.config.load_valid_parts import load_valid_parts
from omfs_daemon.config.schema import Config
from tests.support.hostile_text import HOSTILE_TOML

GOOD = """
[daemon]
state_dir = "/srv/omfs"
run_dir = "/run/other"   # on a tmpfs
failsafe_grace_seconds = 12.5
[slurm]
conf = "/srv/slurm.conf"
[entitlements.bio]
percent = 50
"""

WRONG = {
    "a key that nobody knows": GOOD.replace("[slurm]", "state_dri = 1\n[slurm]"),
    "entitlements beyond 100 percent": GOOD.replace("50", "150"),
    "an open quote": GOOD.replace("[entitlements.bio]", 'gateway = "comm\n[entitlements.bio]'),
    "an open table": GOOD.replace("[daemon]", "[daemon"),
    "a table that is none": "nodes = 3\n" + GOOD,
    "the end is missing": GOOD + "[[class",
    "a NUL": GOOD.replace("[daemon]", '[daemon]\nuser = "a\\u0000"'),
    **{f"hostile: {name}": GOOD + text for name, text in HOSTILE_TOML.items()},
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_what_is_right_counts(text: str, tmp_path: Path) -> None:
    path = tmp_path / "omfs.toml"
    path.write_text(text)
    config, why = load_valid_parts(path)
    assert why.startswith(str(path)) and "\n" not in why
    daemon = config.daemon
    assert (str(daemon.state_dir), str(daemon.run_dir)) == ("/srv/omfs", "/run/other")
    assert (daemon.failsafe_grace_seconds, str(config.slurm.conf)) == (12.5, "/srv/slurm.conf")


def test_a_right_file_is_read_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "omfs.toml"
    path.write_text(GOOD)
    config, why = load_valid_parts(path)
    assert why == "" and config.entitlements["bio"].percent == 50


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"\x00"])
def test_what_cannot_be_read_counts_as_the_defaults(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "omfs.toml"
    if content is not None:
        path.write_bytes(content)
    config, why = load_valid_parts(path)
    assert config == Config() and why.startswith(str(path))
