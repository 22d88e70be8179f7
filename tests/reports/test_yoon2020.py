"""Figure 8 of Yoon et al. (2020), number by number."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.reports.yoon2020.figure8 import PRINTED_SUM, START, figure8
from omfs_daemon.reports.yoon2020.real_logs import LOGS
from tests.support.traces import DIRECTORY, needs_traces

REFUSED = {"3029155", "3029182"}


@pytest.mark.parametrize("minute", range(14))
def test_eleven_jobs_fit_at_once_whenever_the_large_job_starts(minute: int) -> None:
    found = figure8(f"2016-10-17T10:{minute:02}:00")
    assert set(found.hole.queue.job_id) - set(found.accepted) == REFUSED
    assert (found.hole.first_fit == found.hole.queue.submit)[found.hole.accepted].all()


def test_both_sums() -> None:
    found = figure8()
    assert found.hole.core_hours == 121_344
    assert found.sum_with_one_wide() == PRINTED_SUM == 72_192


def test_why_two_are_refused() -> None:
    found = figure8()
    facts = {
        job: (int(hole_cores), found.inputs.written(fit), found.hole.refused_by(at))
        for at, (job, hole_cores, fit) in enumerate(
            zip(found.hole.queue.job_id, found.hole.cores_at_submit, found.hole.first_fit, strict=True)
        )
        if job in REFUSED
    }
    assert facts["3029155"] == (1146, "2016-10-17T00:00:00", "both")
    assert facts["3029182"] == (346, "2016-10-17T01:00:00", "both")


def test_four_rows_of_the_profile_differ_from_the_paper(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["experiment", "yoon2020", "--out", str(tmp_path)])
    assert result.exit_code == 0
    with (tmp_path / "figure8-profile.csv").open() as file:
        cells = list(csv.DictReader(file))
    different = {cell["time"][8:16] for cell in cells if cell["same"] == "no"}
    assert different == {"16T21:00", "16T21:52", "17T06:00", "17T09:41"}
    assert sum(cell["same"] == "yes" for cell in cells) == 160
    page = (tmp_path / "index.md").read_text()
    assert "20 of 24 rows are equal" in page
    assert "121,344" in page
    assert "(72,192)" in page


def test_a_missing_log_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    words = ["experiment", "yoon2020", "--generate", "--traces", str(tmp_path), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1 and "CEA-Curie-2011-2.1-cln.swf.gz: no such file" in result.stderr
    assert not (tmp_path / "out").exists()


def test_logs_that_are_not_where_the_environment_says_are_left_out(tmp_path: Path) -> None:
    """One of the four is there, which may have been put there for another experiment."""
    header = "; MaxProcs: 8\n"
    jobs = "".join(f"{job} {job * 1000} 5 600 4 -1 -1 4 900 -1 1 1 1 1 1 -1 -1 -1\n" for job in range(1, 40))
    with gzip.open(tmp_path / LOGS["kth-sp2"], "wt") as file:
        file.write(header + jobs)
    words = ["experiment", "yoon2020", "--out", str(tmp_path / "out")]
    result = CliRunner(env={"OMFS_TRACES": str(tmp_path)}).invoke(app, words)
    assert result.exit_code == 0, result.stderr
    page = (tmp_path / "out" / "index.md").read_text()
    others = ", ".join(file for name, file in LOGS.items() if name != "kth-sp2")
    assert f"Left out, for they do not lie where OMFS_TRACES says: {others}." in page
    assert "(kth-sp2/index.md)" in page


@needs_traces
def test_the_same_through_tables() -> None:
    """``omfs report holes`` on the figure's idle cores and jobs, as tables beside the recorded traces."""
    tables = DIRECTORY.parent / "experiments" / "yoon2020"
    command = ["report", "holes", "--json", "--start", START]
    command += ["--profile", str(tables / "figure8-profile.csv"), "--queue", str(tables / "figure8-queue.csv")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    expected = figure8().hole
    jobs = json.loads(result.output)["jobs"]
    assert [job["job_id"] for job in jobs] == list(expected.queue.job_id)
    assert {job["job_id"] for job in jobs if not job["accepted"]} == REFUSED
    assert [job["cores_at_submit"] for job in jobs] == expected.cores_at_submit.tolist()
