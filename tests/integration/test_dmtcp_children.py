"""omfs_children.so between a checkpoint and a restart, with a library that plays DMTCP."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import LIMIT

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "tests" / "support" / "plugin_host"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp("build")
    plugin, dmtcp, program = build / "omfs_children.so", build / "libdmtcp.so", build / "program"
    for command in (
        ["make", "-C", ROOT / "plugins", f"BUILD={build}", plugin],
        ["cc", "-shared", "-fPIC", "-o", dmtcp, SOURCES / "dmtcp.c", plugin],
        ["cc", "-pthread", f"-Wl,-rpath,{build}", "-o", program, SOURCES / "program.c", plugin, dmtcp],
    ):
        subprocess.run(command, check=True, timeout=LIMIT, capture_output=True)
    return program


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("thread", "0 signals, timer set"),  # DMTCP's thread blocks SIGALRM and may have one that waits forever
        ("process", "1 signals, timer off"),
        ("alarm", "0 signals, timer set"),  # DMTCP would stop it, and set it again for whole seconds
    ],
)
def test_a_timer_fires_as_often_as_without_a_checkpoint(host: Path, what: str, expected: str) -> None:
    shown = subprocess.run([host, what], check=True, timeout=LIMIT, capture_output=True, text=True)
    assert shown.stdout.strip() == expected


def test_an_ended_child_is_there_until_it_is_waited_for(host: Path) -> None:
    shown = subprocess.run([host, "child"], check=True, timeout=LIMIT, capture_output=True, text=True)
    there = "setpgid 0, group its own, kill 0 0, wait ended 7"
    assert shown.stdout.strip() == f"{there}, gone -1 -1 -1"


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("late", "setpgid 0"),  # the kernel no longer has it, because a checkpoint came in between
        ("exec", "before -1, then 0"),  # the child has done it itself
        ("never", "before -1, then -1"),
    ],
)
def test_a_parent_gives_its_child_a_group(host: Path, what: str, expected: str) -> None:
    shown = subprocess.run([host, what], check=True, timeout=LIMIT, capture_output=True, text=True)
    assert shown.stdout.strip() == expected
