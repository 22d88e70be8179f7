"""Kernels where no cache of compiled code can be written: compiled all the same."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import numpy as np
from omfs_daemon.simulate.kernels.run_history import numbered_kinds
print(numbered_kinds(np.array([[7, 8, 7]]), 1).tolist())
"""


def full_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.parametrize("disk", ["no directory", "full"])
def test_kernels_need_no_cache(tmp_path: Path, disk: str) -> None:
    place = tmp_path / "place"
    if disk == "no directory":
        place.write_text("")
    # Only there: beside the sources, root may write always.
    where = {"NUMBA_CACHE_DIR": str(place / "cache"), "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    done = subprocess.run(
        [sys.executable, "-B", "-c", CODE],
        env=os.environ | where,
        preexec_fn=full_disk if disk == "full" else None,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[1, 2, 1]\n", "")
    assert not list(place.rglob("*.nbc"))
