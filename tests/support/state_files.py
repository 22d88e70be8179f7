"""One of each file of the state directory, as this version writes it.

``python -m tests.support.state_files`` adds those of formats that tests/fixtures/state does not have yet. What is there
was written by a version that may be in use somewhere: it is never written anew.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.cluster.exemptions import Exemption, ExemptKind
from omfs_daemon.cluster.jobs import Allocation
from omfs_daemon.cluster.snapshot import RealtimeRun
from omfs_daemon.daemon.store.audit_log import AuditLog
from omfs_daemon.daemon.store.ended_jobs import EndedJobs, Foreseen
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
from omfs_daemon.daemon.store.idle_hours import IdleShare
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.daemon.store.shadow_rows import ShadowKind, ShadowRow
from omfs_daemon.daemon.store.wait_hours import StartedJob, wait_shares
from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.job_ends import JobEnd
from omfs_daemon.predict.prediction import HowEnded
from omfs_daemon.preemption.effects import PreemptionEnd
from omfs_daemon.preemption.ownership import JobField, OwnedField
from omfs_daemon.preemption.preemption import Preemption, PreemptionOutcome, Preemptor, Step, VictimState
from omfs_daemon.preemption.preemptor_backoffs import NodeDoubt, ShapeBackoff, Unstarted, UserBackoff
from omfs_daemon.preemption.realtime_memory import RealtimeSeen
from omfs_daemon.preemption.records import JobEvent, PaidCost
from omfs_daemon.preemption.state import (
    BackoffOver,
    ClusterNamed,
    FieldSet,
    FieldsLeft,
    FieldsSet,
    HoldsOver,
    JobPreempted,
    JobRunsAgain,
    JobsGone,
    OrdersNumbered,
    OrdersSaved,
    Pause,
    PauseEnded,
    PreemptionChanged,
    PreemptorBackoff,
    Record,
    State,
    TransitionsOrdered,
    UsersBackOff,
    VictimBackoff,
    WholeState,
)
from omfs_daemon.preemption.state_fold import state_after
from omfs_daemon.preemption.unsaved_order import UnsavedOrder, Verb
from omfs_daemon.starts.track_record import NotedStart

FIXTURES = Path(__file__).parents[1] / "fixtures" / "state"
CLUSTER = "fake"
BEGUN = 1_750_000_000.0
PREEMPTOR = Preemptor(
    ref="3_4",
    account="physics",
    user="bob",
    urgent=True,
    suspended=True,
    submitted=BEGUN - 60,
    allocations=(Allocation("n1", 4, 1 << 33),),
    nice=-5,
    licenses=(("fluent", 2),),
    method="pageout",
    lacks_devices=True,
    restarts=1,
    run_time=90.5,
    shape="4 CPUs",
    doubted="4 CPUs on n2",
)
VICTIM = VictimState(
    ref="1",
    account="bio",
    user="alice",
    method="suspend",
    cpus=4,
    start=BEGUN - 600,
    last_resort="requeue",
    failed_before=1,
    keeps=(("fluent", 1),),
    gres=(("gpu", 2),),
    waits_since=BEGUN - 900,
)
UNDER_WAY = Preemption(
    id=7,
    step=Step.STOPPING,
    begun=BEGUN,
    since=BEGUN + 1,
    reason="urgent",
    preemptor=PREEMPTOR,
    victims=(VICTIM,),
    asks=True,
    is_released=True,
    refused=(("1", 'said "no"\n'),),
    beside=6,
)
OVER = Preemption(
    id=6,
    step=Step.DONE,
    begun=BEGUN - 30,
    since=BEGUN - 20,
    reason="entitled",
    preemptor=replace(PREEMPTOR, ref="12", urgent=False),
    victims=(replace(VICTIM, ref="8"),),
    started_at=BEGUN - 10,
    outcome=PreemptionOutcome.STARTED,
)
ORDER = UnsavedOrder(Verb.SUSPEND, 2, BEGUN - 300, "2025-06-15T15:00:00", BEGUN)
RELEASE = UnsavedOrder(Verb.RELEASE, 4, None, "2025-06-15T15:00:00", BEGUN, is_released=True)
CHANGES: tuple[Record, ...] = (
    ClusterNamed(CLUSTER),
    JobPreempted("8", BEGUN - 20, "requeue", "12"),
    PreemptionChanged(OVER),
    PreemptionChanged(UNDER_WAY),
    OrdersNumbered(12, holds=("5", "6_[1-3]", "10"), releases=("4",)),
    HoldsOver(("10",)),
    FieldsSet(
        (
            FieldSet("5", JobField.NICE, OwnedField(-7, 3, "rank", BEGUN)),
            FieldSet("5", JobField.NODES, OwnedField(("n1", "n2"), (), "preemption 7", BEGUN)),
        )
    ),
    FieldsLeft((("5", JobField.NICE),)),
    TransitionsOrdered({"1": ORDER, "2": ORDER, "4": RELEASE}),
    OrdersSaved(("1", "4")),
    JobPreempted("2", BEGUN, "suspend", "3_4", (("gpu", 1),), BEGUN - 900),
    JobRunsAgain("8", BEGUN + 5, True),
    PreemptorBackoff(
        "9",
        BEGUN + 300,
        ShapeBackoff("same", BEGUN + 300, 1, BEGUN),
        Unstarted("same", "Licenses", True),
        {"same on n3": NodeDoubt(BEGUN + 600, 2, BEGUN)},
        ("1", "2"),
    ),
    PreemptorBackoff("11", BEGUN + 900, ShapeBackoff("others", BEGUN + 900, 2, BEGUN)),
    BackoffOver(("11",), ("others",), ("others on n3",)),
    UsersBackOff((), {"alice": UserBackoff((BEGUN, BEGUN + 1), BEGUN + 60)}),
    VictimBackoff("13", BEGUN + 300, 2),
    RealtimeSeen({"14": 600.0}, {"14": RealtimeRun(1, 20.0, 30.0)}, ("15",), ("16",)),
    JobsGone(("17",)),
    Pause("root", BEGUN, "a reason"),
    PauseEnded("root", BEGUN + 1),
    Pause("root", BEGUN + 2, "another reason"),
)
END = JobEnd(
    21,
    BEGUN,
    BEGUN + 60,
    JobFeatures("alice", "bio", "main", "normal", "run_17", "run_#", 4, 1, "gpu:1", 600.0, 15),
    60.0,
    HowEnded.BY_ITSELF,
)


class Root:
    """Who changes entitlements."""

    uid = 0
    user = "root"


def records() -> tuple[Record, ...]:
    """A compacted journal that has grown since."""
    return (WholeState(state_after(State(), CHANGES)), *CHANGES)


def write_state(directory: Path) -> None:
    """Write all files of the table."""
    journal = Journal(directory / JOURNAL.name)
    journal.write(*records())
    journal.close()
    audit = AuditLog(directory, lambda: BEGUN)
    entitlements = EntitlementStore(directory, (), audit)
    entitlements.replace_all((Entitlement("bio", Fraction("12.5")), Entitlement("lab", Fraction(10), "bio")), Root())
    exemptions = ExemptionStore(directory, audit, lambda: BEGUN)
    exemptions.add(Exemption(ExemptKind.USER, "carol", BEGUN + 9), Root())
    history = HistoryDatabase(directory / HISTORY.name)
    history.record_tasks(BEGUN, {22: "3_4"})
    history.record_events([JobEvent(BEGUN, "1", "alice", "bio", "preempted", "a text", {"preemptor": "3_4"})])
    history.record_preemption(PreemptionEnd(OVER, frozenset({"8"})))
    history.record_costs([PaidCost(BEGUN, "1", "alice", "bio", "suspend", "out", 0.5, 0.25, 1 << 20, 7.0, 1, 0.1)])
    history.record_shadow([ShadowRow(ShadowKind.START, "5", BEGUN, "bob", "physics", "regular", 4, ended=BEGUN + 9)])
    history.add_idle([IdleShare(BEGUN, "limited", 3600.0, 7200.0)])
    history.add_waits(wait_shares([StartedJob(BEGUN, "main", "bio", 90.0)]))
    history.close()
    ended = EndedJobs(directory / ENDED_JOBS.name, 100)
    ended.foresee([Foreseen(job, "alice", "ladder", 50.0, 90.0, BEGUN, BEGUN, BEGUN + 9, None) for job in (21, 23)])
    noted = NotedStart(25, BEGUN, 60.0, 90.0, 2, BEGUN + 3600)
    ended.keep_noted([("alice", noted), ("mallory", noted._replace(job=26))])
    ended.add([END, END._replace(job=24, how=None)])
    ended.forget_user("mallory", BEGUN)
    ended.ask_to_learn(BEGUN - 86400, BEGUN)
    ended.close()


def fixture(file: StateFile, number: int) -> Path:
    return FIXTURES / file.name / str(number)


def put(directory: Path, file: StateFile, number: int) -> Path:
    """Copy the fixture of a format to where omfsd expects the file; its path."""
    return Path(shutil.copy(fixture(file, number), directory / file.name))


def put_all(directory: Path) -> None:
    """Of the newest formats."""
    for file in STATE_FILES:
        put(directory, file, file.newest)


def make_later(path: Path, file: StateFile) -> None:
    """Let a file of the newest format be of the next one."""
    ours, later = file.newest, file.newest + 1
    if path.suffix == ".sqlite":
        database = sqlite3.connect(path)
        database.execute("PRAGMA journal_mode=DELETE")
        database.execute(f"PRAGMA user_version={later}")
        database.close()
        return
    numbers = {EXEMPTIONS: '"format": {},', JOURNAL: "{} ", ENTITLEMENTS: "format = {}\n", AUDIT: '{{"format": {}, '}
    number = numbers[file]
    lines = path.read_text().splitlines(keepends=True)
    begin = number.format(ours)
    path.write_text("".join(line.replace(begin, number.format(later), 1) for line in lines))
    assert file.number(path) == later


def be_next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on each file has one more format, in which it is written; the older ones are still read."""
    newer = {file: file._replace(newest=file.newest + 1) for file in STATE_FILES}
    modules = [module for name, module in sys.modules.items() if name.startswith("omfs_daemon.")]
    for module in modules:
        for name, value in list(vars(module).items()):
            if isinstance(value, StateFile):
                monkeypatch.setattr(module, name, newer[value])
            elif isinstance(value, tuple) and value and all(isinstance(each, StateFile) for each in value):
                monkeypatch.setattr(module, name, tuple(newer[each] for each in value))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        write_state(Path(made))
        for each in STATE_FILES:
            place = fixture(each, each.newest)
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(Path(made) / each.name, place)
