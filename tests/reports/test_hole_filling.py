"""Conservative backfilling into a hole against a brute-force reference, and its promises."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.reports.hole_filling import FilledHole, HoleQueue, IdleProfile, filled_hole


def filled(stamps: list[tuple[int, int]], jobs: list[tuple[int, int, float]], start: int) -> FilledHole:
    time, free = zip(*stamps, strict=True)
    submit, cores, length = zip(*jobs, strict=True) if jobs else ((), (), ())
    queue = HoleQueue(
        [str(number) for number in range(len(jobs))],
        np.array(submit, dtype=float),
        np.array(cores, dtype=np.int64),
        np.array(length, dtype=float),
    )
    return filled_hole(IdleProfile(np.array(time, dtype=float), np.array(free)), queue, float(start))


def by_hand(stamps: list[tuple[int, int]], jobs: list[tuple[int, int, float]], start: int) -> list[float | None]:
    """Where each job starts, None: refused; every interval between stamps is looked at for every candidate."""
    edges = sorted({time for time, _ in stamps} | {start})
    free = {edge: [level for time, level in stamps if time <= edge][-1] for edge in edges}
    spans = list(zip(edges, [*edges[1:], inf], strict=True))
    found: list[float | None] = []
    for submit, cores, length in jobs:
        first = max(submit, edges[0])
        begins = [
            begin
            for begin in sorted({first, *(edge for edge in edges if edge > first)})
            if all(free[low] >= cores for low, high in spans if low < begin + length and high > begin)
        ]
        if begins and begins[0] + length <= start:
            found.append(begins[0])
            for low, high in spans:
                if low < begins[0] + length and high > begins[0]:
                    free[low] -= cores
        else:
            found.append(None)
    return found


STAMPS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8)), min_size=1, max_size=12, unique_by=lambda at: at[0])
JOBS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 8), st.integers(1, 30)), max_size=8)


@given(STAMPS.map(sorted), JOBS, st.integers(1, 60))
def test_it_accepts_what_a_search_of_all_places_does(
    stamps: list[tuple[int, int]], jobs: list[tuple[int, int, float]], ahead: int
) -> None:
    start = stamps[0][0] + ahead
    hole = filled(stamps, jobs, start)
    starts = [
        float(fit) if good else None for fit, good in zip(hole.first_fit.tolist(), hole.accepted.tolist(), strict=True)
    ]
    assert starts == by_hand(stamps, jobs, start)


@given(STAMPS.map(sorted), JOBS, st.integers(1, 60))
def test_bookings_fit_and_end_in_time_without_any_one_of_them_too(
    stamps: list[tuple[int, int]], jobs: list[tuple[int, int, float]], ahead: int
) -> None:
    start = stamps[0][0] + ahead
    hole = filled(stamps, jobs, start)
    booked = [
        (hole.first_fit[job], hole.first_fit[job] + length, cores)
        for job, (_, cores, length) in enumerate(jobs)
        if hole.accepted[job]
    ]
    assert all(end <= start for _, end, _ in booked)
    for left_out in (None, *range(len(booked))):
        kept = [booking for number, booking in enumerate(booked) if number != left_out]
        for moment in {begin for begin, _, _ in kept} | {time for time, _ in stamps}:
            level = [free for time, free in stamps if time <= moment][-1:]
            held = sum(cores for begin, end, cores in kept if begin <= moment < end)
            assert not held or held <= level[0]


def test_a_job_without_a_limit_is_refused_by_the_end() -> None:
    hole = filled([(0, 4)], [(1, 4, inf), (1, 4, 9)], 10)
    assert (hole.accepted.tolist(), hole.refused_by(0), hole.refused_by(1)) == ([False, True], "end", "")
    assert filled([(0, 4)], [(1, 5, 1)], 10).refused_by(0) == "cores"
    assert filled([(0, 4), (6, 5)], [(1, 5, 5)], 10).refused_by(0) == "both"


def tables(directory: Path, idle: str, jobs: str, start: str = "100") -> list[str]:
    (directory / "idle.csv").write_text(idle)
    (directory / "jobs.csv").write_text(jobs)
    files = ["--profile", str(directory / "idle.csv"), "--queue", str(directory / "jobs.csv")]
    return ["report", "holes", *files, "--start", start]


JOB = "job_id,submit,cores,length\n"


def test_bare_tables_through_the_command(tmp_path: Path) -> None:
    words = tables(tmp_path, "time,free\n0,4\n50,2\n", JOB + "=a(),0,3,60\nb,10,4,40\nc,20,2,80\n")
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["accepted_core_hours"] == pytest.approx((160 + 0) / 3600)
    assert [job["refused_by"] for job in answer["jobs"]] == ["cores", "", "both"]
    lines = (tmp_path / "hole.csv").read_text().splitlines()
    assert lines[1] == "'=a(),0,3,60,no,,,4,,,cores"
    assert lines[2] == "b,10,4,40,yes,10,50,4,10,50,"
    assert lines[3] == "c,20,2,80,no,,,0,50,130,both"


@pytest.mark.parametrize(
    ("idle", "jobs", "start", "said"),
    [
        ("time,free\n", JOB + "a,0,3,60\n", "9", "idle.csv: no line of data below the header"),
        ("time,free\n5,4\n", JOB, "9", "jobs.csv: no line of data below the header"),
        ("time,free\n5,4\n5,2\n", JOB + "a,0,3,60\n", "9", "line 3 (its time stood in a row before)"),
        ("time,free\n5,4\n3,2\n", JOB + "a,0,3,60\n", "9", "idle.csv: line 3: column time: must be after the one"),
        ("time,free\n5,-4\n", JOB + "a,0,3,60\n", "9", "only a whole number from 0"),
        ("time,free\n5,4\n", JOB + "a,0,0,60\n", "9", "column cores: '0' is not allowed"),
        ("time,free\n5,4\n", JOB + "a,yesterday,1,60\n", "9", "line 2: column submit: 'yesterday' is not allowed"),
        ("time,free\n5,4\n", JOB + ",1,1,60\n", "9", "column job_id: an empty cell is not allowed"),
        ("time,free\n5,4\n", JOB + "a,1,1,60\n", "5", "--start = '5': must be after the first time"),
        ("time,free\n5,4\n", JOB + "a,1,1,60\n", "soon", "--start = 'soon': must be seconds or such as"),
    ],
)
def test_bad_tables_are_named(tmp_path: Path, idle: str, jobs: str, start: str, said: str) -> None:
    result = CliRunner().invoke(app, tables(tmp_path, idle, jobs, start))
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
