"""The page for Prometheus, judged by Prometheus' own linter."""

import subprocess

from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.policy.arrays.usage import AccountUsage
from tests.support.waiting import LIMIT


def test_promtool_finds_nothing() -> None:
    metrics = Metrics("0.1.0", "22.05.8")
    metrics.observe_accounts([AccountUsage("bio", "", entitled=8, used=8, borrowed=0, lent=0, pending=0)])
    metrics.count_preemption("omfs", "requeue", "entitled", "done")
    metrics.observe_reclaim(0.3)
    metrics.count_slurm_error("timeout")
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=metrics.text(), capture_output=True, text=True, timeout=LIMIT
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
