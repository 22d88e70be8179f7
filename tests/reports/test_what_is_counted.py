"""Of which jobs, runs, and cores figures of ``omfs report`` are, and how they are shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from rich.console import Console
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.cli.report_tables import report_summary_tables
from tests.reports.test_report_groups import BEGIN, saved

END = BEGIN + 3660
"""Of ``saved`` jobs."""

PENDING = {"Start": "Unknown", "End": "Unknown", "ElapsedRaw": 0, "AllocCPUS": 0, "State": "PENDING"}
RUNNING = {"End": "Unknown", "ElapsedRaw": 240, "TimelimitRaw": 600, "State": "RUNNING"}
SWF = "; MaxProcs: 4\n1 0 0 3600 2 -1 -1 2 3600 -1 1 1 1 1 1 1 -1 -1\n2 2700 0 900 4 -1 -1 4 900 -1 1 1 1 1 1 1 -1 -1\n"


def log_of(directory: Path, *lines: str) -> Path:
    path = directory / "jobs.sacct"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def shown(*words: object) -> str:
    result = CliRunner().invoke(app, ["report", *map(str, words)])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def answered(*words: object) -> dict[str, Any]:
    return json.loads(shown(*words, "--json"))  # type: ignore[no-any-return]


def test_jobs_that_still_run_have_no_run_time(tmp_path: Path) -> None:
    log = log_of(tmp_path, saved(1), saved(2), *(saved(job, **RUNNING, TotalCPU="00:00:01") for job in (3, 4)))
    found = answered("--log", log, "--by", "length")
    summary = found["summary"]
    assert (summary["started"], summary["ended"]) == (4, 2)
    waits = [{name: row[name] for name in ("value", "jobs", "mean_run")} for row in found["waits"]]
    assert waits == [
        {"value": "", "jobs": 4, "mean_run": 3600.0},
        {"value": "1 min to 1 h", "jobs": 2, "mean_run": 3600.0},
        {"value": "unknown", "jobs": 2, "mean_run": None},
    ]
    assert [row["mean_bounded_slowdown"] for row in found["waits"]] == [pytest.approx(3660 / 3600)] * 2 + [None]
    used = found["efficiency"][0]
    assert (used["jobs"], used["limit_used_median"], used["under_10_percent"]) == (2, 0.5, 0)
    assert used["cpu_efficiency"] is None
    screen = shown("--log", log, "--out", tmp_path / "out")
    page = (tmp_path / "out" / "index.md").read_text()
    assert "2 jobs that ran and have ended" in screen and "2 jobs that ran and have ended" in page


def test_a_job_that_waits_again_and_is_canceled_has_no_run_time(tmp_path: Path) -> None:
    again = {"Submit": BEGIN + 900, "Start": "Unknown", "End": BEGIN + 990, "ElapsedRaw": 0, "State": "CANCELLED"}
    log = log_of(tmp_path, saved(1), saved(2, End=BEGIN + 900, ElapsedRaw=840, State="REQUEUED"), saved(2, **again))
    found = answered("--log", log)["summary"]
    assert (found["started"], found["ended"], found["waits"]["mean_run"]) == (2, 1, 3600.0)
    assert found["waits"]["mean_bounded_slowdown"] == pytest.approx(3660 / 3600)


def test_the_wait_from_eligibility_is_of_jobs_that_started(tmp_path: Path) -> None:
    log = log_of(tmp_path, saved(1), saved(2, Eligible="Unknown"), saved(3, **PENDING))
    assert answered("--log", log)["summary"]["jobs_with_eligible_time"] == 1
    assert "1 jobs that started say from when" in shown("--log", log, "--out", tmp_path / "out")
    assert "1 jobs that started say from when" in (tmp_path / "out" / "index.md").read_text()


def test_ends_in_the_summary_are_those_of_the_runs_that_ended(tmp_path: Path) -> None:
    """Job 1 was submitted before the period, job 3 ends after it, and job 4 ran twice."""
    lines = [
        saved(1, Submit=BEGIN - 7200, State="TIMEOUT"), saved(2), saved(3, Start=END - 9, End=END + 900),
        saved(4, End=BEGIN + 900, ElapsedRaw=840, State="REQUEUED"),
        saved(4, Submit=BEGIN + 900, Start=BEGIN + 900, State="FAILED"), saved(5, State="FAILED"),
    ]  # fmt: skip
    since, until = (datetime.fromtimestamp(time, UTC).isoformat() for time in (BEGIN - 60, END + 60))
    words = ("--log", log_of(tmp_path, *lines), "--since", since, "--until", until)
    found = answered(*words)
    assert found["summary"]["ends"] == {"FAILED": 2, "COMPLETED": 1, "REQUEUED": 1, "TIMEOUT": 1}
    assert sum(row["jobs"] for row in found["ends"]) == 5
    assert shown(*words).splitlines()[-1] == "ends of runs: FAILED 2, COMPLETED 1, REQUEUED 1, TIMEOUT 1"
    assert shown("--log", log_of(tmp_path, saved(1, **RUNNING))).splitlines()[-1] == "ends of runs: none in the period"


def test_a_job_of_the_last_moment_counts(tmp_path: Path) -> None:
    at_once = {"Start": END + 5, "End": END + 5, "ElapsedRaw": 0}
    last = [saved(2, Submit=END + 5, Eligible=END + 5, **other) for other in (PENDING, at_once)]
    before = answered("--log", log_of(tmp_path, saved(1)))["summary"]
    for line, started in zip(last, (1, 2), strict=True):
        log = log_of(tmp_path, saved(1), line)
        found = answered("--log", log)
        assert (found["summary"]["jobs"], found["summary"]["started"]) == (2, started)
        assert found["months"][0]["jobs"] == 2
        idle = found["summary"]["idle_core_hours"]
        assert idle == pytest.approx(before["idle_core_hours"] + 5 * 4 / 3600)
        until = datetime.fromtimestamp(END + 5, UTC).isoformat()
        assert answered("--log", log, "--until", until)["summary"]["jobs"] == 1, "up to then, not with it"


def test_the_size_is_the_headers_and_what_is_used_beyond_is_said(tmp_path: Path) -> None:
    log = tmp_path / "small.swf"
    log.write_text(SWF)
    note = (
        "the log uses more than 4 cores (as the log's header says) in 25.0 % of the time, up to 6; utilization counts "
        "the used ones as available"
    )
    found = answered("--log", log, "--out", tmp_path / "out")
    assert (found["summary"]["cores"], found["summary"]["cores_source"]) == (4, "as the log's header says")
    assert found["sources"]["notes"] == [note]
    assert found["summary"]["available_core_hours"] == pytest.approx(0.75 * 4 + 0.25 * 6)
    assert note in shown("--log", log)
    assert f"T{note[1:]}." in (tmp_path / "out" / "index.md").read_text()
    log.write_text(SWF.replace("MaxProcs: 4", "MaxProcs: 6"))
    assert answered("--log", log)["sources"]["notes"] == []


def test_the_size_of_mira_is_not_the_headers(tmp_path: Path) -> None:
    log = tmp_path / "mira.csv"
    log.write_text("job,user,project,node_num,submit_time,run_time,wall_time,wait_time\n1,1,1,512,0,900,900,0\n")
    found = answered("--log", log)["summary"]
    assert (found["cores"], found["cores_source"]) == (49152, "as Mira has, after which the file is named")


ZONE = "Asia/Tokyo"
WRITTEN = datetime.fromtimestamp(BEGIN, ZoneInfo(ZONE)).strftime("%Y-%m-%dT%H:%M")


@pytest.mark.parametrize("figure", ["summary", "idle", "holes"])
def test_times_on_the_screen_are_of_the_zone_asked_for(tmp_path: Path, figure: str) -> None:
    """The hole is from an hour before to ``BEGIN``, at which job 2 starts."""
    before = {"Submit": BEGIN - 3600, "Eligible": BEGIN - 3600}
    first = saved(1) if figure != "holes" else saved(1, **before, Start=BEGIN - 3600, End=BEGIN)
    second = saved(2) if figure != "holes" else saved(2, **before, Start=BEGIN, AllocCPUS=8)
    words = (figure, "--log", log_of(tmp_path, first, second), "--timezone", ZONE, "--large", 4)
    assert WRITTEN in shown(*words)
    if figure == "holes":
        assert "as they ran" in shown(*words)
        behind = saved(3, **before, Start=BEGIN)
        assert "T06:13" in shown(*words[:2], log_of(tmp_path, first, second, behind), *words[3:], "--job", 2)


def test_what_sreport_says_is_of_the_zone_asked_for(tmp_path: Path) -> None:
    found = answered("--log", log_of(tmp_path, saved(1)))["summary"]
    found["sreport"] = {"begin": BEGIN, "end": BEGIN + 3600, "utilisation": 0.5, "ours": 0.5}
    console = Console(width=160)
    with console.capture() as capture:
        console.print(*report_summary_tables(found, ZoneInfo(ZONE)))
    assert f"{WRITTEN} to " in capture.get()


def test_core_hours_as_they_ran_stand_beside_those_of_preemptible_jobs(tmp_path: Path) -> None:
    """Four of eight cores are idle for an hour before job 2; job 3, of a limit of 30 min, would run 15 min there."""
    before = {"Submit": BEGIN - 3600, "Eligible": BEGIN - 3600}
    lines = [
        saved(1, **before, Start=BEGIN - 3600, End=BEGIN), saved(2, **before, Start=BEGIN, AllocCPUS=8),
        saved(3, **before, Start=END, End=END + 900, ElapsedRaw=900, TimelimitRaw=30),
    ]  # fmt: skip
    screen = shown("holes", "--log", log_of(tmp_path, *lines), "--large", 4, "--out", tmp_path / "out")
    row = next(line for line in screen.splitlines() if line.startswith("│ 2 "))
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[-6:] == ["1", "2.0", "50.0 %", "1.0", "1.0", "0"]
    page = (tmp_path / "out" / "index.md").read_text()
    assert "| their core hours | filled | as they ran | if preemptible | stops |" in page
    assert "| 2.00 | 50.0 % | 1.00 | 1.00 | 0 |" in page
