"""The benchmarks of urgent starts, small: every kind of start is a real one, and the figures are well-formed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gentle, latency, latency_clusters, scale
from benchmarks.latency_clusters import Start
from tests.support.waiting import LIMIT

FIGURES = ("min", "median", "p95", "max")


@pytest.mark.slurm
def test_a_small_run_starts_urgent_jobs_and_measures_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency_clusters, "LIMIT", LIMIT)
    output = tmp_path / "new" / "latency.json"
    kinds = ["native_suspend_tuned", "native_requeue_tuned", "omfs_requeue"]
    arguments = ["--repetitions", "1", "--backlog", "0,8", "--kinds", ",".join(kinds), str(output)]
    assert latency.main(arguments) == 0  # it ends with an error unless each urgent job has CPUs of its own
    rows = json.loads(output.read_text())
    sbatch = ["sbatch_alive", "sbatch_stopped", "sbatch_dead"]
    names = [(row["name"], row["backlog"]) for row in rows]
    assert names == [*((name, backlog) for backlog in (0, 8) for name in kinds), *((name, 0) for name in sbatch)]
    printed = capsys.readouterr().out
    for row in rows:
        assert row["name"] in printed
        assert 0 < row["min"] <= row["median"] <= row["p95"] <= row["max"]
        assert row["n"] == 1
        assert row["ratio_to_native_tuned"] > 0
    starts = [row for row in rows if row["name"] not in sbatch]
    assert all(row["ratio_to_native_tuned"] == 1 for row in starts if row["name"].startswith("native"))
    for row in starts:
        parts = latency.PARTS if row["name"].startswith("omfs") else ("submit", "slurm")
        assert tuple(row["split"]) == parts
        assert sum(row["split"].values()) == pytest.approx(row["median"], abs=0.001), "it is one start"


@pytest.mark.slurm
def test_a_short_run_counts_calls_on_both_clusters(tmp_path: Path) -> None:
    output = tmp_path / "gentle.json"
    assert gentle.main(["--seconds", "6", "--backlog", "4", str(output)]) == 0
    found = json.loads(output.read_text())
    submissions = len(list(gentle.workload(6)))
    for row in (found["with"], found["without"]):
        assert row["by_kind"]["REQUEST_SUBMIT_BATCH_JOB"] == submissions > 0
        assert sum(row["by_kind"].values()) == row["calls"] > 0
        assert row["cpu_seconds"] > 0
    assert found["with"]["by_kind"]["REQUEST_JOB_INFO"] > found["without"]["by_kind"].get("REQUEST_JOB_INFO", 0)
    assert found["with"]["polls"] > 0 and found["with"]["omfsd_cpu_seconds"] > 0


@pytest.mark.slurm
def test_a_small_site_is_measured_on_the_fake_and_on_a_real_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency_clusters, "LIMIT", LIMIT)
    monkeypatch.setattr(scale, "IDLE", 1.0)
    output = tmp_path / "scale.json"
    arguments = ["--nodes", "3", "--waiting", "8", "--seconds", "1", "--fake", "20,50,60", str(output)]
    assert scale.main(arguments) == 0
    fake, real = json.loads(output.read_text())
    assert (fake["name"], fake["nodes"], fake["waiting"]) == ("fake", 20, 50)
    assert 0 < fake["cycle_cpu_s"] <= fake["cycle_max_cpu_s"]
    assert fake["urgent_start_cpu_s"] > 0 and fake["calls_per_cycle"] >= 1
    assert (real["name"], real["nodes"], real["waiting"]) == ("real", 3, 8)
    assert real["urgent"] == 1 and 0 < real["urgent_s"] == real["urgent_max_s"] < LIMIT
    assert real["cycles"] > 0 and 0 < real["observe_s"] + real["decide_s"] <= 2 * real["cycle_max_s"]
    assert real["calls_per_second"] > real["idle_calls_per_second"] >= 0
    assert 0 < real["rss_mb_before"] <= real["rss_mb_max"]


def test_figures_are_of_all_starts_and_ratios_of_medians() -> None:
    found = latency.summary([float(number) for number in range(20, 0, -1)])
    assert found == {"n": 20, "min": 1, "median": 10.5, "p95": 19, "max": 20}
    rows = [
        {"name": "native_requeue_tuned", "backlog": 0, "median": 2.0, "max": 4.0},
        {"name": "omfs_requeue", "backlog": 0, "median": 1.0, "max": 5.0},
        {"name": "omfs_suspend", "backlog": 0, "median": 1.0, "max": 5.0},
    ]
    ratios = [(row["ratio_to_native_tuned"], row["max_ratio_to_native_tuned"]) for row in latency.compared(rows)]
    assert ratios == [(1, 1), (0.5, 1.25), (None, None)]


def test_parts_are_of_the_cycle_that_began_the_preemption() -> None:
    start = Start(7, 100.0, 100.02, 100.5)
    quiet = {
        "woken": None,
        "polled": 100.005,
        "observed": 100.01,
        "decided": 100.02,
        "ordered": 100.03,
        "preemptions": 0,
    }
    acting = {
        "woken": 100.05,
        "polled": 100.06,
        "observed": 100.1,
        "decided": 100.11,
        "ordered": 100.2,
        "preemptions": 1,
    }
    later = {"woken": None, "polled": 101.0, "observed": 101.1, "decided": 101.2, "ordered": 101.3, "preemptions": 1}
    parts = latency.parts_of(start, [quiet, acting, later])
    assert parts == pytest.approx(
        {"submit": 0.05, "wake": 0.01, "poll": 0.04, "decide": 0.01, "command": 0.09, "slurm": 0.3}
    )
    assert latency.parts_of(start, [quiet, later]) == {}
