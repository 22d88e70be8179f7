"""Recorded traces, which lie beside the repository or where OMFS_TRACES says."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from omfs_daemon.simulate.workload.load_trace import load
from omfs_daemon.simulate.workload.workload import Workload

DIRECTORY = Path(os.environ.get("OMFS_TRACES") or Path(__file__).parents[2] / "../shared/traces")

# Who has no traces may leave these tests out; CI may not.
needs_traces = pytest.mark.skipif(
    not DIRECTORY.is_dir() and not os.environ.get("CI"), reason=f"no recorded traces: {DIRECTORY} is no directory"
)


def recorded(name: str, squeeze: float = 1.0) -> Workload:
    """The trace of this file name with all times between submissions multiplied by ``squeeze``."""
    workload = load(DIRECTORY / name).workload
    return replace(workload, submit=workload.submit * squeeze)
