"""Figures of a log: what must always hold, figures by hand, and one workload in several formats."""

from __future__ import annotations

import csv
import json
import random
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.job_records import record_frame, with_runs
from omfs_daemon.cli.main import app
from omfs_daemon.errors import ConfigError
from omfs_daemon.reports.machine_use import Down, MachineSize, machine_use
from omfs_daemon.reports.page_parts import html_page, markdown_page

CORES = 10
JOBS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(0, 30), st.integers(0, 30), st.integers(1, 8),
              st.sampled_from(["", "", "AssocGrpCpuLimit"]), st.booleans()),
    min_size=1, max_size=12,
)  # fmt: skip
DOWNS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(1, 4)), max_size=3)

Job = tuple[int, int, int, int, int, str, bool]


def frame_of(jobs: list[Job]) -> pl.DataFrame:
    """submit, seconds to eligibility, then to the start, then to the end, cores, reason, whether it ever ran"""
    raw = pl.DataFrame(
        {
            "place": list(range(len(jobs))),
            "job_id": [str(number) for number in range(len(jobs))],
            "submit": [float(job[0]) for job in jobs],
            "eligible": [float(job[0] + job[1]) for job in jobs],
            "start": [float(sum(job[:3])) if job[6] else None for job in jobs],
            "end": [float(sum(job[:4])) for job in jobs],
            "cpus": [job[4] for job in jobs],
            "reason": [job[5] for job in jobs],
        },
        schema_overrides={"start": pl.Float64},
    )
    frame, wrong = with_runs(record_frame({name: pl.col(name) for name in raw.columns}, raw), frozenset())
    assert not wrong
    return frame


@given(JOBS, DOWNS, st.sampled_from([None, CORES]))
def test_every_core_is_used_down_or_idle_for_one_reason(
    jobs: list[Job], downs: list[tuple[int, int, int]], cores: int | None
) -> None:
    down = [Down(begin, begin + seconds, number) for begin, seconds, number in downs]
    use = machine_use(frame_of(jobs), 5.0, 90.0, MachineSize(cores, "test"), 3, down)
    assert (use.used + use.idle + use.down == use.available).all()
    assert (sum(use.heaps.values()) == use.idle).all()
    assert all((heap >= 0).all() for heap in use.heaps.values())
    assert (np.diff(use.time) > 0).all()
    assert (use.time[0], use.seconds.sum()) == (5.0, 85.0)
    for at, moment in enumerate(use.time.tolist()):
        started = [job for job in jobs if job[6] and sum(job[:3]) <= moment < sum(job[:4])]
        waiting = [job for job in jobs if job[0] <= moment < sum(job[: 3 if job[6] else 4])]
        assert use.used[at] == sum(job[4] for job in started)
        assert (use.waiting[at], use.pending[at]) == (len(waiting), sum(job[4] for job in waiting))


def test_each_heap_by_hand() -> None:
    """Ten cores: 0-10 nobody waits; 10-20 a held job of 4; 20-30 it waits at its account's limit; then a job of 8 waits
    beside one of 6 that runs: 30-40 alone, 40-50 with a job of 2 behind it, which starts after it."""
    frame = frame_of(
        [
            (10, 10, 10, 1, 4, "QOSMaxCpuPerUserLimit", True),
            (31, 0, 0, 29, 6, "", True),
            (31, 0, 29, 5, 8, "", True),
            (40, 0, 25, 5, 2, "", True),
        ]
    )
    use = machine_use(frame, 0.0, 70.0, MachineSize(CORES, "test"), 5)
    edges = np.array([0.0, 10, 20, 30, 31, 40, 50])
    found = {name: use.between(heap, edges).tolist() for name, heap in use.heaps.items()}
    assert found["nobody_waits"] == [100, 60, 60, 6 + 0, 0, 0]
    assert found["dependent"] == [0, 40, 0, 0, 0, 0]
    assert found["limited"] == [0, 0, 40, 0, 0, 0]
    assert found["does_not_fit"] == [0, 0, 0, 0, 36, 20]
    assert found["kept_for_large"] == [0, 0, 0, 0, 0, 20]


@pytest.mark.parametrize("size", [MachineSize(None, "test"), MachineSize(CORES, "test")], ids=["by week", "given"])
@pytest.mark.parametrize("jobs", [2, 150])
def test_more_cores_at_a_time_than_any_machine_has_are_refused(size: MachineSize, jobs: int) -> None:
    """Of a log with broken times; 150 such jobs are beyond 32 bits."""
    frame = frame_of([(0, 0, 0, 10, 1, "", True)] * jobs).with_columns(cpus=pl.lit(bounds.CPUS))
    said = f"the log uses {jobs * bounds.CPUS:,} cores at a time: must be at most 20,000,000"
    with pytest.raises(ConfigError, match=said):
        machine_use(frame, 0.0, 20.0, size, 5)
    one = frame.head(1)
    assert machine_use(one, 0.0, 20.0, size, 5).used.max() == bounds.CPUS


def test_no_machine_has_so_many_cores_as_asked_for() -> None:
    frame = frame_of([(0, 0, 0, 10, 1, "", True)])
    with pytest.raises(ConfigError, match="--procs = 20,000,001: must be at most 20,000,000"):
        machine_use(frame, 0.0, 20.0, MachineSize(bounds.CPUS + 1, "test", is_asked=True), 5)


# -- through the command ----------------------------------------------------------------------------------------------

BEGIN = 1_700_000_000


def workload(count: int = 60) -> list[dict[str, int]]:
    chance = random.Random(3)
    jobs = []
    for number in range(1, count + 1):
        submit = BEGIN + chance.randrange(40_000)
        start = submit + chance.randrange(9_000)
        jobs.append(
            {"job": number, "submit": submit, "start": start, "end": start + chance.randrange(60, 9_000),
             "cpus": chance.choice([1, 2, 4, 16])}
        )  # fmt: skip
    return sorted(jobs, key=lambda job: job["submit"])


def stamp(time: int) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y%m%d%H%M%S")


def as_native(job: dict[str, int]) -> str:
    head = f"all.q:n1:users:alice:run:{job['job']}:sge:0:{job['submit']}:{job['start']}:{job['end']}:0:0"
    return f"{head}:{'0:' * 18}NONE:d:NONE:{job['cpus']}:0:5:0.1:0:-l h_rt=9000:0:NONE:1024:0:0"


def as_converted(job: dict[str, int]) -> str:
    dates = ",".join(stamp(job[name]) for name in ("submit", "start", "end"))
    wait, run = job["start"] - job["submit"], job["end"] - job["start"]
    head = f"20231114,{job['job']},g,alice,run,all.q,{dates},{wait},{run},{job['cpus']},5,1,1,D"
    return f"{head},{job['cpus']},{run * job['cpus']},0,0,1,0"


def as_sacct(job: dict[str, int]) -> str:
    run = job["end"] - job["start"]
    times = f"{job['submit']}|{job['start']}|{job['end']}|{run}|150|{job['cpus']}"
    return f"{job['job']}|{job['job']}|{times}|sge|all.q|d|COMPLETED|a|b"


def as_simulated(job: dict[str, int]) -> str:
    times = f"{job['submit']},{job['cpus']},9000,COMPLETED_SUCCESSFULLY,{job['start']}"
    return f"{job['job']},{times},{job['end'] - job['start']},{job['end']},sge"


SIMULATED = (
    "job_id,submission_time,requested_number_of_resources,requested_time,final_state,starting_time,"
    "execution_time,finish_time,account"
)
FORMATS = {
    "accounting": ("", as_native),
    "converted.log": ("", as_converted),
    "jobs.sacct": ("", as_sacct),
    "jobs.csv": (SIMULATED, as_simulated),
}


def saved(directory: Path, name: str, jobs: list[dict[str, int]]) -> Path:
    header, line = FORMATS[name]
    path = directory / name
    path.write_text("".join(f"{text}\n" for text in ([header] if header else []) + [line(job) for job in jobs]))
    return path


def report(*words: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, words), "--timezone", "UTC"])


def answered(*words: object) -> dict[str, object]:
    result = report(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", FORMATS)
def test_one_workload_in_every_format(tmp_path: Path, name: str) -> None:
    jobs = workload()
    found = answered("--log", saved(tmp_path, name, jobs), "--procs", 300, "--lengths", "real", "--by", "size")
    waits = np.array([job["start"] - job["submit"] for job in jobs])
    summary = found["summary"]
    assert isinstance(summary, dict)
    assert summary["waits"]["mean"] == pytest.approx(waits.mean())
    assert summary["waits"]["p95"] == pytest.approx(np.percentile(waits, 95))
    work = sum((job["end"] - job["start"]) * job["cpus"] for job in jobs)
    span = max(job["end"] for job in jobs) - jobs[0]["submit"]
    assert summary["utilisation"] == pytest.approx(work / 300 / span)
    assert sum(month["jobs"] for month in found["months"]) == len(jobs)  # type: ignore[attr-defined]
    turned = saved(tmp_path, name, jobs[::-1])
    again = answered("--log", turned, "--procs", 300, "--lengths", "real", "--by", "size")
    assert {key: again[key] for key in again if key != "sources"} == {
        key: found[key] for key in found if key != "sources"
    }


def test_a_job_of_the_first_second_counts(tmp_path: Path) -> None:
    jobs = workload()
    jobs[0]["start"] = jobs[0]["end"] = jobs[0]["submit"]
    found = answered("--log", saved(tmp_path, "jobs.sacct", jobs), "--procs", 300)
    summary = found["summary"]
    assert isinstance(summary, dict)
    assert summary["started"] == len(jobs)


def test_files_sum_up(tmp_path: Path) -> None:
    later = BEGIN + 40 * 86400
    in_another_month = {"job": 1000, "submit": later, "start": later, "end": later + 60, "cpus": 1}
    log = saved(tmp_path, "jobs.sacct", [*workload(), in_another_month])
    result = report("holes", "--log", log, "--procs", 300, "--large", 4, "--waited", "1m", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    with (tmp_path / "out" / "idle.csv").open() as file:
        days = list(csv.DictReader(file))
    for day in days:
        parts = [float(day[name]) for name in day if name not in ("begin", "end", "available")]
        assert sum(parts) == pytest.approx(float(day["available"]), rel=1e-12)
    with (tmp_path / "out" / "holes.csv").open() as file:
        holes = list(csv.DictReader(file))
    assert 0 < len(holes) <= 10
    for hole in holes:
        assert float(hole["accepted_core_hours"]) <= float(hole["idle_core_hours"])
        with (tmp_path / "out" / f"hole-{hole['job_id']}.csv").open() as file:
            behind = list(csv.DictReader(file))
        assert sum(job["accepted"] == "yes" for job in behind) == int(hole["accepted"])
        assert len(behind) == int(hole["waiting_jobs"])
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"months.csv", "waits.csv", "profile.csv", "ends.csv", "efficiency.csv", "report.json"} <= names
    assert {f"{plot}.{kind}" for plot in ("idle", "months", "week", "hole") for kind in ("png", "svg")} <= names
    page = (tmp_path / "out" / "index.md").read_text()
    assert f"| {holes[0]['job_id']} | 16 |" in page
    html = (tmp_path / "out" / "index.html").read_text()
    assert (html.count("<img"), html.count("data:image/svg+xml;base64,"), "http" in html) == (4, 4, False)


@pytest.mark.parametrize("figure", ["summary", "months", "waits", "idle", "holes", "ends", "efficiency"])
def test_every_figure_is_shown(tmp_path: Path, figure: str) -> None:
    result = report(figure, "--log", saved(tmp_path, "jobs.sacct", workload()), "--large", "2", "--waited", "10m")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) > 4


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--procs", 3), 2, "--procs = 3: the log uses"),
        (("--job", "99"), 2, "--job = '99': no such job in the period"),
        (
            ("--since", "2030-01-01", "--until", "2030-01-02"),
            1,
            "no job in the period; what was read of the log is from",
        ),
        (("--timezone", "Mars/Base"), 2, "--timezone = 'Mars/Base': no such zone"),
        (("--large", "120%"), 2, "--large = '120%'"),
        (("holes", "--waited", "long"), 2, "--waited = 'long': must be such as 30m, 6h, or 2d"),
        (("--by", "color"), 2, "'color' is no group"),
        (("--exclusive",), 2, "--exclusive: --procs and --nodes are needed"),
        (("holes", "--lengths", "guessed"), 2, "--lengths = 'guessed': must be one of limit, real, predicted"),
        (("holes", "--all", "--scheduler", "bf_window=0"), 2, "--scheduler: 'bf_window=0': must be a whole number"),
        (("--all",), 2, "--all goes with holes"),
        (("--out", "/proc/nowhere"), 2, "/proc/nowhere: cannot be written"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, words: tuple[object, ...], code: int, said: str) -> None:
    log = saved(tmp_path, "jobs.sacct", workload())
    result = CliRunner().invoke(app, ["report", *map(str, words), "--log", str(log)])
    assert (result.exit_code, said in result.stderr, len(result.stderr.splitlines())) == (code, True, 1)


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED"], ids=["all canceled", "all took no time"])
def test_a_log_in_which_no_core_was_ever_used(tmp_path: Path, state: str) -> None:
    start = "Unknown" if state == "CANCELLED" else BEGIN
    end = BEGIN + 600 if state == "CANCELLED" else BEGIN
    lines = (f"{job}|{job}|{BEGIN}|{start}|{end}|0|10|2|a|main|normal|{state}|" for job in range(3))
    (tmp_path / "jobs.sacct").write_text("".join(f"{line}\n" for line in lines))
    result = report("holes", "--all", "--log", tmp_path / "jobs.sacct", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "index.html").is_file()


def test_names_do_no_harm(tmp_path: Path) -> None:
    jobs = workload(5)
    text = "".join(as_native(job).replace(":alice:", ":=cmd()\x1b[2J:") + "\n" for job in jobs)
    (tmp_path / "accounting").write_text(text)
    result = report("waits", "--log", tmp_path / "accounting", "--by", "user", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout
    lines = (tmp_path / "waits.csv").read_text().splitlines()
    assert lines[2].startswith("user,'=cmd()\N{REPLACEMENT CHARACTER}[2J,5,")


def test_no_tag_reaches_the_page(tmp_path: Path) -> None:
    text = "".join(as_native(job).replace(":alice:", ":<script>a|b</script>:") + "\n" for job in workload(5))
    (tmp_path / "accounting").write_text(text)
    result = report("--log", tmp_path / "accounting", "--by", "user", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "<script" not in (tmp_path / "index.html").read_text()
    assert "| &lt;script>a&#124;b&lt;/script> |" in (tmp_path / "index.md").read_text()


def test_columns_of_the_page_are_of_numbers_or_of_words() -> None:
    """A column is set by all that is in it; one without a value is left out."""
    rows = [("95 % waited at most", "8.7 h", "1,000 jobs", ""), ("utilization", "61.9 %", "cores that were up", "")]
    page = html_page("<a>", [(("figure", "value", "of", "never"), rows)], Path())
    assert re.findall(r'<td class="number">(.*?)</td>', page) == ["8.7 h", "61.9 %"]
    assert page.count('<th class="number">value</th>') == 1
    assert "never" not in page
    assert "<title>&lt;a&gt;</title>" in page
    assert "never" not in markdown_page([(("figure", "value", "of", "never"), rows)])
