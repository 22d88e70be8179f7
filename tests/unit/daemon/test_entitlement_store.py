"""The store of entitlements: what is in force, what a crash leaves, what the audit log holds."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.config.entitlement_text import from_csv, from_rows, from_toml, to_rows, to_toml
from omfs_daemon.daemon.store import audit_log, disk
from omfs_daemon.daemon.store import entitlement_store as module
from omfs_daemon.daemon.store.audit_log import AuditLog
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore, apply_change, conflict_text, entitlements_in
from omfs_daemon.errors import ConfigError, ControlError


class Who(NamedTuple):
    uid: int = 1000
    user: str = "ann"


CONFIGURED = (Entitlement("bio", Fraction(50)), Entitlement("physics", Fraction(40)))


@pytest.fixture
def store(tmp_path: Path) -> EntitlementStore:
    return EntitlementStore(tmp_path, CONFIGURED, AuditLog(tmp_path, lambda: 1000.0))


def set_one(store: EntitlementStore, name: str, percent: Fraction, parent: str | None) -> list[str]:
    return store.set([Entitlement(name, percent, parent or "")], [name] if parent is None else [], Who())


def audit(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / "audit.jsonl").read_text().splitlines()]


def percent_by_account(store: EntitlementStore) -> dict[str, Fraction]:
    return {entitlement.name: entitlement.percent for entitlement in store.entitlements}


def test_configuration_holds_until_the_first_change(store: EntitlementStore, tmp_path: Path) -> None:
    assert store.entitlements == CONFIGURED and store.source == "configuration file"
    assert set_one(store, "bio", Fraction("12.5"), None) == ["bio: 50 % -> 12.5 %"]
    assert store.source == str(tmp_path / "entitlements.toml")
    again = EntitlementStore(tmp_path, (Entitlement("other", Fraction(1)),), AuditLog(tmp_path, lambda: 0.0))
    assert again.entitlements == store.entitlements == (Entitlement("bio", Fraction("12.5")), CONFIGURED[1])


def test_reloaded_configuration_counts_only_while_nothing_was_changed(store: EntitlementStore) -> None:
    store.configured((Entitlement("chem", Fraction(5)),))
    assert percent_by_account(store) == {"chem": 5}
    set_one(store, "chem", Fraction(6), None)
    store.configured((Entitlement("chem", Fraction(5)),))
    assert percent_by_account(store) == {"chem": 6} and store.conflict() == []


def test_a_configuration_edited_after_a_change_is_a_conflict_with_both_values(tmp_path: Path) -> None:
    store = EntitlementStore(tmp_path, CONFIGURED, AuditLog(tmp_path, lambda: 0.0))
    edited = (Entitlement("bio", Fraction(10)), CONFIGURED[1])
    assert store.conflict(edited) == [], "nothing was changed by the command"
    set_one(store, "bio", Fraction(20), None)
    assert store.conflict() == [], "the file is as it was"
    assert store.conflict(CONFIGURED[::-1]) == [], "in whatever order"
    assert store.conflict(edited) == ["bio: 20 % -> 10 %"]
    assert "omfs entitlements import FILE" in conflict_text(store.conflict(edited))
    again = EntitlementStore(tmp_path, edited, AuditLog(tmp_path, lambda: 0.0))
    assert again.conflict() == ["bio: 20 % -> 10 %"], "also after a restart"
    set_one(again, "physics", Fraction(30), None)
    assert again.conflict() == ["bio: 20 % -> 10 %", "physics: 30 % -> 40 %"], "another change settles nothing"
    again.replace_all(edited, Who())
    assert again.conflict() == []
    assert EntitlementStore(tmp_path, edited, AuditLog(tmp_path, lambda: 0.0)).conflict() == []


def test_several_are_set_at_once_or_none(store: EntitlementStore, tmp_path: Path) -> None:
    rows = [{"account": "bio", "percent": "30"}, {"account": "physics", "percent": "60"}]
    assert apply_change(store, {"op": "set", "entitlements": rows}, Who()) == [
        "bio: 50 % -> 30 %",
        "physics: 40 % -> 60 %",
    ]
    assert len(audit(tmp_path)) == 1
    for wrong in ({"account": "bio", "percent": "41"}, {"account": "x", "percent": "-1"}, rows[0]):
        with pytest.raises(ConfigError):
            apply_change(store, {"op": "set", "entitlements": [{"account": "bio", "percent": "1"}, wrong]}, Who())
    assert percent_by_account(store) == {"bio": 30, "physics": 60}


def test_an_entitlement_may_be_a_number_of_cpus(store: EntitlementStore, tmp_path: Path) -> None:
    row = {"account": "bio", "percent": "cpus=8"}
    assert apply_change(store, {"op": "set", "entitlements": [row]}, Who()) == ["bio: 50 % -> 8 CPUs"]
    again = EntitlementStore(tmp_path, CONFIGURED, AuditLog(tmp_path, lambda: 0.0))
    assert again.entitlements == store.entitlements == (Entitlement("bio", Fraction(0), "", 8), CONFIGURED[1])
    assert from_csv("account,percent\nbio,cpus=8\nphysics,40\n", "x.csv") == again.entitlements
    for wrong in ("cpus=", "cpus=-1", "cpus=1.5", "cpus=9999999999", "8 cpus"):
        with pytest.raises(ConfigError, match="cpus=NUMBER"):
            apply_change(store, {"op": "set", "entitlements": [{"account": "bio", "percent": wrong}]}, Who())


def test_audit_says_who_when_and_what(store: EntitlementStore, tmp_path: Path) -> None:
    set_one(store, "chem", Fraction(5), "bio")
    store.remove("chem", Who(0, "root"))
    first, second = audit(tmp_path)
    assert (first["time"], first["uid"], first["user"]) == (1000.0, 1000, "ann")
    assert first["changed"] == ["chem: none -> 5 % of bio"]
    assert first["old"] == to_rows(CONFIGURED)
    assert second["user"] == "root" and second["changed"] == ["chem: 5 % of bio -> none"]


@pytest.mark.parametrize(
    "change",
    [
        lambda store: set_one(store, "bio", Fraction(61), None),
        lambda store: set_one(store, "bio", Fraction(5), "nobody"),
        lambda store: set_one(store, "bio", Fraction(5), "bio"),
        lambda store: store.remove("nobody", Who()),
        lambda store: store.replace_all([Entitlement("a", Fraction(60)), Entitlement("b", Fraction(60))], Who()),
    ],
)
def test_wrong_change_leaves_nothing_behind(
    store: EntitlementStore, tmp_path: Path, change: Callable[[EntitlementStore], object]
) -> None:
    with pytest.raises(ConfigError):
        change(store)
    assert store.entitlements == CONFIGURED
    assert list(tmp_path.iterdir()) == []


def test_parent_cannot_go_before_its_children(store: EntitlementStore) -> None:
    set_one(store, "lab", Fraction(10), "bio")
    with pytest.raises(ConfigError, match=r"has accounts below it \(lab\): remove them first"):
        store.remove("bio", Who())
    assert set_one(store, "lab", Fraction(10), "") == ["lab: 10 % of bio -> 10 %"]


@pytest.mark.parametrize(("place", "step"), [(module, "write_synced"), (audit_log, "append_synced")])
def test_full_disk_changes_nothing(
    store: EntitlementStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: ModuleType, step: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(place, step, full)
    with pytest.raises(ControlError, match=r"nothing was changed: .*: No space left on device"):
        set_one(store, "bio", Fraction(1), None)
    assert store.entitlements == CONFIGURED
    assert EntitlementStore(tmp_path, CONFIGURED, AuditLog(tmp_path, lambda: 0.0)).entitlements == CONFIGURED


def test_what_is_in_force_stays_where_it_cannot_be_synced(
    store: EntitlementStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk, "sync_directory", broken)
    assert set_one(store, "bio", Fraction(1), None) == ["bio: 50 % -> 1 %"]
    assert percent_by_account(store)["bio"] == 1
    assert EntitlementStore(tmp_path, CONFIGURED, AuditLog(tmp_path, lambda: 0.0)).entitlements == store.entitlements


def test_crash_before_the_change_is_in_force_leaves_the_old_ones(store: EntitlementStore, tmp_path: Path) -> None:
    """The draft and the audit line may be there; the entitlements in force are the old ones, whole."""
    set_one(store, "bio", Fraction(1), None)
    (tmp_path / "entitlements.new").write_text("[entitlem")
    with (tmp_path / "audit.jsonl").open("a") as file:
        file.write('{"time": 5, "torn')
    again = EntitlementStore(tmp_path, CONFIGURED, AuditLog(tmp_path, lambda: 2.0))
    assert percent_by_account(again) == {"bio": 1, "physics": 40}
    set_one(again, "bio", Fraction(2), None)
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert lines[1] == '{"time": 5, "torn'
    assert json.loads(lines[2])["changed"] == ["bio: 1 % -> 2 %"]


def test_damaged_file_is_an_error_not_a_guess(tmp_path: Path) -> None:
    (tmp_path / "entitlements.toml").write_text("format = 1\n[entitlements.bio]\npercent = 500\n")
    with pytest.raises(ConfigError, match=r"entitlements.toml: entitlements.bio.percent = 500"):
        EntitlementStore(tmp_path, CONFIGURED, AuditLog(tmp_path, lambda: 0.0))


# -- requests ----------------------------------------------------------------------------------------


def test_requests_are_applied(store: EntitlementStore) -> None:
    assert apply_change(store, {"op": "set", "entitlements": [{"account": "bio", "percent": "33.3"}]}, Who()) == [
        "bio: 50 % -> 33.3 %"
    ]
    assert apply_change(
        store, {"op": "set", "entitlements": [{"account": "lab", "percent": "5", "parent": "bio"}]}, Who()
    )
    assert apply_change(store, {"op": "set", "entitlements": [{"account": "lab", "percent": "6"}]}, Who()) == [
        "lab: 5 % of bio -> 6 % of bio"
    ]
    assert apply_change(store, {"op": "remove", "account": "lab"}, Who())
    assert apply_change(
        store, {"op": "replace", "entitlements": [{"account": "x", "percent": "7", "parent": ""}]}, Who()
    )
    assert store.entitlements == (Entitlement("x", Fraction(7)),)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"op": "drop"},
        {"op": "set", "entitlements": [{"account": "bio"}]},
        {"op": "set", "entitlements": [{"account": "bio", "percent": "much"}]},
        {"op": "set", "entitlements": [{"account": "bio", "percent": True}]},
        {"op": "set", "entitlements": [{"account": "bio", "percent": "1", "parent": 3}]},
        {"op": "remove", "account": 7},
        {"op": "replace", "entitlements": {}},
        {"op": "replace", "entitlements": [{"account": "x"}]},
        {"op": "replace", "entitlements": ["x"]},
    ],
)
def test_requests_that_are_not_right_are_refused(store: EntitlementStore, change: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        apply_change(store, change, Who())
    assert store.entitlements == CONFIGURED


def test_named_shares_of_a_request() -> None:
    assert entitlements_in({"op": "set", "entitlements": [{"account": "x", "percent": "7"}]}) == (
        Entitlement("x", Fraction(7)),
    )
    assert entitlements_in({"op": "remove", "account": "x"}) == ()


# -- formats -----------------------------------------------------------------------------------------


def test_toml_and_rows_and_csv_bring_back_the_same() -> None:
    entitlements = (Entitlement("top", Fraction("0.000001")), Entitlement('a "dot.ted"', Fraction("29.5"), "top"))
    assert from_toml(to_toml(entitlements), "f") == entitlements
    assert from_rows(to_rows(entitlements)) == entitlements
    assert from_csv("account, percent, parent\na,29.5,top\ntop,50,\n", "f") == (
        Entitlement("a", Fraction("29.5"), "top"),
        Entitlement("top", Fraction(50)),
    )
    assert from_csv("account,percent\na,1\n", "f") == (Entitlement("a", Fraction(1)),)
    assert from_toml(to_toml(()), "f") == ()


def test_a_file_of_entitlements_that_was_moved_away_can_be_imported() -> None:
    entitlements = (Entitlement("top", Fraction(50)),)
    assert from_toml("# Written by omfsd\nformat = 2\n\n" + to_toml(entitlements), "f") == entitlements


def test_fraction_without_a_decimal_is_cut_not_rounded_up() -> None:
    third = from_toml(to_toml((Entitlement("a", Fraction(200, 3)),)), "f")[0].percent
    assert Fraction(66) < third < Fraction(200, 3)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "f.csv: line 1 = ''"),
        ("a,50\n", "f.csv: line 1 = 'a,50': must be account,percent,parent"),
        ("account,percent\na,x\n", "f.csv: line 2: percent = 'x': must be a number"),
        ("account,percent\na\n", "f.csv: line 2: must be account,percent,parent"),
        ("account,percent\na,1,b,c\n", "f.csv: line 2: must be account,percent,parent"),
        ("account,percent\na,60\nb,60\n", "f.csv: the accounts at the top add up to 120 %"),
        ('account,percent\n"a,1\n', "f.csv: line 2: unexpected end of data: must be CSV"),
    ],
)
def test_wrong_csv(text: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_csv(text, "f.csv")
    assert str(caught.value).startswith(part)
