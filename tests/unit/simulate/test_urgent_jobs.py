"""Urgent jobs from lists and at busy hours."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import pytest

from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.engine.conventions import Conventions
from omfs_daemon.simulate.engine.outcome import Outcome, undisturbed
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.experiments.agung2021.urgent_injection import hourly_utilisation, injected
from omfs_daemon.simulate.workload.urgent_jobs import SIZES, published, read_urgent, with_urgent
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload, workload

HOUR, MONTH = 3600.0, 30 * 86400.0


def jobs(*numbers: int) -> Workload:
    count = len(numbers)
    return workload("trace", np.arange(count) * 10.0, np.ones(count, int), np.ones(count), job_id=np.array(numbers))


def ran(starts: list[float], lengths: list[float], cpus: list[int], machine: Machine) -> Outcome:
    """Jobs that started when they came."""
    submit, run = np.array(starts), np.array(lengths)
    trace = workload("trace", submit, np.array(cpus), run)
    return undisturbed(trace, "fcfs", machine, Conventions(), submit, run)


class TestLists:
    def test_read(self, tmp_path: Path) -> None:
        path = tmp_path / "urgent.csv"
        path.write_text("job_id,submit,procs,runtime\n5,100,128,600\n4,30,256,390\n")
        urgent = read_urgent(path, strict=True).workload
        assert urgent.job_id.tolist() == [4, 5]
        assert urgent.submit.tolist() == [30, 100]  # as it stands: time 0 is that of the workload they are merged into
        assert urgent.cpus.tolist() == [256, 128]
        assert urgent.run.tolist() == urgent.limit.tolist() == [390, 600]
        assert urgent.urgent.all()
        assert (urgent.mode == PreemptMode.NEVER).all()

    def test_malformed_lines_are_counted_and_listed(self, tmp_path: Path) -> None:
        path = tmp_path / "urgent.csv"
        path.write_text('job_id,submit,procs,runtime\n1,5\n2,5,1e9,3\n"3,5,2,3\n4,5,2,3\n')
        loaded = read_urgent(path, strict=False)
        assert loaded.workload.job_id.tolist() == [4]
        assert [place for place, _ in loaded.report.malformed] == ["line 2", "line 3", "line 4"]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("job_id,submit,procs,runtime\n1,5,x,3\n", "line 2 .column procs: 'x' is not allowed"),
            ("job_id,submit,procs\n1,5,3\n", "no column runtime; needed are job_id, submit, procs, runtime"),
            ("job_id,submit,procs,runtime\n1,5,2,3\n1,6,2,3\n", "line 3 .its job number stood in a row before"),
        ],
    )
    def test_bad_lists(self, tmp_path: Path, text: str, message: str) -> None:
        (tmp_path / "urgent.csv").write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_urgent(tmp_path / "urgent.csv", strict=True)

    @pytest.mark.parametrize(("name", "count"), [("sdsc-ds", 12), ("lanl-cm5", 23), ("sx-ace", 9)])
    def test_published_lists(self, name: str, count: int) -> None:
        urgent = published(name)
        assert len(urgent) == count
        assert set(zip(urgent.cpus.tolist(), urgent.run.tolist(), strict=True)) == set(SIZES)

    def test_no_other_list_is_published(self) -> None:
        with pytest.raises(ConfigError, match="'dwd', only for lanl-cm5, sdsc-ds, sx-ace"):
            published("dwd")


class TestMerging:
    def test_numbers_that_are_free_stay(self) -> None:
        both = with_urgent(jobs(1, 2), jobs(7))
        assert sorted(both.job_id.tolist()) == [1, 2, 7]

    def test_numbers_that_are_taken_move_together_and_can_be_read(self) -> None:
        both = with_urgent(jobs(3, 954), jobs(3, 7))
        assert sorted(both.job_id.tolist()) == [3, 954, 1003, 1007]

    def test_order_of_arrival_and_an_account_of_its_own(self) -> None:
        trace = jobs(1, 2)
        both = with_urgent(trace, published("sx-ace"))
        assert both.urgent.tolist() == [False, False] + [True] * 9
        assert [both.accounts[index] for index in both.account] == ["all"] * 2 + ["urgent"] * 9
        assert both.limit.tolist()[:3] == [inf, inf, 390.0]


class TestInjection:
    def test_utilisation_by_the_hour(self) -> None:
        outcome = ran([0, HOUR / 2, 4 * HOUR], [2 * HOUR, HOUR / 4, 1], [2, 4, 1], Machine(8))
        assert hourly_utilisation(outcome).tolist() == [0.25 + 0.5 / 4, 0.25, 0, 0]

    def test_whole_nodes_are_held(self) -> None:
        outcome = ran([0, HOUR], [HOUR, HOUR], [1, 1], Machine(8, nodes=2))
        assert hourly_utilisation(outcome).tolist() == [0.5]

    def test_only_busy_hours_one_in_each_month(self) -> None:
        # Busy: month 0 from hour 10 to 19, month 1 never, month 2 in its first hour, month 3 after the last arrival.
        starts = [10 * HOUR, MONTH, 2 * MONTH, 3 * MONTH + HOUR]
        outcome = ran(starts, [10 * HOUR, 40 * HOUR, HOUR, 50 * HOUR], [768, 767, 1000, 1024], Machine(1024))
        seen = set()
        for seed in range(40):
            first, second = injected(outcome, seed).submit.tolist()
            assert first in np.arange(10, 20) * HOUR
            assert second == 2 * MONTH
            seen.add(first)
        assert len(seen) > 5

    def test_sizes_are_of_the_table_and_fit_the_machine(self) -> None:
        busy = 20
        outcome = ran([month * MONTH for month in range(busy)], [MONTH] * busy, [300] * busy, Machine(300))
        urgent = injected(outcome, 1)
        assert len(urgent) == busy - 1
        assert set(zip(urgent.cpus.tolist(), urgent.run.tolist(), strict=True)) == set(SIZES[:2])
        assert urgent.urgent.all()
        assert (urgent.mode == PreemptMode.NEVER).all()

    def test_the_same_seed_injects_the_same(self) -> None:
        outcome = ran([0, 5 * MONTH], [5 * MONTH, 1], [512, 1], Machine(512))
        for name in ("submit", "cpus", "run", "job_id"):
            np.testing.assert_array_equal(getattr(injected(outcome, 3), name), getattr(injected(outcome, 3), name))
        assert injected(outcome, 3).submit.tolist() != injected(outcome, 4).submit.tolist()

    def test_nowhere_to_inject(self) -> None:
        with pytest.raises(ConfigError, match="utilisation is below 75% at every hour"):
            injected(ran([0, 9 * HOUR], [1, 1], [1, 1], Machine(1024)), 1)
        with pytest.raises(ConfigError, match="at least 128 CPUs, not 100"):
            injected(ran([0, 9 * HOUR], [1, 1], [1, 1], Machine(100)), 1)
