"""Checks of classes: every unknown name is reported at once, and every class that no job can reach."""

from __future__ import annotations

from omfs_daemon.slurm.class_check import ClassNames, KnownNames, class_findings
from omfs_daemon.slurm.settings_check import Level

KNOWN = KnownNames({"main", "urgent"}, {"normal", "high"}, {"bio", "physics"})


def whats(*classes: ClassNames, known: KnownNames = KNOWN) -> list[str]:
    return [finding.what for finding in class_findings(classes, known) if finding.level is Level.FAIL]


def test_unknown_names_are_reported_all_at_once() -> None:
    found = class_findings(
        [ClassNames("a", partition=["urgnt", "main"], qos=["hgh", "x"]), ClassNames("b", account=["weather"])], KNOWN
    )
    assert [finding.what for finding in found] == [
        "class 'a': partition = urgnt: unknown to Slurm",
        "class 'a': qos = hgh, x: unknown to Slurm",
        "class 'b': account = weather: unknown to Slurm",
    ]
    assert [finding.level for finding in found] == [Level.FAIL] * 3
    assert found[0].fix == "did you mean urgent? correct the name; there are: main, urgent"


def test_what_nobody_can_say_is_not_unknown() -> None:
    assert whats(ClassNames("a", qos=["x"], account=["y"]), known=KnownNames({"main"}, None, None)) == []
    assert whats(ClassNames("a", qos=["x"]), known=KnownNames({"main"}, frozenset(), None)) != []


def test_a_class_behind_one_that_matches_everything_is_reported() -> None:
    urgent, rest = ClassNames("urgent", partition=["urgent"]), ClassNames("rest")
    assert whats(urgent, rest) == []
    assert whats(rest, urgent) == ["class 'urgent' has no jobs: 'rest', which is before it, matches every job"]


def test_a_class_behind_a_wider_one_is_reported() -> None:
    wide = ClassNames("wide", partition=["main", "urgent"])
    narrow = ClassNames("narrow", partition=["main"], account=["bio"])
    assert whats(wide, narrow) == ["class 'narrow' has no jobs: 'wide', which is before it, matches all of its jobs"]
    assert whats(narrow, wide) == []
    assert whats(ClassNames("q", qos=["high"]), ClassNames("p", partition=["main"])) == []


def test_right_classes_are_one_good_finding_and_none_without_classes() -> None:
    assert [finding.level for finding in class_findings([ClassNames("rest")], KNOWN)] == [Level.OK]
    assert class_findings([], KNOWN) == []
