"""When Slurm allows a job to start, as `omfs why` says it."""

from __future__ import annotations

from datetime import datetime

from omfs_daemon.daemon.api.why_view import why_it_waits
from tests.support.policy_builders import waiting

NOW = datetime(2026, 3, 1, 1, 39, 55).timestamp()


def test_after_a_requeue_the_time_at_which_slurm_allows_the_start_is_shown() -> None:
    job = waiting(7, eligible=NOW + 121, reason="BeginTime")
    assert why_it_waits(job, "7", None, NOW) == "waits: may start from 01:41:56 (BeginTime)"
    late = waiting(7, eligible=NOW + 86400, reason="BeginTime")
    assert "may start from 2026-03-02 01:39:55" in why_it_waits(late, "7", None, NOW)
    over = waiting(7, eligible=NOW - 1, reason="Resources")
    assert "may start from" not in why_it_waits(over, "7", None, NOW)
