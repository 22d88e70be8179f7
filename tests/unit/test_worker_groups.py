"""Tests of one group run on one worker, so that no cluster is brought up twice."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import LIMIT

TESTS = """
import os
import pathlib
import time

import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(8))
def test_of_one_group(number):
    time.sleep(0.05)  # so that the other worker would take its part
    pathlib.Path("worker", os.environ["PYTEST_XDIST_WORKER"]).touch()

def test_of_none():
    pass
"""


def test_a_group_stays_on_one_worker(tmp_path: Path) -> None:
    (tmp_path / "worker").mkdir()
    (tmp_path / "test_groups.py").write_text(TESTS)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-c", os.devnull, "--rootdir", "."],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert len(list((tmp_path / "worker").iterdir())) == 1
