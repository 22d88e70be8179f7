"""Thousands of orders do not keep the daemon from looking for urgent jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.cluster.holds import is_held_by_us
from omfs_daemon.daemon.effects_runner import JOBS_AT_ONCE, SENDS_FOR
from tests.support.fake_site import Site

WAITING = 5 * JOBS_AT_ONCE
SECONDS_EACH = SENDS_FOR / JOBS_AT_ONCE / 1.5


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A hold takes so long that the time for orders ends within the second batch."""
    site = Site(tmp_path, hosts=2)
    hold = site.gateway.hold

    def slow(refs: Sequence[str], comment: str) -> Any:
        site.now += SECONDS_EACH * len(refs)
        return hold(refs, comment)

    monkeypatch.setattr(site.gateway, "hold", slow)
    return site


def held(site: Site) -> int:
    return sum(is_held_by_us(job) for job in site.gateway.jobs())


def test_what_is_left_of_many_holds_is_sent_in_later_cycles(site: Site) -> None:
    site.submit("bio", method="", run_time=10_000)
    site.submit("physics", run_time=10_000)
    site.step()
    for _ in range(WAITING):
        site.submit("bio", method="", run_time=10_000)
    began = site.now
    site.step(seconds=0.0)
    assert held(site) == 2 * JOBS_AT_ONCE
    assert site.now - began <= SENDS_FOR + JOBS_AT_ONCE * SECONDS_EACH
    assert len(site.journal.state.held) == held(site), "a hold that was not sent is not remembered"
    urgent = site.submit("bio", urgent=True, run_time=10_000)
    site.step(seconds=3.0)
    assert held(site) < WAITING
    site.step(seconds=3.0)
    assert site.runs(urgent)
    site.run_until(lambda: held(site) == WAITING, limit=10)
