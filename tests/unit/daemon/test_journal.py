"""The journal: what it survives, and what it refuses."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Allocation
from omfs_daemon.daemon.store.file_format import JOURNAL
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.errors import JournalError
from omfs_daemon.preemption.ownership import JobField, OwnedField
from omfs_daemon.preemption.preemption import Preemption, PreemptionOutcome, Preemptor, Step, VictimState
from omfs_daemon.preemption.preemptor_backoffs import (
    PreemptorBackoffs,
    ServedJob,
    ShapeBackoff,
    Unstarted,
    UserBackoff,
)
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
    Pause,
    PreemptionChanged,
    PreemptorBackoff,
    State,
    UsersBackOff,
    VictimBackoff,
    WholeState,
    from_json,
    to_json,
)

PREEMPTION = Preemption(
    id=7,
    step=Step.STOPPING,
    begun=1.0,
    since=2.0,
    reason="urgent",
    preemptor=Preemptor(
        "3_4", "physics", "bob", True, False, 0.5, (Allocation("n1", 4, 1 << 33),), -5, (("fluent", 2),)
    ),
    victims=(VictimState("1", "bio", "alice", "requeue", 4, 0.25),),
    refused=(("1", 'said "no"\n'),),
)
SERVED = replace(
    PREEMPTION,
    id=8,
    step=Step.DONE,
    preemptor=replace(PREEMPTION.preemptor, urgent=False),
    started_at=5.0,
    outcome=PreemptionOutcome.STARTED,
)
NICE = FieldSet("5", JobField.NICE, OwnedField(-7, 3, "rank", 4.0))
NODES = FieldSet("5", JobField.NODES, OwnedField(("n1", "n2"), (), "preemption 7", 4.0))
RECORDS = (
    ClusterNamed("fluent"),
    PreemptionChanged(PREEMPTION),
    JobPreempted("1", 2.0, "requeue", "3_4"),
    JobPreempted("2", 3.0, "suspend", "3_4"),
    JobRunsAgain("2", 4.0, True),
    PreemptorBackoff("9", 300.0),
    PreemptorBackoff("10", 300.0, ShapeBackoff("same", 300.0, 1, 2.0)),
    PreemptorBackoff("11", 900.0, ShapeBackoff("others", 900.0, 2, 3.0), Unstarted("others", "Licenses", True)),
    BackoffOver(("10",), ("same",)),
    VictimBackoff("8", 300.0),
    PreemptionChanged(SERVED),
    UsersBackOff(("0",), {"alice": UserBackoff((1.0, 2.0), 3.0)}),
    OrdersNumbered(12, holds=("5", "6_[1-3]"), releases=("4",)),
    FieldsSet((NICE, NODES)),
    FieldsLeft((("5", JobField.NICE),)),
    HoldsOver(("5",)),
    Pause("root", 5.0, "a reason"),
)


def written(path: Path) -> State:
    journal = Journal(path)
    journal.write(*RECORDS)
    journal.close()
    return journal.state


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    state = written(tmp_path / "journal")
    assert state.preemptions == {7: PREEMPTION}
    assert state.running_since == {"2": 4.0}
    assert state.owned == {"5": {JobField.NODES: NODES.owned}}
    assert (state.sequence, state.held, state.releasing) == (12, {"6_[1-3]": 12}, {"4": 12})
    (others,) = state.backoff.shapes.values()
    assert state.backoff == PreemptorBackoffs(
        {"9": 300.0, "11": 900.0},
        {"11": Unstarted("others", "Licenses", True)},
        {"others": others},
        {"3_4": ServedJob("bob", 5.0)},
        {"alice": UserBackoff((1.0, 2.0), 3.0)},
    )
    assert Journal(tmp_path / "journal").state == state


def test_a_state_from_before_back_offs_had_reasons_is_read_without_them() -> None:
    data = to_json(WholeState(State(cluster="fluent", sequence=7)))
    data["state"]["backoff"] = {"9": 300.0}
    assert from_json(data) == WholeState(State(cluster="fluent", sequence=7))


def test_compacting_keeps_the_state_and_the_journal_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    state = written(path)
    journal = Journal(path)
    assert not journal.compact_if_large()
    assert journal.compact_if_large(at=1)
    assert len(path.read_bytes().splitlines()) == 1
    assert Journal(path).state == state
    journal.write(JobsGone(("1", "2", "8", "9", "11")))
    assert Journal(path).state == journal.state
    assert journal.state.preempted == {}
    assert not journal.state.backoff.until
    assert not journal.state.backoff.unstarted


def test_a_torn_last_line_is_cut_off_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path)
    whole = path.read_bytes()
    before = whole[: whole.rstrip(b"\n").rindex(b"\n") + 1]
    for end in range(len(before), len(whole)):
        path.write_bytes(whole[:end])
        journal = Journal(path)
        assert journal.state.pause is None
        journal.close()
        assert path.read_bytes() == before


def test_damage_in_the_middle_is_named_and_not_guessed_at(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path)
    damaged = bytearray(path.read_bytes())
    damaged[40] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(JournalError, match=r"journal:1: the line is damaged"):
        Journal(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"kind":"Teleported","ref":"1"}', "does not know"),
        (b'{"kind":"OrdersNumbered","number":12,"holds":["6_[a]"],"releases":["4"]}', "not a list of array tasks: 'a'"),
    ],
    ids=["unknown", "no reference"],
)
def test_a_record_that_omfsd_cannot_have_written_is_refused(tmp_path: Path, text: bytes, why: str) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"%d %08x %s\n" % (JOURNAL.newest, zlib.crc32(text), text))
    with pytest.raises(JournalError, match=why):
        Journal(path)


def test_a_full_disk_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    written(path)
    before = path.read_bytes()
    journal = Journal(path)
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:10]))
    with pytest.raises(JournalError, match="No space left"):
        journal.write(JobsGone(("1",)))
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert "1" in journal.state.preempted
    journal.write(JobsGone(("1",)))
    assert Journal(path).state == journal.state


def test_a_preemption_that_is_over_is_forgotten_and_its_number_not_used_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.write(PreemptionChanged(PREEMPTION))
    journal.write(PreemptionChanged(replace(PREEMPTION, step=Step.DONE, outcome=PreemptionOutcome.STARTED)))
    assert journal.state.preemptions == {}
    assert journal.state.next_preemption == 8
