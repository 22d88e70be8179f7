"""Slurm enforces what the plan does not see: jobs are preempted in vain at most once per preemptor and reason.

Random jobs lack random things for a random time; only Slurm, or nobody until it is tried, knows.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.daemon import cycle
from omfs_daemon.policy.start_checks.answer import YES, Answer, AnswerKind
from omfs_daemon.policy.validator import Verdict, validate
from omfs_daemon.testing.fake_slurm.fake_jobs import Record
from omfs_daemon.testing.fake_slurm.scheduler import RESERVED
from tests.support.amounts import is_soak
from tests.support.fake_site import Site

REASONS = ("", "Resources", "QOSGrpCpuLimit", "Licenses", RESERVED, "Priority")
LASTS = 240.0
"""Seconds of a case; what jobs lack is over before that."""

PROMISED = 1200.0
"""Seconds after which everybody runs who could be served, however often it was tried before."""


class Wanted(NamedTuple):
    """A job that comes ``after`` seconds and ``lacks`` something until ``until``. ``certain``: whether the plan is sure
    that Slurm would start it."""

    account: str
    cpus: int
    after: float
    lacks: str
    until: float
    certain: bool


WANTED = st.builds(
    Wanted,
    st.sampled_from(["physics", "alarm"]),
    st.sampled_from([1, 2, 4]),
    st.floats(0, 60),
    st.sampled_from(REASONS),
    st.floats(60, LASTS),
    st.booleans(),
)


@pytest.fixture(autouse=True)
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fdatasync", lambda _: None)
    monkeypatch.setattr("os.fsync", lambda _: None)


def play(site: Site, wanted: list[Wanted], patch: pytest.MonkeyPatch) -> dict[int, Wanted]:
    """The case; the jobs by id."""
    known: dict[int, Wanted] = {}
    begun = site.now

    def answered(*arguments: Any, **options: Any) -> Verdict:
        verdict = validate(*arguments, **options)
        sure = {planned.preemptor: known[int(planned.preemptor)].certain for planned in verdict.preemptions}
        answers = {ref: YES if is_sure else Answer(AnswerKind.UNKNOWN) for ref, is_sure in sure.items()}
        return verdict._replace(answers=answers)

    def lacks(record: Record) -> str:
        mine = known.get(record.id)
        return "" if mine is None or site.now - begun > mine.until else mine.lacks

    patch.setattr(cycle, "validate", answered)
    left = sorted(wanted, key=lambda one: one.after)
    while site.now - begun < LASTS:
        while left and left[0].after <= site.now - begun:
            one = left.pop(0)
            urgent = one.account == "alarm"
            method = "" if urgent else "requeue"
            number = site.submit(one.account, one.cpus, method, run_time=20, urgent=urgent)
            known[number] = one
        site.slurm.let_lack(lacks)  # as Slurm looks at limits in each pass
        site.step(1.0)
    return known


@given(st.lists(WANTED, min_size=1, max_size=6 if is_soak() else 4))
def test_nobody_is_preempted_twice_in_vain_and_nobody_starves(wanted: list[Wanted]) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        site = Site(Path(directory), hosts=2, start_timeout=10, retry_after=20)
        [site.submit("bio", run_time=10_000) for _ in range(2)]
        site.run(2)
        known = play(site, wanted, patch)
        past = site.history_database.preemptions(10_000, 0.0)
        vain = Counter(int(one.preemptor) for one in past if one.outcome == "not_started_in_time")
        assert all(times == 1 for times in vain.values()), vain
        for job in vain:
            one = known[job]
            is_false_yes = one.lacks == "Resources"
            assert one.certain or is_false_yes or one.account == "alarm", one
        served = [job for job in known if job not in vain or known[job].lacks != "Resources"]
        site.slurm.let_lack(lambda _: "")
        site.run_until(lambda: all(site.slurm.history[job].starts for job in served), PROMISED, step=5.0)
        site.die()
