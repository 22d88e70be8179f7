"""What idle cores could have done for the jobs that waited: against a plain reference, and what must always hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.accounting.job_records import JobRecords, record_frame, with_runs
from omfs_daemon.accounting.read_report import ReadReport
from omfs_daemon.errors import ConfigError
from omfs_daemon.reports.backfill_settings import BackfillSettings, backfill_settings
from omfs_daemon.reports.log_report import LogReport, log_report
from omfs_daemon.reports.machine_use import MachineSize
from omfs_daemon.reports.whole_period import idle_use
from omfs_daemon.simulate.kernels.idle_use_kernel import fill_with_preemptible

HOUR = 3600.0
END = 120
Run = tuple[int, int, int, int, int]
RUNS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(1, 25), st.integers(1, 6), st.integers(0, 20)),
    min_size=1, max_size=10,
)  # fmt: skip


def report_on(runs: list[Run], cores: int | None = None) -> LogReport:
    """submit, seconds to the start, then to the end, cores, seconds that the limit is longer"""
    raw = pl.DataFrame(
        {
            "place": list(range(len(runs))),
            "job_id": [str(number) for number in range(len(runs))],
            "submit": [float(run[0]) for run in runs],
            "start": [float(run[0] + run[1]) for run in runs],
            "end": [float(sum(run[:3])) for run in runs],
            "run": [float(run[2]) for run in runs],
            "limit": [float(run[2] + run[4]) for run in runs],
            "cpus": [run[3] for run in runs],
        }
    )
    frame, _ = with_runs(record_frame({name: pl.col(name) for name in raw.columns}, raw), frozenset())
    records = JobRecords(frame, ReadReport(Path("log"), len(runs)))
    most = max(sum(run[3] for run in runs if sum(run[:2]) <= time < sum(run[:3])) for time in range(END))
    return log_report(records, MachineSize(cores or most, "test"), large=3, since=0.0, until=float(END))


def by_hand(report: LogReport) -> float:
    """Core seconds, second by second: each run in order of eligibility, at the first second at which all of it fits."""
    use = report.use
    idle = np.repeat(use.idle, use.seconds.astype(int))
    total = 0.0
    rows = report.frame.sort("submit", "place").select("submit", "start", "end", "cpus").iter_rows()
    for submit, start, end, cpus in rows:
        low, high, over = int(submit), int(start), int(end)
        own = idle.copy()
        own[high:over] += cpus
        for time in range(low, high):
            if (own[time : time + over - high] >= cpus).all():
                # Booked up to the next time of change.
                until = min(time + over - high, high)
                idle[time : int(use.time[use.time >= until][0])] -= cpus
                total += cpus * (min(time + over - high, high) - time)
                break
    assert (idle >= 0).all()
    return total


@given(RUNS)
def test_each_run_is_put_where_idle_cores_hold_it_first(runs: list[Run]) -> None:
    report = report_on(runs)
    found = idle_use(report, BackfillSettings(resolution=1.0))
    assert found.possible * HOUR == pytest.approx(by_hand(report))
    assert found.possible <= found.idle + 1e-9
    assert sum(found.lost.values()) == pytest.approx(found.possible)
    assert found.preemptible <= found.idle + 1e-9
    assert found.values()["waiting_jobs"] == sum(run[1] > 0 for run in runs)


# A job of 4 cores waits for one of 6 of ten; behind it one of 2 that would have run 5 s of its limit of 30.
IN_THE_WAY: list[Run] = [(0, 0, 20, 6, 0), (1, 19, 10, 8, 0), (2, 18, 5, 2, 25)]


def shares(settings: BackfillSettings, runs: list[Run] = IN_THE_WAY) -> dict[str, float]:
    return {name: hours * HOUR for name, hours in idle_use(report_on(runs, 10), settings).lost.items() if hours}


def test_what_stood_in_the_way() -> None:
    assert shares(BackfillSettings(resolution=1.0)) == pytest.approx({"other": 10.0})
    # The large job needs all cores; the limit reaches into it.
    blocked = [(0, 0, 20, 6, 0), (1, 19, 10, 10, 0), (2, 28, 5, 2, 25)]
    assert shares(BackfillSettings(resolution=1.0), blocked) == pytest.approx({"limits": 10.0})
    assert shares(BackfillSettings(max_job_test=1, resolution=1.0)) == pytest.approx({"depth": 10.0})
    assert shares(BackfillSettings(window=29.0, resolution=1.0)) == pytest.approx({"window": 10.0})
    assert shares(BackfillSettings(resolution=60.0)) == pytest.approx({"resolution": 10.0})


def test_advice_names_the_parameter() -> None:
    found = idle_use(report_on(IN_THE_WAY, 10), BackfillSettings(max_job_test=1))
    assert "100% of it, 0 core hours: jobs that stood behind bf_max_job_test = 1 others" in found.values()["advice"]


def test_preemptible_jobs_fill_a_hole_and_leave() -> None:
    """Four idle cores for 10 s, then one, then four: the last of the queue stops, and goes on later."""
    time, free = np.array([0.0, 10.0, 20.0]), np.array([4, 1, 4])
    eligible, until = np.array([0.0, 2.0]), np.array([30.0, 30.0])
    done, stops, lost = fill_with_preemptible(
        time, free, np.array([0.0, 2.0, 10.0, 20.0, 30.0]), eligible, until, np.array([1, 3]), np.array([50.0, 12.0])
    )
    assert done.tolist() == [30.0, 12.0]
    assert stops.tolist() == [1, 1]
    assert lost.tolist() == [30.0, 8.0]


@pytest.mark.parametrize("text", ["bf_window=0", "bf_max_job_test=x", "a,bf_resolution=4000"])
def test_parameters_that_slurm_does_not_allow(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--scheduler: 'bf_.*: must be a whole number from 1"):
        backfill_settings(text, "--scheduler")


def test_parameters_among_others() -> None:
    found = backfill_settings("batch_sched_delay=0,bf_window=10,bf_continue", "Slurm's")
    assert found == BackfillSettings(500, 600.0, 60.0, "Slurm's")
