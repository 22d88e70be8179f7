"""A system clock that is set back or forward delays or hastens timeouts, and loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from tests.support.preemption_cases import check_peace, lost, methods_site, preemptor, victim

HOURS = 3 * 3600.0


@pytest.mark.parametrize("seconds", [HOURS, -HOURS])
def test_a_clock_that_is_set_while_a_checkpoint_is_written_loses_nothing(tmp_path: Path, seconds: float) -> None:
    site = methods_site(tmp_path, hosts=1)
    launched = victim(site, "dmtcp", run_time=200, launched=OmfsRunBehavior(seconds=20))
    site.run(3)
    urgent = preemptor(site, "", run_time=30)
    site.run(5)
    assert site.journal.state.preemptions
    site.clock_error = seconds
    site.run(60)
    site.clock_error = 0.0
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert site.slurm.history[urgent].starts
    assert lost(site, [launched]) == 0
    check_peace(site)
