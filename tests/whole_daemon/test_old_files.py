"""Files of another format are refused with one line that says what to do, and left as they are."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.cli.omfsd import app as omfsd_app
from omfs_daemon.cluster.holds import admin_comment_of
from omfs_daemon.cluster.jobs import Hold, JobRequest, JobState
from omfs_daemon.daemon.failsafe import rescue
from omfs_daemon.daemon.store.audit_log import AuditLog
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore
from omfs_daemon.daemon.store.file_format import AUDIT, ENDED_JOBS, ENTITLEMENTS, JOURNAL, STATE_FILES, StateFile
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.errors import FormatError, JournalError, OmfsError
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.state_files import CLUSTER, be_next_version, make_later, put_all
from tests.support.waiting import LIMIT
from tests.whole_daemon.test_process import ROOT, Stand

KNOWN = {file.name: file.known for file in STATE_FILES}

# What the version before the formats had numbers has written.
OLD_JOURNAL = (
    b'eb162709 {"kind":"JobStopped","ref":"1","at":2.0,"method":"suspend","beneficiary":"3","licenses":[],"gres":[]}\n'
    b'0f2773d3 {"kind":"Pause","by":"root","at":5.0,"reason":"a reason"}\n'
)
OLD_ENTITLEMENTS = (
    "# Written by omfsd: the entitlements in force. Change them with `omfs entitlements`, not here.\n"
    '[entitlements.bio]\npercent = 12.5\n\n[entitlements.lab]\npercent = 10\nparent = "bio"\n'
)
OLD_HISTORY = """
PRAGMA journal_mode=WAL;
CREATE TABLE event (
    time REAL NOT NULL, job TEXT NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL,
    event TEXT NOT NULL, text TEXT NOT NULL, data TEXT NOT NULL);
CREATE TABLE stop (
    id INTEGER NOT NULL, time REAL NOT NULL, beneficiary TEXT NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL,
    urgent INTEGER NOT NULL, reason TEXT NOT NULL, waited REAL, outcome TEXT NOT NULL, victims TEXT NOT NULL,
    PRIMARY KEY (id, time));
CREATE TABLE cost (
    time REAL NOT NULL, job TEXT NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL, method TEXT NOT NULL,
    way TEXT NOT NULL, seconds REAL NOT NULL, moving REAL NOT NULL, bytes INTEGER NOT NULL, lost REAL NOT NULL,
    nodes INTEGER NOT NULL);
INSERT INTO event VALUES (1.0, '1', 'alice', 'bio', 'stopped', 'a text', '{}');
"""


def write_journal(directory: Path) -> None:
    (directory / "journal").write_bytes(OLD_JOURNAL)


def write_history(directory: Path) -> None:
    database = sqlite3.connect(directory / "history.sqlite")
    database.executescript(OLD_HISTORY)
    database.close()


def write_entitlements(directory: Path) -> None:
    (directory / "entitlements.toml").write_text(OLD_ENTITLEMENTS)


WRITERS = {"journal": write_journal, "history.sqlite": write_history}
READERS: dict[str, Callable[[Path], object]] = {
    "journal": lambda directory: Journal(directory / "journal"),
    "history.sqlite": lambda directory: HistoryDatabase(directory / "history.sqlite"),
    "entitlements.toml": lambda directory: EntitlementStore(directory, (), AuditLog(directory, lambda: 0.0)),
}


def files(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != "lock"}


def earlier(name: str) -> str:
    formats = f"format 1; this version reads format {KNOWN[name]}"
    return f"was written by an earlier development version of omfs-daemon ({formats}): move it"


def refused(action: Callable[[], object], name: str) -> None:
    with pytest.raises(OmfsError) as caught:
        action()
    text = str(caught.value)
    assert f"{name}: {earlier(name)}" in text and "\n" not in text


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_without_a_format_number_is_refused_and_left(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path)
    before = files(tmp_path)
    refused(lambda: READERS[name](tmp_path), name)
    assert files(tmp_path) == before


@pytest.mark.parametrize("name", WRITERS)
def test_the_daemon_does_not_start_on_one_and_gives_no_order(name: str, tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.service.close()
    directory = stand.config.daemon.state_dir
    for path in directory.iterdir():
        path.unlink()
    WRITERS[name](directory)
    before = files(directory)
    refused(stand.serve, name)
    assert files(directory) == before
    (directory / name).unlink()
    stand.service = stand.serve()
    assert stand.service.once().error is None, "and once it is moved away the daemon starts"
    stand.service.close()


@pytest.mark.parametrize("earlier_format", range(2, JOURNAL.oldest))
def test_a_journal_of_another_development_version_is_refused(earlier_format: int, tmp_path: Path) -> None:
    text = b'{"kind":"JobsGone","refs":["1"]}'
    (tmp_path / "journal").write_bytes(b"%d %08x %s\n" % (earlier_format, zlib.crc32(text), text))
    formats = rf"format {earlier_format}; this version reads format {JOURNAL.known}"
    with pytest.raises(JournalError, match=rf"an earlier development version of omfs-daemon \({formats}"):
        Journal(tmp_path / "journal")


def test_a_torn_journal_without_a_format_number_is_not_cut(tmp_path: Path) -> None:
    for end in (len(OLD_JOURNAL) - 1, len(OLD_JOURNAL) - 30, 40, 9):
        (tmp_path / "journal").write_bytes(OLD_JOURNAL[:end])
        refused(lambda: Journal(tmp_path / "journal"), "journal")
        assert (tmp_path / "journal").read_bytes() == OLD_JOURNAL[:end]


def test_a_journal_says_how_its_jobs_are_released(tmp_path: Path) -> None:
    write_journal(tmp_path)
    with pytest.raises(JournalError, match="found by its mark in Slurm, and `omfs failsafe` releases it"):
        Journal(tmp_path / "journal")


def write_history_of_version(version: int, directory: Path) -> None:
    database = sqlite3.connect(directory / "history.sqlite")
    database.executescript(f"PRAGMA user_version={version}; CREATE TABLE event (time REAL);")
    database.close()


def stand_on_files(tmp_path: Path) -> Stand:
    """Its daemon is down, and its files are those of the fixtures."""
    stand = Stand(tmp_path)
    stand.service.close()
    for path in stand.config.daemon.state_dir.iterdir():
        path.unlink()
    put_all(stand.config.daemon.state_dir)
    return stand


def test_the_daemon_goes_on_with_files_of_the_version_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It converts them, and the version before then refuses what it finds."""
    stand = stand_on_files(tmp_path)
    directory = stand.config.daemon.state_dir
    with monkeypatch.context() as patch:
        be_next_version(patch)
        stand.service = stand.serve(cluster=CLUSTER)
        assert stand.service.once().error is None
        assert "paused by root" in str(stand.service.answers.status(ROOT))
        stand.service.close()
    before = files(directory)
    with pytest.raises(FormatError, match=rf"journal: was written by a later .*reads format {JOURNAL.known}\)"):
        stand.serve(cluster=CLUSTER)
    assert files(directory) == before


@pytest.mark.parametrize("file", STATE_FILES, ids=lambda file: file.name)
def test_one_file_of_a_later_version_is_refused_and_nothing_is_touched(file: StateFile, tmp_path: Path) -> None:
    stand = stand_on_files(tmp_path)
    directory = stand.config.daemon.state_dir
    make_later(directory / file.name, file)
    before, ours = files(directory), file.newest
    expected = (
        f"{directory / file.name}: was written by a later version of omfs-daemon (format {ours + 1}; this version"
    )
    expected += f" reads format {file.known}): install that version again, or move it away"
    if file is ENDED_JOBS:
        check_predictions_are_off(stand, expected)
        before = {path: content for path, content in before.items() if path.endswith(file.name)}
        assert before.items() <= files(directory).items() and not list(directory.glob(f"{file.name}-*"))
        return
    with pytest.raises(FormatError) as caught:
        stand.serve()
    assert str(caught.value).startswith(expected) and "\n" not in str(caught.value)
    assert files(directory) == before


def check_predictions_are_off(stand: Stand, why: str) -> None:
    with capture_logs() as logs:
        stand.service = stand.serve(cluster=CLUSTER)
    (line,) = (entry for entry in logs if entry["event"] == "predictions_off")
    assert line["error"].startswith(why)
    assert stand.service.once().error is None
    stand.service.close()


WATCHED = """
import sys
directory, seen = sys.argv.pop(), []
def hook(event, arguments):
    if event == "open" and str(arguments[0]).startswith(directory) and arguments[2] & 0o3:
        seen.append((event, arguments))
    elif event.startswith(("sqlite3.", "fcntl.", "socket.", "subprocess.")):
        seen.append((event, arguments))
    elif event.startswith("os.") and any(str(each).startswith(directory) for each in arguments):
        seen.append((event, arguments))
sys.addaudithook(hook)
from omfs_daemon.cli.omfsd import run
try:
    run()
finally:
    print(seen, file=sys.stderr)
"""


@pytest.mark.parametrize("is_later", [False, True])
def test_check_state_only_reads_beside_a_running_daemon(is_later: bool, tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.run(1)
    directory = stand.config.daemon.state_dir
    if is_later:
        (directory / AUDIT.name).write_text('{"format": 2}\n')
    before = files(directory)
    command = [sys.executable, "-c", WATCHED, "-c", str(stand.path), "--check-state", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (int(is_later), "[]\n")
    assert lines[0] == f"{directory / JOURNAL.name}: format {JOURNAL.newest}, which this version writes"
    assert lines[-1].endswith("does not start with what is there" if is_later else "reads what is there")
    assert files(directory) == before
    assert stand.service.once().error is None
    stand.service.close()


def test_check_state_needs_a_good_configuration(tmp_path: Path) -> None:
    path = tmp_path / "omfs.toml"
    path.write_text("[daemon]\nstate = 1\n")
    result = CliRunner().invoke(omfsd_app, ["-c", str(path), "--check-state"])
    assert result.exit_code == 2 and "daemon.state" in result.stderr and not result.stdout


@pytest.mark.parametrize("version", [-1, 1000, 2**31 - 1])
def test_a_history_with_a_damaged_version_is_not_called_later(version: int, tmp_path: Path) -> None:
    write_history_of_version(version, tmp_path)
    before = files(tmp_path)
    with pytest.raises(FormatError, match=r"history\.sqlite: is damaged, or no history.sqlite of omfsd: move it away"):
        HistoryDatabase(tmp_path / "history.sqlite")
    assert files(tmp_path) == before


def test_a_history_keeps_its_number_through_a_crash(tmp_path: Path) -> None:
    """Never closed, so that what was written since is in the write-ahead log alone."""
    first = HistoryDatabase(tmp_path / "history.sqlite")
    second = HistoryDatabase(tmp_path / "history.sqlite")
    assert second.of_job("1") == []
    first.close()
    second.close()
    HistoryDatabase(tmp_path / "history.sqlite").close()


def test_entitlements_without_a_format_number_are_in_force(tmp_path: Path) -> None:
    write_entitlements(tmp_path)
    store = EntitlementStore(tmp_path, (), AuditLog(tmp_path, lambda: 0.0))
    assert [(each.name, each.percent, each.parent) for each in store.entitlements] == [
        ("bio", Fraction("12.5"), ""),
        ("lab", Fraction(10), "bio"),
    ]


def test_whatif_without_the_daemon_refuses_entitlements_of_a_later_version(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.service.close()
    file = stand.config.daemon.state_dir / ENTITLEMENTS.name
    file.write_text(f"format = {ENTITLEMENTS.newest + 1}\n\n[entitlements.bio]\npercent = 5\n")
    trace = tmp_path / "one.swf"
    trace.write_text("; MaxProcs: 8\n1 0 0 10 1 -1 -1 1 20 -1 1 1 1 -1 1 1 -1 -1\n")
    command = ["-c", str(stand.path), "whatif", "--trace", str(trace), "--set", "entitlements.bio=60"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1, result.output
    (line,) = result.output.strip().splitlines()
    assert line.startswith("omfs: ") and "entitlements.toml: was written by a later version of omfs-daemon" in line
    assert "put it into force again with `omfs entitlements import FILE`" in line


def test_the_failsafe_goes_by_the_marks_and_leaves_the_journal(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.run(0.5)
    stand.service.close()
    write_journal(stand.config.daemon.state_dir)
    suspended = stand.submit("alice", "bio", "suspend")
    request = JobRequest(4, partitions=("main",), max_nodes=1)
    held = [
        stand.slurm.submit(
            Submission(request, user="alice", account="bio", run_time=10, hold=Hold.ADMIN, admin_comment=mark)
        )
        for mark in ("omfs:held:7 beyond", "omfs:held:0", "omfs:stopping:5 preempted for job 3")
    ]
    stand.slurm.catch_up()
    stand.gateway.set_admin_comment([str(suspended)], "omfs:stopping:6 preempted for job 3")
    stand.gateway.suspend([str(suspended)])
    assert [job.id for job in stand.gateway.jobs() if job.state is JobState.SUSPENDED] == [suspended]
    stand.now += 100
    with capture_logs() as logs:
        assert rescue(stand.config, stand.gateway, lambda: stand.now) == 0
    (line,) = (entry for entry in logs if entry["event"] == "journal_not_read")
    assert f"journal: {earlier('journal')}" in line["error"] and "marked in Slurm" in line["message"]
    (summary,) = (entry for entry in logs if entry["event"] == "failsafe_released")
    assert (summary["released"], summary["resumed"], summary["still_suspended"]) == (3, 1, [])
    stand.now += 300
    stand.slurm.catch_up()
    assert {stand.slurm.history[job].outcome for job in (suspended, *held)} == {"COMPLETED"}
    assert (stand.config.daemon.state_dir / "journal").read_bytes() == OLD_JOURNAL
    marks = {admin_comment_of(job).mark for each in (suspended, *held) if (job := stand.gateway.find(each)) is not None}
    assert marks == {"omfs:rel:8"}, "numbered on from the highest in Slurm"
