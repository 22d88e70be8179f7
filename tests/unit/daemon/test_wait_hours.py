"""Hourly sums of waits, in the history."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.idle_hours import HOUR
from omfs_daemon.daemon.store.wait_hours import StartedJob, WaitGroup, WaitShare, wait_shares

JOBS = st.lists(
    st.builds(
        StartedJob,
        start=st.integers(0, 3 * int(HOUR)).map(float),
        partition=st.sampled_from(["main", "urgent"]),
        account=st.sampled_from(["bio", "physics", "(others)"]),
        wait=st.integers(0, 10**6).map(float),
    ),
    max_size=12,
)


@given(JOBS)
def test_each_job_counts_once_in_its_partition_and_once_in_its_account(jobs: list[StartedJob]) -> None:
    shares = wait_shares(jobs)
    for group, values in (
        (WaitGroup.PARTITION, [job.partition for job in jobs]),
        (WaitGroup.ACCOUNT, [job.account for job in jobs]),
    ):
        found = {(share.begin, share.value): share for share in shares if share.group is group}
        expected: dict[tuple[float, str], list[float]] = {}
        for job, value in zip(jobs, values, strict=True):
            expected.setdefault((job.start - job.start % HOUR, value), []).append(job.wait)
        assert {key: (share.jobs, share.waited, share.longest) for key, share in found.items()} == {
            key: (len(waits), sum(waits), max(waits)) for key, waits in expected.items()
        }


def test_polls_add_up_and_are_forgotten_in_time(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    polls = [
        [StartedJob(10.0, "main", "bio", 5.0), StartedJob(20.0, "main", "physics", 70.0)],
        [StartedJob(HOUR - 1, "urgent", "bio", 0.0), StartedJob(HOUR, "main", "bio", 9.0)],
    ]
    for poll in polls:  # each by a daemon of its own
        database = HistoryDatabase(path)
        database.add_waits(wait_shares(poll))
        database.close()
    database = HistoryDatabase(path)
    first = [
        WaitShare(0, WaitGroup.ACCOUNT, "bio", 2, 5, 5),
        WaitShare(0, WaitGroup.ACCOUNT, "physics", 1, 70, 70),
        WaitShare(0, WaitGroup.PARTITION, "main", 2, 75, 70),
        WaitShare(0, WaitGroup.PARTITION, "urgent", 1, 0, 0),
    ]
    second = [WaitShare(HOUR, WaitGroup.ACCOUNT, "bio", 1, 9, 9), WaitShare(HOUR, WaitGroup.PARTITION, "main", 1, 9, 9)]
    assert database.waits(0) == database.waits(HOUR - 1) == first + second
    assert database.waits(HOUR) == second
    database.forget_before(HOUR)
    assert database.waits(0) == second
    database.close()
