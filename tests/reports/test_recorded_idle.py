"""Causes of idle cores from the daemon's own record: where it covers the period, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.accounting.job_records import JobRecords
from omfs_daemon.accounting.read_report import ReadReport
from omfs_daemon.daemon.store.idle_hours import HOUR, IdleHour
from omfs_daemon.policy.idle_causes import CAUSES
from omfs_daemon.reports.log_report import log_report
from omfs_daemon.reports.machine_use import HEAPS, MachineSize, machine_use
from omfs_daemon.reports.recorded_idle import covered_seconds, covering, split_as_recorded
from omfs_daemon.reports.report_summary import sources_of, summary_of
from tests.reports.test_log_report import CORES, Job, frame_of

RECORD = st.lists(st.integers(0, 1000), min_size=len(CAUSES), max_size=len(CAUSES))
RECORDS = st.dictionaries(st.integers(0, 5), RECORD, max_size=6)
JOBS = st.lists(
    st.tuples(
        st.integers(0, 20_000), st.integers(0, 5000), st.integers(0, 9000), st.integers(1, 9000),
        st.integers(1, CORES), st.sampled_from(["", "", "AssocGrpCpuLimit"]), st.booleans(),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


def hour(number: int, watched: float = HOUR, **cpu_seconds: float) -> IdleHour:
    return IdleHour(number * HOUR, watched, dict.fromkeys(CAUSES, 0.0) | cpu_seconds)


def heaps(jobs: list[Job], begin: float, end: float, hours: list[IdleHour]) -> dict[str, list[float]]:
    """Core seconds by hour."""
    use = machine_use(frame_of(jobs), begin, end, MachineSize(CORES, "test"), 5)
    use = split_as_recorded(use, covering(hours, begin, end))
    edges = np.arange(begin, end + 1, HOUR)
    return {name: use.between(cores, edges).round(3).tolist() for name, cores in use.heaps.items()}


HELD: Job = (0, 3 * 3600, 0, 3600, 4, "", True)
"""Held for three hours: accounting does not say by whom."""
WAITS: Job = (0, 0, 3 * 3600, 3600, 3, "", True)


def test_the_daemon_knows_causes_by_name_that_a_report_knows() -> None:
    assert (*HEAPS, "down") == CAUSES


def test_what_the_daemon_held_is_limited_in_the_hours_that_it_watched() -> None:
    recorded = hour(1, nobody_waits=5 * HOUR, limited=4 * HOUR, does_not_fit=HOUR, down=100 * HOUR)
    found = heaps([HELD], 0.0, 3 * HOUR, [recorded])
    assert found["dependent"] == [4 * HOUR, 0, 4 * HOUR]
    assert found["limited"] == [0, 4 * HOUR, 0]
    assert found["nobody_waits"] == [6 * HOUR, 5 * HOUR, 6 * HOUR]
    assert found["does_not_fit"] == [0, HOUR, 0]


def test_accounting_says_what_was_kept_for_large_jobs() -> None:
    """A job of three cores waits beside one of nine, and one of two runs, so eight of ten are idle."""
    jobs: list[Job] = [WAITS, (0, 0, 3 * 3600, 3600, 9, "", True), (0, 0, 0, 3 * 3600, 2, "", True)]
    before = heaps(jobs, 0.0, 2 * HOUR, [])
    assert before["kept_for_large"] == [3 * HOUR, 3 * HOUR] and before["does_not_fit"] == [5 * HOUR, 5 * HOUR]
    after = heaps(jobs, 0.0, 2 * HOUR, [hour(1, limited=5, kept_for_large=3)])
    assert after["limited"] == [0, 5 * HOUR]
    assert after["kept_for_large"] == pytest.approx([3 * HOUR, 9 / 8 * HOUR])
    assert after["does_not_fit"] == pytest.approx([5 * HOUR, 15 / 8 * HOUR])


def test_hours_that_were_hardly_watched_or_had_no_idle_cpus_are_as_accounting_says() -> None:
    hours = [hour(0, watched=1800, limited=9), hour(1, down=9), hour(2, watched=HOUR - 300, limited=9)]
    assert [one.begin for one in covering(hours, 0.0, 3 * HOUR)] == [HOUR, 2 * HOUR]
    found = heaps([HELD], 0.0, 3 * HOUR, hours)
    assert found["dependent"] == [4 * HOUR, 4 * HOUR, 0]
    assert found["limited"] == [0, 0, 10 * HOUR]


def test_the_part_of_a_period_that_is_covered() -> None:
    hours = [hour(number) for number in range(9)]
    covered = covering(hours, 1.5 * HOUR, 3.25 * HOUR)
    assert [one.begin for one in covered] == [HOUR, 2 * HOUR, 3 * HOUR]
    assert covered_seconds(covered, 1.5 * HOUR, 3.25 * HOUR) == 1.75 * HOUR


def test_the_report_says_which_part_the_daemon_recorded() -> None:
    records = JobRecords(frame_of([HELD]), ReadReport(Path("log"), 1))
    size = MachineSize(CORES, "test")
    plain = log_report(records, size, since=0.0, until=4 * HOUR)
    assert sources_of(plain)["notes"] == [] and sources_of(plain)["recorded_seconds"] == 0
    hours = [hour(1, limited=7), hour(2, limited=7), hour(9, limited=7)]
    found = log_report(records, size, since=0.0, until=4 * HOUR, recorded=hours)
    (note,) = sources_of(found)["notes"]
    assert note.startswith("why cores were idle: as omfsd recorded it in 2.0 of 4.0 hours, ")
    assert sources_of(found)["recorded_seconds"] == 2 * HOUR
    shares = summary_of(found)["shares"]
    assert shares["limited"] == pytest.approx(0.5)
    assert sum(shares.values()) == pytest.approx(1.0)


@given(JOBS, RECORDS, st.integers(0, 9000), st.integers(1, 9000))
def test_heaps_still_sum_up_to_idle(jobs: list[Job], records: dict[int, list[int]], begin: int, seconds: int) -> None:
    hours = [hour(number, **dict(zip(CAUSES, record, strict=True))) for number, record in sorted(records.items())]
    end = float(begin + seconds)
    before = machine_use(frame_of(jobs), begin, end, MachineSize(CORES, "test"), 3)
    after = split_as_recorded(before, covering(hours, begin, end))
    assert np.allclose(sum(after.heaps.values()), after.idle, rtol=0, atol=1e-9)
    assert all((heap >= 0).all() for heap in after.heaps.values())
    assert after.seconds.sum() == seconds and (np.diff(after.time) > 0).all()
    assert after.core_seconds(after.idle) == pytest.approx(before.core_seconds(before.idle))
    for one in covering(hours, begin, end):
        idle = sum(one.cpu_seconds[name] for name in HEAPS)
        edges = np.clip(np.array([one.begin, one.begin + HOUR]), begin, end)
        if idle:
            expected = after.between(after.idle, edges) * one.cpu_seconds["limited"] / idle
            assert after.between(after.heaps["limited"], edges) == pytest.approx(expected)
