"""Formats of the files in the state directory: fixtures of all that are read, conversion, ``omfsd --check-state``."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from structlog.testing import capture_logs

from omfs_daemon.cluster.exemptions import Exemption, ExemptKind
from omfs_daemon.daemon.check_state import check_state
from omfs_daemon.daemon.store import journal as journal_module
from omfs_daemon.daemon.store.audit_log import AuditLog
from omfs_daemon.daemon.store.ended_jobs import EndedJobs
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore
from omfs_daemon.daemon.store.exemption_store import ExemptionStore
from omfs_daemon.daemon.store.file_format import (
    AUDIT,
    ENDED_JOBS,
    ENTITLEMENTS,
    EXEMPTIONS,
    HISTORY,
    JOURNAL,
    STATE_FILES,
    StateFile,
)
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.journal import Journal, replay
from omfs_daemon.daemon.store.sqlite_file import open_sqlite
from omfs_daemon.errors import FormatError, JournalError
from omfs_daemon.preemption.state import Record, from_json
from tests.support.hostile_text import HOSTILE_TOML
from tests.support.state_files import (
    BEGUN,
    CLUSTER,
    END,
    Root,
    be_next_version,
    fixture,
    make_later,
    put,
    put_all,
    records,
    write_state,
)

FORMATS = [(file, number) for file in STATE_FILES for number in range(file.oldest, file.newest + 1)]
NAMES = [f"{file.name}-{number}" for file, number in FORMATS]


def dump(path: Path) -> list[str]:
    database = sqlite3.connect(path)
    try:
        return list(database.iterdump())
    finally:
        database.close()


def content(path: Path) -> object:
    """What must not change without a new format."""
    if path.name.endswith(".sqlite") or path.parent.name.endswith(".sqlite"):
        return dump(path)
    text = path.read_text()
    if text.startswith('{"format"'):
        return [{**json.loads(line), "at": ""} for line in text.splitlines()]  # in the time of whoever made it
    return text


# -- fixtures -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("file", "number"), FORMATS, ids=NAMES)
def test_there_is_a_fixture_of_each_format(file: StateFile, number: int) -> None:
    assert file.number(fixture(file, number)) == number, "python -m tests.support.state_files"


def test_what_this_version_writes_is_of_the_newest_formats(tmp_path: Path) -> None:
    """If this fails, what is written has changed: raise ``newest`` of the file in file_format.py, read the older format
    as well, and run ``python -m tests.support.state_files``."""
    write_state(tmp_path)
    for file in STATE_FILES:
        assert content(tmp_path / file.name) == content(fixture(file, file.newest)), file.name


def parts(value: object) -> Iterator[type]:
    """The types of all records in a value."""
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        yield type(value)
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from parts(each)
    elif isinstance(value, tuple):
        for each in value:
            yield from parts(each)


def possible(annotation: Any, found: set[type]) -> set[type]:
    """The types of all records that values of a type can have in them."""
    if (dataclasses.is_dataclass(annotation) or hasattr(annotation, "_fields")) and annotation not in found:
        found.add(annotation)
        for each in get_type_hints(annotation).values():
            possible(each, found)
    for each in get_args(annotation):
        possible(each, found)
    return found


def test_the_fixture_of_the_journal_has_all_kinds_of_records() -> None:
    """Else a change of one would not be noticed."""
    texts = (line.split(b" ", 2)[2] for line in fixture(JOURNAL, JOURNAL.newest).read_bytes().splitlines())
    read = tuple(from_json(json.loads(text)) for text in texts)
    assert read == records()
    assert set(parts(read)) == possible(Record, set())


# -- each format is read ------------------------------------------------------------------------------------
def read_journal(path: Path) -> None:
    journal = Journal(path, CLUSTER)
    state = journal.state
    journal.close()
    assert (state.cluster, state.sequence) == (CLUSTER, 12)
    assert list(state.preemptions) == [7] and state.preemptions[7].preemptor.ref == "3_4"
    assert state.held == {"5": 12, "6_[1-3]": 12} and state.releasing == {"4": 12}
    assert set(state.preempted) == {"2"} and set(state.unsaved) == {"2"} and set(state.owned) == {"5"}
    assert state.backoff.until == {"9": BEGUN + 300} and state.pause is not None
    assert state.backoff.realtime.limits == {"14": 600.0}


def read_entitlements(path: Path) -> None:
    store = EntitlementStore(path.parent, (), AuditLog(path.parent, lambda: BEGUN))
    assert [(each.name, float(each.percent), each.parent) for each in store.entitlements] == [
        ("bio", 12.5, ""),
        ("lab", 10, "bio"),
    ]


def read_exemptions(path: Path) -> None:
    store = ExemptionStore(path.parent, AuditLog(path.parent, lambda: BEGUN), lambda: BEGUN)
    assert store.exemptions.all == (Exemption(ExemptKind.USER, "carol", BEGUN + 9, "root"),)


def read_audit(path: Path) -> None:
    """It is never read again, but goes on."""
    before = path.read_bytes()
    EntitlementStore(path.parent, (), AuditLog(path.parent, lambda: BEGUN)).replace_all((), Root())
    assert path.read_bytes().startswith(before) and path.read_bytes().count(b"\n") == before.count(b"\n") + 1


def read_history(path: Path) -> None:
    history = HistoryDatabase(path)
    try:
        assert [event.event for event in history.of_job("1")] == ["preempted"]
        (past,) = history.preemptions(9, 0.0)
        assert (past.preemptor, past.victims[0]["job"]) == ("12", "8")
        assert [cost.lost for cost in history.costs(0.0)] == [7.0]
        assert [row.job for row in history.shadow(0.0)] == ["5"]
        assert history.task_named(22) == "3_4"
    finally:
        history.close()


def read_ended_jobs(path: Path) -> None:
    ended = EndedJobs(path, 100)
    try:
        assert list(ended.all()) == [END]
        assert ended.earlier_runs(24, BEGUN + 9, "alice") == 60.0
        assert ended.foreseen() == {23} and ended.days_to_learn() == [(BEGUN - 86400, BEGUN)]
        assert [one.p90 for one in ended.scored(0.0)] == [90.0]
        assert [(one.job, one.moments) for one in ended.noted_starts()] in ([], [(25, 2)])  # none in the first format
    finally:
        ended.close()


READ: dict[StateFile, Callable[[Path], None]] = {
    JOURNAL: read_journal,
    ENTITLEMENTS: read_entitlements,
    EXEMPTIONS: read_exemptions,
    AUDIT: read_audit,
    HISTORY: read_history,
    ENDED_JOBS: read_ended_jobs,
}


@pytest.mark.parametrize(("file", "number"), FORMATS, ids=NAMES)
def test_each_format_is_read_by_this_version_and_the_next(
    file: StateFile, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = READ[file]
    read(put(tmp_path, file, number))
    path = put(tmp_path, file, number)
    be_next_version(monkeypatch)
    with capture_logs() as logs:
        read(path)
    converted = [line for line in logs if line["event"] == "state_file_converted"]
    if file in (JOURNAL, HISTORY, ENDED_JOBS):
        assert file.number(path) == file.newest + 1
        assert [(line["file"], line["found"], line["written"]) for line in converted] == [
            (str(path), number, file.newest + 1)
        ]
    read(path)


def test_a_converted_journal_has_one_format_throughout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, JOURNAL, JOURNAL.newest)
    path.write_bytes(path.read_bytes()[:-9])  # and a torn line
    be_next_version(monkeypatch)
    journal = Journal(path)
    journal.write(*records()[-3:])
    journal.close()
    assert {line.split(b" ")[0] for line in path.read_bytes().splitlines()} == {b"%d" % (JOURNAL.newest + 1)}
    assert replay(path).state == journal.state


def test_a_journal_that_cannot_be_converted_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, JOURNAL, JOURNAL.newest)
    before = path.read_bytes()
    be_next_version(monkeypatch)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal_module.os, "fsync", full)
    with pytest.raises(JournalError, match=r"journal: cannot be .*: No space left on device"):
        Journal(path)
    assert path.read_bytes() == before


def test_the_number_of_a_converted_database_is_in_its_header_at_once(tmp_path: Path) -> None:
    """Where an older version looks, also after a crash: nothing is closed here."""
    path, later = put(tmp_path, HISTORY, HISTORY.newest), HISTORY._replace(newest=HISTORY.newest + 1)
    database = open_sqlite(path, later, "CREATE TABLE IF NOT EXISTS more (number INTEGER);")
    assert HISTORY.number(path) == HISTORY.newest + 1
    with pytest.raises(FormatError, match="a later version"):
        HistoryDatabase(path)
    database.close()


def test_a_database_that_cannot_be_converted_stays_as_it_was(tmp_path: Path) -> None:
    path, later = put(tmp_path, HISTORY, HISTORY.newest), HISTORY._replace(newest=HISTORY.newest + 1)
    before = dump(path)
    with pytest.raises(
        FormatError, match=rf"cannot be converted from format {HISTORY.newest} to .*no such table: none"
    ):
        open_sqlite(path, later, "CREATE TABLE more (number INTEGER); ALTER TABLE none ADD COLUMN number INTEGER;")
    assert dump(path) == before
    read_history(path)


def test_a_number_that_only_the_log_of_a_database_has_is_seen(tmp_path: Path) -> None:
    path = put(tmp_path, HISTORY, HISTORY.newest)
    HistoryDatabase(path).close()
    writer = sqlite3.connect(path)
    writer.execute(f"PRAGMA user_version={HISTORY.newest + 1}")
    assert HISTORY.number(path) == HISTORY.newest
    with pytest.raises(FormatError, match="a later version"):
        HistoryDatabase(path)
    writer.close()


# -- omfsd --check-state --------------------------------------------------------------------------------------
def files(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}


def test_nothing_there_is_read(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "none"):
        report = check_state(directory)
        assert report.is_read
        assert [line.partition(": ")[2] for line in report.lines[:-1]] == [
            "not there: omfsd begins a new one when it needs it"
        ] * len(STATE_FILES)
    assert not files(tmp_path) and not (tmp_path / "none").exists()


def test_what_is_there_is_named_with_its_format(tmp_path: Path) -> None:
    put_all(tmp_path)
    before = files(tmp_path)
    report = check_state(tmp_path)
    assert report.is_read and report.lines == (
        *(f"{tmp_path / file.name}: format {file.newest}, which this version writes" for file in STATE_FILES),
        f"{tmp_path}: this version reads what is there",
    )
    assert files(tmp_path) == before


def test_what_would_be_converted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_all(tmp_path)
    before = files(tmp_path)
    be_next_version(monkeypatch)
    report = check_state(tmp_path)
    assert report.is_read and report.lines[:-1] == tuple(
        f"{tmp_path / file.name}: format {file.newest}: this version, which writes format {file.newest + 1},"
        f" {file.conversion}"
        for file in STATE_FILES
    )
    assert files(tmp_path) == before


@pytest.mark.parametrize("file", STATE_FILES, ids=lambda file: file.name)
def test_a_file_of_a_later_version_is_not_read(file: StateFile, tmp_path: Path) -> None:
    put_all(tmp_path)
    make_later(tmp_path / file.name, file)
    before = files(tmp_path)
    report = check_state(tmp_path)
    (line,) = (line for line in report.lines if "later version" in line)
    ours = file.newest
    assert line.startswith(f"{tmp_path / file.name}: was written by a later version of omfs-daemon (format {ours + 1};")
    assert f"this version reads format {file.known}): install that version again, or move it away" in line
    assert not report.is_read
    assert report.lines[-1].endswith(
        "does not start with what is there" if file.is_needed else "but without predictions"
    )
    assert files(tmp_path) == before


def damaged_journal(directory: Path) -> str:
    path = directory / JOURNAL.name
    path.write_bytes(path.read_bytes().replace(b"alice", b"alicf", 1))
    return "journal:1: the line is damaged; move the file away"


def wrong_entitlements(directory: Path) -> str:
    (directory / ENTITLEMENTS.name).write_text("format = 1\n[entitlements.bio]\npercent = 500\n")
    return "entitlements.bio.percent"


def hostile_entitlements(directory: Path) -> str:
    (directory / ENTITLEMENTS.name).write_text(HOSTILE_TOML["an exponent"])
    return "entitlements.toml: a number is too long"


def deep_exemptions(directory: Path) -> str:
    (directory / EXEMPTIONS.name).write_text("[" * 100_000)
    return "exemptions.json: is damaged"


def endless_exemption(directory: Path) -> str:
    one = '{"kind": "user", "name": "ann", "until": 1e400, "by": "root"}'
    (directory / EXEMPTIONS.name).write_text(f'{{"format": 1, "exemptions": [{one}]}}')
    return "exemptions.json: until = inf of user ann: must be seconds since the epoch, before the year 9999"


def pipe(directory: Path) -> str:
    (directory / AUDIT.name).unlink()
    os.mkfifo(directory / AUDIT.name)
    return "audit.jsonl: is no regular file"


def no_directory(directory: Path) -> str:
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    directory.write_text("")
    return "journal: cannot be read: Not a directory"


def loop(directory: Path) -> str:
    (directory / HISTORY.name).unlink()
    (directory / HISTORY.name).symlink_to(HISTORY.name)
    return "history.sqlite: cannot be read: Too many levels of symbolic links"


FAULTS = [damaged_journal, wrong_entitlements, hostile_entitlements, deep_exemptions, endless_exemption]
FAULTS += [pipe, no_directory, loop]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_omfsd_could_not_read_is_one_line(fault: Callable[[Path], str], tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    put_all(directory)
    expected = fault(directory)
    report = check_state(directory)
    assert not report.is_read and sum(expected in line for line in report.lines) == 1
    assert len(report.lines) == len(STATE_FILES) + 1 and not any("\n" in line for line in report.lines)


def test_a_deep_last_line_of_the_audit_log_is_damage(tmp_path: Path) -> None:
    put_all(tmp_path)
    (tmp_path / AUDIT.name).write_text("[" * 100_000 + "\n")
    assert check_state(tmp_path).is_read


def test_a_damaged_database_is_said_to_be_begun_anew(tmp_path: Path) -> None:
    put_all(tmp_path)
    (tmp_path / HISTORY.name).write_bytes(b"not a database at all" * 100)
    report = check_state(tmp_path)
    assert report.is_read and any("history.sqlite: empty, torn, or damaged" in line for line in report.lines)
