"""The file of ended jobs."""

from __future__ import annotations

import sqlite3
from math import inf
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from omfs_daemon.daemon.store.ended_jobs import EndedJobs, Foreseen
from omfs_daemon.errors import FormatError
from omfs_daemon.predict.features import JobFeatures, folded_name, stored_name
from omfs_daemon.predict.job_ends import JobEnd, named_features
from omfs_daemon.predict.prediction import HowEnded
from omfs_daemon.starts.track_record import LATEST, NotedStart

HOSTILE = ["x" * 10_000, "a\nb", "'; DROP TABLE ended; --", "\udcff", ""]


def end(job: int, user: str = "ann", how: HowEnded | None = HowEnded.BY_ITSELF, start: float = 100.0) -> JobEnd:
    return JobEnd(job, start + job, start + job + 60, JobFeatures(user=user, limit=inf), 60.0, how)


def test_nothing_is_kept_twice_and_only_what_teaches(tmp_path: Path) -> None:
    store = EndedJobs(tmp_path / "ended_jobs.sqlite", 100)
    ends = [end(1), end(2, how=HowEnded.CANCELLED), end(3, how=HowEnded.NODE_FAILED), end(4, how=HowEnded.AT_LIMIT)]
    assert store.add(ends) == [ends[0], ends[3]]
    assert store.add(ends) == []
    store.close()
    again = EndedJobs(tmp_path / "ended_jobs.sqlite", 100)
    assert list(again.all()) == [ends[0], ends[3]]
    assert not again.is_new
    assert (tmp_path / "ended_jobs.sqlite").stat().st_mode & 0o077 == 0
    again.close()


def test_the_oldest_go(tmp_path: Path) -> None:
    store = EndedJobs(tmp_path / "file", 3)
    for number in (5, 1, 2, 9, 4):
        store.add([end(number)])
    assert [one.job for one in store.all()] == [4, 5, 9]


def test_earlier_runs_are_those_of_the_same_job_and_user(tmp_path: Path) -> None:
    store = EndedJobs(tmp_path / "file", 9)
    store.add([end(7, how=None, start=100), end(7, how=None, start=300), end(7, "bob", how=None, start=200)])
    assert store.earlier_runs(7, 307, "ann") == 60
    assert store.earlier_runs(7, 500, "ann") == 120
    assert store.earlier_runs(8, 500, "ann") == 0


def test_what_was_foreseen_is_kept_with_the_end(tmp_path: Path) -> None:
    store = EndedJobs(tmp_path / "file", 9)
    row = Foreseen(1, "ann", "ladder", 50.0, 90.0, 20.0, 99.0, 150.0, None)
    store.foresee([row, row._replace(job=2, user="bob")])
    store.foresee([row._replace(p50=1.0)])
    assert store.foreseen() == {1, 2}
    store.add([end(1), end(3)])
    (scored,) = store.scored(0.0)
    assert (scored.p50, scored.run, scored.start, scored.start_p50) == (50.0, 60.0, 101.0, 99.0)
    assert store.scored_of([end(1), end(3)]) == [scored]
    assert store.scored(0.0, "bob") == []
    assert store.foreseen() == {2}


def test_the_track_record_of_starts_is_kept_up_to_the_latest(tmp_path: Path) -> None:
    store = EndedJobs(tmp_path / "file", 9)
    noted = [NotedStart(job, 5.0, 10.0, 20.0, 1, 5.0) for job in range(LATEST + 3)]
    store.keep_noted([("ann", one) for one in noted])
    again = noted[1]._replace(moments=2, last=3605.0)
    store.keep_noted([("ann", again)])
    store.keep_begun([one._replace(began=100.0 + one.job) for one in noted[2:]])
    store.drop_noted([0, 2, 3, 4])
    store.close()
    found = sorted(EndedJobs(tmp_path / "file", 9).noted_starts())
    assert found[0] == again, "it waits; 0 does not, and has not started"
    assert [one.job for one in found[1:]] == list(range(3, LATEST + 3)), "the oldest start is forgotten"
    assert {one.began for one in found[1:]} == {100.0 + job for job in range(3, LATEST + 3)}


def test_a_user_is_forgotten_in_the_file_too(tmp_path: Path) -> None:
    path = tmp_path / "file"
    store = EndedJobs(path, 99)
    store.add([end(1, "unforgettable"), end(2, "unforgettable", how=None), end(3, "ann")])
    store.foresee([Foreseen(5, "unforgettable", "ladder", 1.0, 2.0, 3.0, None, None, None)])
    store.keep_noted([("unforgettable", NotedStart(5, 1.0, 2.0, 3.0, 1, 1.0))])
    assert store.forget_user("unforgettable", 200.0) == 1
    assert store.noted_starts() == []
    assert [one.job for one in store.all()] == [3]
    assert store.add([end(1, "unforgettable")]) == [], "what had ended is not learned again"
    store.close()
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"unforgettable" not in files
    assert b"ann" in files


def test_a_damaged_file_is_set_aside_and_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "ended_jobs.sqlite"
    path.write_bytes(b"no database at all" * 100)
    with capture_logs() as logs:
        store = EndedJobs(path, 9)
    assert [line["event"] for line in logs] == ["ended_jobs_damaged"]
    assert store.add([end(1)]) == [end(1)]
    assert store.is_new
    assert path.with_suffix(".damaged").exists()


def test_a_file_of_a_later_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "file"
    EndedJobs(path, 9).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version=99")
    before = path.read_bytes()
    with pytest.raises(FormatError, match=r"later version .* move it away"):
        EndedJobs(path, 9)
    assert path.read_bytes() == before


def test_a_full_disk_costs_predictions_and_one_line(tmp_path: Path) -> None:
    store = EndedJobs(tmp_path / "file", 9)
    store._database.execute("PRAGMA query_only=ON")
    with capture_logs() as logs:
        assert store.add([end(1)]) == []
        assert store.add([end(2)]) == []
    assert [line["event"] for line in logs] == ["ended_jobs_not_written"]
    store._database.execute("PRAGMA query_only=OFF")
    assert store.add([end(1)]) == [end(1)]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("keep", [False, True])
def test_hostile_names_are_kept_harmlessly(tmp_path: Path, name: str, keep: bool) -> None:
    store = EndedJobs(tmp_path / "file", 9)
    features = named_features(JobFeatures(user="ann"), name, keep)
    mine = end(1)._replace(features=features)
    assert store.add([mine]) == [mine]
    (kept,) = store.all()
    assert kept.features.command == stored_name(name, keep)
    assert kept.features.name == stored_name(folded_name(name), keep)
    assert len(kept.features.command) <= 200
    assert name == "" or keep or name not in kept.features.command


def test_what_is_to_be_learned_outlasts_a_restart(tmp_path: Path) -> None:
    store = EndedJobs(tmp_path / "file", 9)
    store.ask_to_learn(0.0, 200.0)
    store.add([end(1)], (0.0, 100.0))
    store.close()
    again = EndedJobs(tmp_path / "file", 9)
    assert again.days_to_learn() == [(100.0, 200.0)]
    again.add([], (100.0, 200.0))
    assert again.days_to_learn() == []
