"""``omfs optimum`` as people and scripts call it."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from omfs_daemon.cli.main import app

HEADER = "job_id,submit,cpus,run,class\n"
STOPPED = HEADER + "1,0,3,6000,regular\n2,1200,4,600,realtime\n"
ALIGNED = ("--procs", "4", "--layout", "aligned:1")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "small.csv"
    path.write_text(STOPPED)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "result"


def run(trace: Path, out: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["optimum", "--trace", str(trace), "--out", str(out), *words])


def one_line(result: Result, said: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_schedule_and_the_figures_are_written(trace: Path, out: Path) -> None:
    result = run(trace, out, *ALIGNED, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads((out / "optimum.json").read_text())
    assert json.loads(result.stdout) == figures
    # 3 CPUs write 48 GB at 3/128 * 4 GB/s: 512 s, in ticks 540 s, for each part.
    assert figures["batch_sd"] == pytest.approx((6000 + 600 + 1080) / 6000)
    assert (figures["realtime_sd"], figures["status"], figures["stops"], figures["limit"]) == (1.0, "optimal", 1, 1.2)
    assert figures["bound"] == pytest.approx(figures["batch_sd"], abs=1e-4)
    with (out / "schedule.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["job_id", "part", "place", "start", "end", "overhead"]
    assert [(row["job_id"], row["part"], row["place"], row["overhead"]) for row in rows] == [
        ("1", "1", "0-3", "540"),
        ("1", "2", "0-3", "540"),
        ("2", "1", "0-3", "0"),
    ]


def test_a_file_with_a_column_log_is_solved_log_by_log(trace: Path, out: Path) -> None:
    trace.write_text("log,job_id,submit,cpus,run,class\nb,1,0,1,600,\na,1,0,4,600,realtime\na,2,0,4,600,realtime\n")
    result = run(trace, out, *ALIGNED)
    assert result.exit_code == 0, result.output
    assert "log b: no real-time jobs: their limit is left out" in result.stdout
    assert "log a: a limit of 1.2 cannot be held; the least that can is 1.5" in result.stdout
    figures = json.loads((out / "optimum.json").read_text())
    assert [(row["log"], row["batch_sd"], row["limit"]) for row in figures["logs"]] == [
        ("b", 1.0, None),
        ("a", None, 1.5),
    ]
    assert figures["proven"] == 2
    with (out / "schedule.csv").open() as file:
        assert [row["log"] for row in csv.DictReader(file)] == ["b", "a", "a"]


def test_more_than_twelve_jobs_need_force(trace: Path, out: Path) -> None:
    trace.write_text(HEADER + "".join(f"{number},0,1,60,\n" for number in range(1, 14)))
    one_line(run(trace, out, *ALIGNED), "13 jobs, at most 12 are allowed without --force: the time to prove an optimum")
    assert not out.exists()
    assert run(trace, out, *ALIGNED, "--force", "--seconds", "5").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--procs", "4", "--layout", "aligned:0"), "--layout 'aligned:0' is not allowed"),
        (("--procs", "4", "--layout", "flat"), "--layout 'flat' is not allowed"),
        (("--procs", "4", "--layout", "aligned:3"), "--layout aligned:3: 4 CPUs are no multiple of 3"),
        (("--procs", "2", "--layout", "aligned:1"), "job 1: no place of the machine of 2 CPUs holds 3"),
        ((*ALIGNED, "--limit", "0.9"), "--limit 0.9 is not allowed, only 1 to 2"),
        ((*ALIGNED, "--stops", "2"), "--stops 2 is not allowed, only 0 or 1"),
        ((*ALIGNED, "--seconds", "0"), "--seconds 0 is not allowed"),
        ((*ALIGNED, "--tick", "0"), "--tick 0 is not allowed"),
    ],
)
def test_bad_options_are_one_line(trace: Path, out: Path, words: tuple[str, ...], said: str) -> None:
    one_line(run(trace, out, *words), said)
    assert not out.exists()


def test_an_unknown_class_is_one_line(trace: Path, out: Path) -> None:
    trace.write_text(HEADER + "1,0,1,60,urgent\n")
    one_line(run(trace, out, *ALIGNED), "'urgent' is not allowed, only one of regular, realtime")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, trace: Path, out: Path) -> None:
    monkeypatch.setitem(sys.modules, "ortools", None)
    one_line(run(trace, out, *ALIGNED), "an optimum needs ortools: pip install 'omfs-daemon[optimum]'")
