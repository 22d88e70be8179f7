"""One of several victims has ended between the poll and the orders: Slurm refuses its hold, and the others are not
preempted by these orders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.daemon.effects_runner import AGAIN_AFTER
from tests.support.preemption_cases import check_peace, methods_site, preemptor, victim


@pytest.mark.parametrize("method", ["requeue", "suspend"])
def test_the_others_are_preempted_in_the_next_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    site = methods_site(tmp_path, hosts=1)
    ends = victim(site, "requeue", cpus=2, run_time=200)
    other = victim(site, method, cpus=2, run_time=200)
    site.run(3)
    assert site.runs(ends, other)
    hold, refused = site.gateway.hold, []

    def late(refs: Sequence[str], comment: str) -> Any:
        if str(ends) in refs and not refused:
            site.slurm.cancel(ends)
            site.now += site.slurm.timing.completing
            refused.extend(hold(refs, comment))
            return refused
        return hold(refs, comment)

    monkeypatch.setattr(site.gateway, "hold", late)
    urgent = preemptor(site, "")
    began = site.now
    site.run_until(lambda: site.runs(urgent), limit=10, step=0.2)
    assert [refusal.ref for refusal in refused] == [str(ends)]
    assert site.now - began < AGAIN_AFTER
    site.rest()
    check_peace(site)
