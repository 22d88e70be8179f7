"""Users, names, and arrays in ``omfs report``: who may see whom, and what is one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from omfs_daemon.accounting.asked_steps import step_use, with_step_use
from omfs_daemon.accounting.read_log import LogOptions, read_log
from omfs_daemon.accounting.sacct_rows import FULL_FIELDS
from omfs_daemon.cli.main import app
from omfs_daemon.reports.end_figures import EFFICIENCY_COLUMNS, efficiency_rows
from omfs_daemon.reports.log_report import log_report
from omfs_daemon.reports.machine_use import MachineSize

BEGIN = 1_700_000_000


def saved(job: int, **other: object) -> str:
    """A line of sacct: an hour on 4 cores."""
    fields = dict.fromkeys(FULL_FIELDS, "") | {
        "JobIDRaw": job, "JobID": job, "User": "ann", "Account": "a", "Partition": "main", "QOS": "normal",
        "Submit": BEGIN, "Eligible": BEGIN, "Start": BEGIN + 60, "End": BEGIN + 3660, "ElapsedRaw": 3600,
        "TimelimitRaw": 120, "ReqCPUS": 4, "AllocCPUS": 4, "AllocNodes": 1, "State": "COMPLETED", "ExitCode": "0:0",
        "NodeList": "n1", "JobName": "run",
    }  # fmt: skip
    return "|".join(str(value) for value in (fields | other).values())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.sacct"
    lines = [
        saved(1), saved(2, User="bob", State="FAILED", ExitCode="1:0", JobName="bad"),
        saved(3, User="bob", State="TIMEOUT", JobName="=bad()", AllocCPUS=8), saved(4, User="cem", JobName="bad"),
        *(saved(10 + task, JobID=f"10_{task}", JobName="many", User="cem") for task in range(5)),
    ]  # fmt: skip
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def rows_of(log: Path, by: str) -> dict[str, list[dict[str, object]]]:
    result = CliRunner().invoke(app, ["report", "--log", str(log), "--by", by, "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def jobs_by(found: dict[str, list[dict[str, object]]], table: str, group: str) -> dict[object, object]:
    return {row["value"]: row["jobs"] for row in found[table] if row["group"] == group}


def test_users_appear_by_name_to_operators_and_themselves_only(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("waits", "efficiency"):
        assert jobs_by(rows_of(log, "user"), table, "user") == {"ann": 1, "bob": 2, "cem": 6}
    monkeypatch.setattr("omfs_daemon.cli.named_user.user_name", lambda uid: "bob")
    monkeypatch.setattr("omfs_daemon.cli.named_user.operators", lambda own, group: lambda peer: False)
    found = rows_of(log, "user")
    for table in ("waits", "efficiency"):
        assert jobs_by(found, table, "user") == {"bob": 2, "other users (2)": 7}
    assert jobs_by(found, "lost", "user") == {"bob": 2}
    monkeypatch.setattr("omfs_daemon.cli.named_user.user_name", lambda uid: "cem")
    assert jobs_by(rows_of(log, "user"), "lost", "user") == {"other users (1)": 2}


def test_an_array_is_one_line(log: Path) -> None:
    found = rows_of(log, "array,name")
    for table in ("waits", "efficiency"):
        assert jobs_by(found, table, "array") == {"10": 5}
        assert jobs_by(found, table, "name") == {"run": 1, "bad": 2, "=bad()": 1, "many": 5}


def test_names_and_users_of_what_was_lost(log: Path, tmp_path: Path) -> None:
    found = rows_of(log, "size")["lost"]
    # 12 of the 40 core hours of all runs.
    assert found == [
        {"group": "name", "value": "=bad()", "jobs": 1, "core_hours": 8.0, "share": 0.2},
        {"group": "name", "value": "bad", "jobs": 1, "core_hours": 4.0, "share": 0.1},
        {"group": "user", "value": "bob", "jobs": 2, "core_hours": 12.0, "share": pytest.approx(0.3)},
    ]
    CliRunner().invoke(app, ["report", "ends", "--log", str(log), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out" / "months.png").exists(), "one month cannot be compared"
    assert (tmp_path / "out" / "lost.csv").read_text().splitlines()[1] == "name,'=bad(),1,8,0.2"


def test_as_many_names_and_users_of_what_was_lost_as_asked_for(log: Path, tmp_path: Path) -> None:
    words = ["report", "ends", "--log", str(log), "--top", "1"]
    result = CliRunner().invoke(app, [*words, "--json", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.stderr
    expected = [("name", "=bad()"), ("user", "bob")]
    assert [(row["group"], row["value"]) for row in json.loads(result.stdout)["lost"]] == expected
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["lost"] == json.loads(result.stdout)["lost"]
    lost = (tmp_path / "out" / "lost.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lost] == ["group", "name", "user"]
    assert "| bad |" not in (tmp_path / "out" / "index.md").read_text()
    ten = rows_of(log, "size")["lost"]
    assert [row["value"] for row in ten] == ["=bad()", "bad", "bob"], "ten by default"


def test_gpus_held_without_use(tmp_path: Path) -> None:
    """An hour each: two GPUs of one type, which a step used; three of two types, never used; one nobody measured."""
    path = tmp_path / "gpus.sacct"
    lines = [
        saved(1, AllocTRES="billing=4,cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8G"),
        saved(2, AllocTRES="cpu=4,gres/gpu:a100=1,gres/gpu:h100=2", Account="b"),
        saved(3, AllocTRES="cpu=4,gres/gpu=1", Account="b"), saved(4, AllocTRES="cpu=4", Account="c"),
    ]  # fmt: skip
    path.write_text("".join(f"{line}\n" for line in lines))
    records = read_log(path, LogOptions())
    steps = [f"{job}.0|1|00:00:01|1M|gres/gpuutil={use}\n" for job, use in ((1, 0), (2, 0), (4, 0))]
    steps.append("1.1|1|00:00:01|1M|gres/gpuutil=55\n")
    for asked, unused in (([], (None, None, None, None)), (steps, (3.0, 3.0, 0.0, None))):
        report = log_report(with_step_use(records, step_use(asked)), MachineSize(100, "by hand"))
        found = [dict(zip(EFFICIENCY_COLUMNS, row, strict=True)) for row in efficiency_rows(report, ("account",))]
        rows = {row["value"]: (row["gpu_hours"], row["unused_gpu_hours"]) for row in found}
        hours = {"": 6.0, "b": 4.0, "a": 2.0, "c": None}
        assert rows == {value: (hours[value], one) for value, one in zip(hours, unused, strict=True)}
