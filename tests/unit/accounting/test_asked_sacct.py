"""Days of accounting: each asked once, kept when final, and gone on with after a stop."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from omfs_daemon.accounting.accounting_store import AccountingStore, days_between
from omfs_daemon.accounting.asked_sacct import AskDay, asked_records
from omfs_daemon.accounting.sacct_rows import FULL_FIELDS, SacctRows, sacct_rows_of_answer
from omfs_daemon.errors import GatewayError, UnreachableError

FIRST = datetime(2026, 3, 1).timestamp()
DAY = 86400.0
NOW = FIRST + 10 * DAY


def line(job: int, submit: float, end: float | None) -> str:
    """A job that starts a minute after its submission; ``end`` None: it still runs."""
    state = "RUNNING" if end is None else "COMPLETED"
    until = "Unknown" if end is None else f"{end:.0f}"
    fields = [str(job), str(job), "alice", "bio", "main", "normal", f"{submit:.0f}", f"{submit:.0f}"]
    fields += [f"{submit + 60:.0f}", until, "60", "10", "4", "4", "1", "", "", state, "0:0"]
    return "<>".join([*fields, "0", "n1", "None", "0", "", "run", "comment"])


def answering(jobs: list[tuple[int, float, float | None]], asked: list[float], fails_at: float = 0.0) -> AskDay:
    def ask(begin: float, end: float) -> SacctRows:
        asked.append(begin)
        if begin == fails_at:
            raise GatewayError("slurmdbd is away")
        there = [one for one in jobs if one[1] < end and (one[2] or NOW) > begin]
        printed = "\n".join(line(*one) for one in there) + ("\n" if there else "")
        return sacct_rows_of_answer(printed, "<>", FULL_FIELDS)

    return ask


JOBS = [(1, FIRST + 100, FIRST + 200), (2, FIRST + DAY - 500, FIRST + DAY + 900), (3, FIRST + 2 * DAY + 5, None)]


def test_each_final_day_is_asked_once(tmp_path: Path) -> None:
    store, asked = AccountingStore(tmp_path / "accounting"), list[float]()
    first = asked_records(FIRST + 50, FIRST + 4 * DAY, answering(JOBS, asked), NOW, store)
    assert asked == [FIRST + day * DAY for day in range(4)]
    assert first.frame["job_id"].to_list() == ["1", "2", "3"]
    again = asked_records(FIRST + 50, FIRST + 4 * DAY, answering(JOBS, asked), NOW, store)
    assert asked[4:] == [FIRST + 2 * DAY, FIRST + 3 * DAY], "on these days a job still ran"
    assert again.frame.equals(first.frame)
    assert (tmp_path / "accounting").stat().st_mode & 0o777 == 0o700
    assert {path.name for path in (tmp_path / "accounting").iterdir()} == {"2026-03-01.parquet", "2026-03-02.parquet"}


def test_a_day_that_is_not_over_is_not_kept(tmp_path: Path) -> None:
    store, asked = AccountingStore(tmp_path / "accounting"), list[float]()
    (day,) = days_between(FIRST, FIRST + 10)
    rows = answering(JOBS[:1], asked)(day.begin, day.end)
    assert not store.keep(day, rows, day.end + 10)
    assert store.keep(day, rows, day.end + 3600)


def test_goes_on_after_a_stop(tmp_path: Path) -> None:
    store, asked = AccountingStore(tmp_path / "accounting"), list[float]()
    with pytest.raises(UnreachableError, match="read up to 2026-03-02; go on with --since 2026-03-02"):
        asked_records(FIRST, FIRST + 2 * DAY, answering(JOBS, asked, fails_at=FIRST + DAY), NOW, store)
    asked_records(FIRST, FIRST + 2 * DAY, answering(JOBS, asked), NOW, store)
    assert asked == [FIRST, FIRST + DAY, FIRST + DAY]


def test_nothing_to_go_on_with_if_nothing_was_read() -> None:
    with pytest.raises(UnreachableError, match=r"^accounting cannot be read \(slurmdbd is away\)$"):
        asked_records(FIRST, FIRST + 2 * DAY, answering(JOBS, [], fails_at=FIRST), NOW)


def test_a_broken_or_foreign_day_is_asked_for_again(tmp_path: Path) -> None:
    store, asked = AccountingStore(tmp_path / "accounting"), list[float]()
    asked_records(FIRST, FIRST + 10, answering(JOBS, asked), NOW, store)
    (tmp_path / "accounting" / "2026-03-01.parquet").write_bytes(b"cut")
    found = asked_records(FIRST, FIRST + 10, answering(JOBS, asked), NOW, store)
    assert (len(asked), len(found.frame)) == (2, 2)


def test_malformed_records_are_kept_too(tmp_path: Path) -> None:
    store = AccountingStore(tmp_path / "accounting")
    (day,) = days_between(FIRST, FIRST + 10)
    wrong = line(4, FIRST, FIRST + 9).replace("<>60<>", "<>-1<>", 1)
    rows = sacct_rows_of_answer(line(1, FIRST, FIRST + 9) + "\n" + wrong + "\n", "<>", FULL_FIELDS)
    assert list(rows.wrong) == [2]
    assert store.keep(day, rows, NOW)
    kept = store.day(day, rows.frame.columns)
    assert kept is not None
    assert kept.wrong == rows.wrong
    assert kept.frame.equals(rows.frame)


def test_without_a_place_to_keep_days(tmp_path: Path) -> None:
    (tmp_path / "accounting").write_text("a file")
    found = asked_records(FIRST, FIRST + 10, answering(JOBS, []), NOW, AccountingStore(tmp_path / "accounting"))
    assert len(found.frame) == 2
