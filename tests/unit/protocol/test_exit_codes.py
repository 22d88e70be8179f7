"""The exit codes of omfs-run, in slurm.conf."""

from __future__ import annotations

from omfs_daemon.omfs_run.slurm_job import RequeueSettings
from omfs_daemon.protocol.exit_codes import HELD, HOLD_CODES, MISUSED, REQUEUE_EXIT_HOLD, STOPPED


def test_slurm_holds_the_job_after_each() -> None:
    assert {STOPPED, HELD, MISUSED} <= set(HOLD_CODES)
    settings = RequeueSettings(REQUEUE_EXIT_HOLD, True)
    assert [code for code in range(256) if settings.covers(code)] == list(HOLD_CODES)
