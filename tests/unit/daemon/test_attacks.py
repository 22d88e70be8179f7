"""What users try against the daemon's files, its history, and its log; the numbers are those of docs/security.md."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path

import pytest
import structlog
from rich.console import Console, RenderableType

from omfs_daemon.cli.why import why_table
from omfs_daemon.cluster.jobs import JobRequest
from omfs_daemon.config.load import parse_config
from omfs_daemon.config.schema import DaemonSection
from omfs_daemon.daemon.api.operations import perform
from omfs_daemon.daemon.heartbeat import beat
from omfs_daemon.daemon.log import LinesAMinute, LogFormat, set_up
from omfs_daemon.daemon.private_jobs import hide_others, without_others
from omfs_daemon.daemon.root_process.own_user import make_directories
from omfs_daemon.daemon.run_daemon import OPEN_FILES
from omfs_daemon.daemon.store.directory_lock import DirectoryLock
from omfs_daemon.daemon.store.disk import append_synced, write_synced
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.errors import ConfigError, ControlError, JournalError, OmfsError
from omfs_daemon.preemption.effects import Chain, Effects
from omfs_daemon.preemption.records import JobEvent, PaidCost
from omfs_daemon.slurm.orders import HoldJobs, SetNice
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.waiting import LIMIT
from tests.whole_daemon.test_process import ALICE, BOB, ROOT, Stand, reclaimed

# -- A8: the history ------------------------------------------------------------------------------------------------

ROWS = 20_000


@pytest.fixture
def long_history(tmp_path: Path) -> Iterator[HistoryDatabase]:
    history = HistoryDatabase(tmp_path / "history.sqlite")
    history.record_costs(
        PaidCost(float(n), str(n), f"user{n % 100}", "bio", "requeue", "out", 1.0, 0.0, 0, 1.0) for n in range(ROWS)
    )
    yield history
    history.close()


def test_a08_no_more_rows_are_read_than_are_shown(long_history: HistoryDatabase) -> None:
    assert [int(row.time) for row in long_history.costs(0.0, "user7", limit=3)] == [ROWS - 293, ROWS - 193, ROWS - 93]
    assert len(long_history.costs(0.0, limit=10)) == 10


@pytest.mark.parametrize("what", ["cost", "preemption"])
def test_a08_what_a_user_asks_is_found_by_an_index(long_history: HistoryDatabase, what: str) -> None:
    statements: list[str] = []
    long_history._reading.set_trace_callback(statements.append)
    long_history.costs(0.0, "user7", 10) if what == "cost" else long_history.preemptions(10, 0.0, "user7")
    long_history._reading.set_trace_callback(None)
    plan = [row[3] for row in long_history._reading.execute(f"EXPLAIN QUERY PLAN {statements[0]}")]
    assert not [step for step in plan if step.startswith("SCAN")], plan
    assert any("user=?" in step for step in plan), plan


def test_a08_no_write_waits_for_a_reader(long_history: HistoryDatabase) -> None:
    """A reader that takes as long as it likes: it is in the middle of its rows."""
    reading = long_history._reading.execute("SELECT * FROM cost")
    reading.fetchone()
    with long_history._readers:
        written = threading.Thread(
            target=long_history.record_events, args=([JobEvent(1.0, "7", "ann", "bio", "held", "x")],), daemon=True
        )
        written.start()
        written.join(60)
        assert not written.is_alive()
    reading.close()
    assert [event.event for event in long_history.of_job("7")] == ["held"]


# -- D7, D8: modes, owners, links -----------------------------------------------------------------------------------


def section(directory: Path) -> DaemonSection:
    text = f'[daemon]\nstate_dir = "{directory}/state"\nrun_dir = "{directory}/run"\n'
    return parse_config(text, "omfs.toml").daemon


def test_d07_a_link_in_the_place_of_the_heartbeat_is_not_written_through(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    run = tmp_path / "run"
    run.mkdir()
    for name in ("heartbeat", ".heartbeat.new"):
        (run / name).symlink_to(precious)
    beat(run / "heartbeat", 17.0)
    assert precious.read_text() == "precious"
    assert (run / "heartbeat").read_text() == "17\n" and not (run / "heartbeat").is_symlink()
    assert stat.S_IMODE((run / "heartbeat").stat().st_mode) == 0o644


@pytest.mark.parametrize("name", ["state", "run"])
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_d07_directories_in_which_others_may_write_are_refused(tmp_path: Path, name: str, mode: int) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name).chmod(mode)
    with pytest.raises(ConfigError, match="must not be writable for others: chmod go-w"):
        make_directories(section(tmp_path))


def test_d07_and_those_that_others_could_replace(tmp_path: Path) -> None:
    above = tmp_path / "above"
    (above / "there").mkdir(parents=True)
    above.chmod(0o777)
    with pytest.raises(ConfigError, match=f"^{above}: mode 0777"):
        make_directories(section(above / "there"))
    above.chmod(0o1777)
    make_directories(section(above / "there"))
    (tmp_path / "link").symlink_to(above)
    above.chmod(0o777)
    with pytest.raises(ConfigError, match=f"^{above}: mode 0777"):
        make_directories(section(tmp_path / "link" / "there"))


def test_d08_a_state_directory_that_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    make_directories(section(tmp_path))
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o755, "slurmctld reads there"


def test_d08_no_file_of_the_daemons_can_be_read_by_others(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        history = HistoryDatabase(tmp_path / "history.sqlite")
        history.record_events([JobEvent(1.0, "7", "ann", "bio", "held", "x")])
        journal, lock = Journal(tmp_path / "journal"), DirectoryLock(tmp_path)
        write_synced(tmp_path / "entitlements.new", "x")
        append_synced(tmp_path / "audit.jsonl", "{}")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(umask)
    assert set(modes) == {
        "history.sqlite", "history.sqlite-wal", "history.sqlite-shm", "journal", "lock", "entitlements.new",
        "audit.jsonl",
    }  # fmt: skip
    assert set(modes.values()) == {0o600}
    for one in (history, journal, lock):
        one.close()


def test_d08_a_history_of_before_is_closed_to_others(tmp_path: Path) -> None:
    HistoryDatabase(tmp_path / "history.sqlite").close()
    (tmp_path / "history.sqlite").chmod(0o644)
    HistoryDatabase(tmp_path / "history.sqlite").close()
    assert stat.S_IMODE((tmp_path / "history.sqlite").stat().st_mode) == 0o600


def opened(path: Path) -> None:
    match path.name:
        case "history.sqlite":
            HistoryDatabase(path).close()
        case "journal":
            Journal(path).close()
        case "lock":
            DirectoryLock(path.parent).close()
        case "audit.jsonl":
            append_synced(path, "{}")


@pytest.mark.parametrize("name", ["history.sqlite", "journal", "lock", "audit.jsonl"])
@pytest.mark.parametrize("kind", ["link", "fifo", "writable"])
def test_d08_what_others_have_put_there_is_refused(tmp_path: Path, name: str, kind: str) -> None:
    path, elsewhere = tmp_path / name, tmp_path / "elsewhere"
    elsewhere.touch()
    match kind:
        case "link":
            path.symlink_to(elsewhere)
        case "fifo":
            os.mkfifo(path)
        case "writable":
            path.touch()
            path.chmod(0o666)
    with pytest.raises((OmfsError, OSError)) as caught:
        opened(path)
    assert isinstance(caught.value, OSError | OmfsError | JournalError) and "\n" not in str(caught.value)
    assert elsewhere.read_bytes() == b""


# -- D9: PrivateData ------------------------------------------------------------------------------------------------


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path)
    yield found
    found.service.close()


@pytest.mark.parametrize("private", [True, False])
def test_d09_other_users_jobs_are_shown_unless_slurm_hides_them(stand: Stand, private: bool) -> None:
    stand.gateway._settings["PrivateData"] = "accounts,jobs" if private else "none"
    _, physics = reclaimed(stand)
    answers = stand.service.answers
    (known,) = answers.history(ROOT, 10, 0)["preemptions"]
    assert (known["preemptor"], known["account"]) == (str(physics), "physics")
    victim = known["victims"][0]["job"]
    (alices,), (bobs,) = (answers.history(user, 10, 0)["preemptions"] for user in (ALICE, BOB))
    assert (alices["preemptor"], alices["account"]) == (("", "") if private else (str(physics), "physics"))
    assert [one["job"] for one in alices["victims"]] == [victim]
    assert [one["job"] for one in bobs["victims"]] == ([] if private else [victim])
    why = answers.why(ALICE, victim)
    text = f"{why['now']} {[(event['text'], event['data']) for event in why['events']]}"
    assert ("physics" in text, f"job {physics}" in text) == (not private, not private), text


BEAMLINE = '[[class]]\nname = "beamline"\nqos = ["rt"]\nrealtime = true\nslowdown_bound = 1.5\nact_at = 1.2\n'


@pytest.mark.parametrize("private", [True, False])
def test_k33_the_victims_of_a_real_time_job_are_not_named_to_its_owner(stand: Stand, private: bool) -> None:
    stand.service.close()
    text = stand.path.read_text().replace("quantum_seconds = 0", "quantum_seconds = 1000000")
    stand.path.write_text(text.replace("[[class]]", f"{BEAMLINE}\n[[class]]"))
    stand.config = parse_config(stand.path.read_text(), str(stand.path))
    stand.service = stand.serve()
    stand.gateway._settings["PrivateData"] = "jobs" if private else "none"
    alices, bobs = ({str(stand.submit(user, "bio", run_time=5000)) for _ in range(2)} for user in ("alice", "bob"))
    stand.run(1)
    request = JobRequest(4, partitions=("main",), max_nodes=1)
    job = stand.slurm.submit(Submission(request, user="bob", account="physics", qos="rt", time_limit=6000))
    stand.run(2)
    view = stand.service.answers.why(BOB, str(job))
    assert view["realtime"] is not None
    named = {victim["job"] for one in view["realtime"]["sets"] for victim in one["victims"]}
    if private:
        assert named & bobs and named - bobs == {""}, "one's own jobs are shown"
        assert "alice" not in str(view) and "of another user" in shown_lines(why_table(view))
    else:
        assert named & alices and "" not in named
    operators = stand.service.answers.why(ROOT, str(job))["realtime"]
    assert operators and "" not in {victim["job"] for one in operators["sets"] for victim in one["victims"]}


def shown_lines(lines: Iterator[RenderableType]) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(*lines)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_d09_the_owner_of_a_victim_reads_no_other_job_in_admincomment() -> None:
    told = "[omfs] preempted for job 5 (entitled, account physics)"
    effects = Effects(chains=[Chain(fields=(HoldJobs(("4",), told), SetNice(("5",), -3)), preemption=1)])
    hide_others(effects)
    assert effects.chains == [
        Chain((HoldJobs(("4",), "[omfs] preempted for job (not shown) (entitled)"), SetNice(("5",), -3)), (), 1)
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[omfs] preempted for job 12 (urgent, account weather)", "[omfs] preempted for job (not shown) (urgent)"),
        ("preempted (dmtcp) for job 12_[1-3,7%2] of account w, which is urgent",
         "preempted (dmtcp) for job (not shown), which is urgent"),
        ("preempting 7, 8_3 for it: entitled", "preempting (not shown) for it: entitled"),
        ("Slurm has started 12, 13 there", "Slurm has started (not shown) there"),
        ("started 3.2 s after it was submitted", "started 3.2 s after it was submitted"),
    ],
)  # fmt: skip
def test_d09_sentences_without_jobs_and_accounts(text: str, shown: str) -> None:
    assert without_others(text) == shown


# -- references of jobs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ref", ["5_[0-9999999]", "5_[" + ",".join(["0-9999999"] * 90) + "]", "5_[0-9999999:1,x"])
@pytest.mark.parametrize("operation", ["why", "when", "predict"])
def test_k01_a_list_of_tasks_in_a_request_is_not_expanded(stand: Stand, operation: str, ref: str) -> None:
    """Each task would be a number in the daemon's memory: ten million of them, ninety times over."""
    stand.run(1)
    given: dict[str, object] = {"jobs": [ref]} if operation == "when" else {"job": ref}
    tracemalloc.start()
    try:
        with suppress(ControlError, ConfigError):
            perform(stand.service.answers, ALICE, {"op": operation, "args": given})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50 << 20


@pytest.mark.parametrize("ref", ["", "x", "5_", "5_[]", "5_[3", "1" * 11, "-1", "5 6", "\u0663", "5_[3-4]\n", "5+"])
def test_k01_what_is_no_reference_is_refused_in_one_line(stand: Stand, ref: str) -> None:
    stand.run(1)
    with pytest.raises(ConfigError, match=r"^job = .*: must be a job \(12\), a task \(12_3\), or a part \(12\+1\)$"):
        stand.service.answers.why(ALICE, ref)


def test_k02_a_thousand_unknown_jobs_are_not_a_thousand_calls_of_slurm(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.run(1)
    asked: list[object] = []
    monkeypatch.setattr(stand.service.answers._gateway, "find", lambda ref: asked.append(ref))
    view = stand.service.answers.when(ALICE, [str(900_000 + number) for number in range(1000)], False)
    assert (len(asked), len(view["none"])) == (10, 1000)


# -- the log --------------------------------------------------------------------------------------------------------


def test_a11_an_event_that_comes_too_often_is_counted() -> None:
    now = [0.0]
    bound = LinesAMinute(3, lambda: now[0])

    def shown(event: str, times: int) -> list[dict[str, object]]:
        found = []
        for _ in range(times):
            with suppress(structlog.DropEvent):
                found.append(dict(bound(None, "info", {"event": event})))
        return found

    assert len(shown("often", 10)) == 3
    assert len(shown("seldom", 2)) == 2, "each event for itself"
    now[0] = 61.0
    assert shown("often", 2) == [{"event": "often", "not_shown": 7}, {"event": "often"}]


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_d02_nothing_in_a_log_line_or_traceback_moves_the_cursor(log_format: LogFormat) -> None:
    out = io.StringIO()
    set_up(log_format, "info", out)
    odd = "\x1b[2J\r\u202e\x9b\x07"
    try:
        raise ValueError(f"bad {odd}\nfake_event level=info")
    except ValueError:
        structlog.get_logger("x").exception("failed", account=f"a{odd}\nfake_event", message=odd)
    text = out.getvalue()
    assert "failed" in text and "ValueError" in text
    assert all(character.isprintable() or character == "\n" for character in text)
    if log_format == "json":
        assert text.count("\n") == 1


def test_descriptors_are_raised_at_start_as_far_as_they_may() -> None:
    code = (
        "import resource; from omfs_daemon.daemon.run_daemon import _raise_file_limit as r;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, {hard})); r();"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    for hard, soft in ((2000, 2000), (4500, OPEN_FILES)):
        done = subprocess.run(
            [sys.executable, "-c", code.format(hard=hard)], capture_output=True, text=True, timeout=LIMIT, check=True
        )
        assert int(done.stdout) == soft


# -- linear in what users send --------------------------------------------------------------------------------------


def test_d09_leaving_out_is_linear() -> None:
    texts = ["job 1" + "," * n + " account" * n + ", 1_[" * n for n in (2_000, 20_000)]
    small, large = (_seconds(text) for text in texts)
    assert large < 40 * small + 0.05


def _seconds(text: str) -> float:
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        without_others(text)
        best = min(best, time.process_time() - began)
    return best
