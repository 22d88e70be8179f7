"""Recorded traces, which lie beside the repository or in the directory OMFS_TRACES."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.support.amounts import is_soak

if TYPE_CHECKING:
    from omfs_daemon.simulate.workload.workload import Workload

DIRECTORY = Path(os.environ.get("OMFS_TRACES") or Path(__file__).parents[2] / "../shared/traces")
WITHOUT = f"tests of recorded traces are left out: {DIRECTORY} is no directory (OMFS_TRACES says where they lie)"

needs_traces = pytest.mark.traces


def are_there() -> bool:
    return DIRECTORY.is_dir()


def are_required() -> bool:
    """CI must have them."""
    return bool(os.environ.get("CI"))


def recorded(name: str, squeeze: float = 1.0, first: int = 0) -> Workload:
    """The trace of this file name with all times between submissions multiplied by ``squeeze``; outside a soak only its
    ``first`` jobs, if so many are named."""
    from omfs_daemon.simulate.workload.load_trace import load_trace  # takes long to import

    workload = load_trace(DIRECTORY / name).workload
    if first and not is_soak():
        workload = workload.take(np.arange(len(workload)) < first)
    return replace(workload, submit=workload.submit * squeeze)
