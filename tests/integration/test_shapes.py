"""``make shapes`` in small: two stops of each shape that the stand-in for DMTCP can carry, through omfs-run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.shapes.shape_list import SHAPES
from omfs_daemon.shapes.shape_table import ShapeOutcome, shape_table
from tests.support.waiting import LIMIT

ROOT = Path(__file__).parents[2]
STOPS = 2


@pytest.mark.system
def test_every_shape_survives_or_is_refused_as_the_table_says(tmp_path: Path) -> None:
    results = tmp_path / "shapes.json"
    command = [sys.executable, "-m", "benchmarks.shapes", "--methods", "dmtcp", "--stops", str(STOPS), str(results)]
    environment = dict(os.environ, OMFS_DMTCP="stand-in")
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=False, timeout=2 * LIMIT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["shape"]: row for row in json.loads(results.read_text())["rows"]}
    assert list(rows) == [shape.title for shape in SHAPES if shape.again]
    known = {title: row["dmtcp"].verdict for title, row in shape_table().shapes.items()}
    for title, row in rows.items():
        refused = sum(row["refused"].values())
        assert row["survived"] + refused == STOPS, row
        if known[title] is ShapeOutcome.SURVIVES:
            assert refused == 0, row
        elif known[title] is ShapeOutcome.REFUSED:
            assert refused == STOPS, row
        # What the real one does not permit to a program (inotify, pidfd) is refused here while it is open.
        assert all(reason.startswith("unfit: ") for reason in row["refused"])
