"""The page for Prometheus, judged by Prometheus' own linter."""

import subprocess
from pathlib import Path

from tests.support.full_metrics import full_metrics
from tests.support.waiting import LIMIT


def test_promtool_finds_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=full_metrics(tmp_path).text(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
