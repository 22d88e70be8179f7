"""What omfs simulate and omfs sweep write of real-time jobs."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.policy.rules.slowdown_laws import CATEGORIES

pytestmark = pytest.mark.usefixtures("compiled")

# Job 3 is due after 10 % of its limit, and takes the place of job 2; job 4 fits no place.
TABLE = """\
# cpus: 6
job_id,submit,cpus,run,limit,class
1,0,4,10000,10000,regular
2,0,2,10000,10000,regular
3,100,2,1000,1000,realtime
4,200,5,10,10,regular
"""
OPTIONS = ("--layout", "aligned:1", "--memory-per-cpu", "312.5e6", "--act-at", "wide-short=1.1", "--bound", "600")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


def omfs(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_real_time_jobs_are_reported_beside_the_others(table: Path, tmp_path: Path) -> None:
    printed = omfs("simulate", "--policy", "wcjs", "--trace", table, "--out", tmp_path, *OPTIONS, "--scheme", "sys:50")
    jobs = pl.read_csv(tmp_path / "jobs.csv")
    assert jobs["realtime"].to_list() == [0, 0, 1, 0]
    assert jobs["category"].to_list() == ["wide-long", "wide-long", "wide-short", "wide-short"]
    # 10 s for each checkpoint: at 200 s, the third of job 2 has just been written, and 20 s of work are lost.
    assert jobs["starting_time"].fill_null(-1).to_list() == pytest.approx([0.0, 0.0, 200.0, -1])
    assert jobs["preemptions"].to_list() == [0, 1, 0, 0]
    assert jobs["lost_seconds"].to_list() == pytest.approx([0.0, 20.0, 0.0, 0.0])
    assert jobs["checkpoint_seconds"][1] == pytest.approx(199 * 10.0)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["rejected"] == 1
    assert "refused as wider than the largest place (--layout): 1" in summary["conventions"]
    assert (summary["bound"], summary["bound_kept"]) == (1.2, 1.0)
    assert summary["realtime"]["jobs"] == 1
    assert summary["realtime"]["slowdown"]["mean"] == pytest.approx(1.1)
    assert list(summary["batch"]["turnaround"]) == ["mean", "median", "p5", "p25", "p75", "p95", "max"]
    assert list(summary["categories"]) == list(CATEGORIES)
    assert summary["categories"]["wide-long"]["batch"]["jobs"] == 2
    assert summary["productive_utilisation"] < summary["utilisation"]
    assert "100.0% of the real-time jobs kept 1.2" in printed


def test_without_real_time_jobs_there_is_nothing_of_them(table: Path, tmp_path: Path) -> None:
    table.write_text(TABLE.replace("realtime", "regular"))
    omfs("simulate", "--policy", "wcjs", "--trace", table, "--out", tmp_path, *OPTIONS)
    assert pl.read_csv(tmp_path / "jobs.csv").columns[-1] == "account"
    assert not {"realtime", "batch", "categories", "bound_kept"} & set(
        json.loads((tmp_path / "summary.json").read_text())
    )


def test_a_sweep_crosses_shares_and_schemes(table: Path, tmp_path: Path) -> None:
    omfs(
        "sweep", "--policy", "easy", "--policy", "wcjs", "--trace", table, "--out", tmp_path,
        "--realtime-share", "0.25", "--realtime-share", "0.5", "--layout", "aligned:1",
        "--scheme", "jit", "--scheme", "none",
    )  # fmt: skip
    rows = pl.read_csv(tmp_path / "results.csv")
    assert list(zip(rows["policy"], rows["scheme"], strict=True)) == [
        ("easy", None),
        ("easy", None),
        *(("wcjs", "jit"), ("wcjs", "none")) * 2,
    ]
    assert rows["realtime_jobs"].to_list()[:2] == [1, 2]
    assert rows["quantum"].null_count() == 6


def test_a_wrong_option_is_one_line(table: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app,
        ["simulate", "--policy", "wcjs", "--trace", str(table), "--out", str(tmp_path / "new"), "--scheme", "app:0"],
    )
    assert done.exit_code == 2
    assert "--scheme 'app:0': must be none, jit, sys:SECONDS" in done.output
