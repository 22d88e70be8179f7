"""Advice on what the ways of stopping and the books need of Slurm."""

from __future__ import annotations

import pytest

from omfs_daemon.cluster.nodes import Node
from omfs_daemon.slurm import preemption_check as advice_stops
from omfs_daemon.slurm.settings_check import Finding
from omfs_daemon.slurm.settings_check import Level
from omfs_daemon.slurm.node_licenses import Book
from omfs_daemon.slurm.gateway import LicenceRow

VE, MEM = Book("ve_{node}", "devices", any="ve"), Book("mem_{node}", "memory")
NODES = [Node("n1", 4, 1), Node("n2", 4, 1), Node("n3", 4, 1)]
ROWS = [LicenceRow("ve_n1", 2, 0), LicenceRow("ve_n2", 2, 1), LicenceRow("ve", 9999, 0), LicenceRow("mem_n1", 8, 0)]


def row(name: str, total: int, used: int = 0) -> list[LicenceRow]:
    return [one for one in ROWS if one.name != name] + [LicenceRow(name, total, used)]


@pytest.mark.parametrize(
    ("hold", "plain", "level"),
    [
        ("101-109", "(null)", Level.OK),
        ("99,100-110,SPECIAL_EXIT", "100", Level.OK),
        ("101-108", "", Level.FAIL),
        ("101", "", Level.FAIL),
        ("(null)", "", Level.FAIL),
        ("nonsense,-", "", Level.FAIL),
        ("101-109", "100-101", Level.FAIL),
    ],
)
def test_exit_codes_that_hold(hold: str, plain: str, level: Level) -> None:
    values = {"RequeueExitHold": hold, "RequeueExit": plain, "JobFileAppend": "1"}
    (found,) = advice_stops.requeue_exit_hold(values, {"dmtcp"})
    assert found.level is level and "dmtcp" in found.what
    assert bool(found.mend) is (level is not Level.OK)


def test_output_that_would_be_emptied_is_warned_of() -> None:
    found = advice_stops.requeue_exit_hold({"RequeueExitHold": "101-109", "JobFileAppend": "0"}, {"criu"})
    assert [(one.level, one.subject) for one in found] == [
        (Level.OK, "RequeueExitHold"),
        (Level.WARN, "JobFileAppend"),
    ]


def test_where_nothing_is_launched_or_counted_nothing_is_said() -> None:
    assert advice_stops.requeue_exit_hold({}, ()) == []
    assert advice_stops.books((), NODES, ROWS) == []
    assert advice_stops.plug_in((), "", "") == []
    assert advice_stops.grants({}, (), NODES, {"suspend": ()}) == []


def book(which: Book, rows: list[LicenceRow]) -> Finding:
    (found,) = advice_stops.books([which], NODES, rows)
    return found


def test_books_that_slurm_has() -> None:
    assert book(VE, ROWS) == (Level.OK, "book ve", "4 on 2 nodes, as ve_{node}; not on n3", "")


@pytest.mark.parametrize(
    ("which", "rows", "level", "word", "mend"),
    [
        (VE, [], Level.FAIL, "no licence ve_{node}", "Licenses=ve_n1:N,ve_n2:N"),
        (VE, [LicenceRow("ve_n1", 2, 0)], Level.FAIL, "no licence ve,", "Licenses=ve:9999"),
        (VE, row("ve", 20), Level.WARN, "20 of ve may run out", "Licenses=ve:9999"),
        (VE, row("ve_n1", 2, 3), Level.WARN, "more is held than there is: ve_n1", "squeue -L"),
    ],
)
def test_books_that_slurm_has_not(which: Book, rows: list[LicenceRow], level: Level, word: str, mend: str) -> None:
    found = book(which, rows)
    assert found.level is level and word in found.what and mend in found.mend


@pytest.mark.parametrize(
    ("books", "any_licences", "words"),
    [
        ("ve_{node}, mem_{node}", "ve", []),
        ("mem_{node}", "ve", ["take ve_{node} off", "books=ve_{node},mem_{node}"]),
        ("ve_{node},mem_{node}", "", ["jobs with ve start", "any_licenses=ve"]),
        ("", "", ["ve_{node}, mem_{node}", "jobs with ve"]),
    ],
)
def test_the_plug_in_guards_them(books: str, any_licences: str, words: list[str]) -> None:
    (found,) = advice_stops.plug_in([VE, MEM], books, any_licences)
    assert found.level is (Level.FAIL if words else Level.OK)
    assert all(word in found.what + found.mend for word in words)


@pytest.mark.parametrize(
    ("select", "books", "level", "word"),
    [
        ("CR_CORE", [MEM], Level.OK, "granted"),
        ("CR_CORE", [VE], Level.WARN, "no book counts memory"),
        ("CR_CORE_MEMORY", [MEM], Level.WARN, "counts memory"),
    ],
)
def test_memory_that_slurm_grants(select: str, books: list[Book], level: Level, word: str) -> None:
    (found,) = advice_stops.grants({"SelectTypeParameters": select}, books, NODES, {"pageout": {"memory"}})
    assert found.level is level and word in found.what and "pageout" in found.what
    assert bool(found.mend) is (level is not Level.OK)


@pytest.mark.parametrize(
    ("gres", "books", "level", "word"),
    [
        ("gpu", [VE], Level.OK, "granted"),
        ("ve", [VE], Level.WARN, "a Gres as well"),
        ("gpu", [MEM], Level.WARN, "no book counts devices"),
    ],
)
def test_devices_that_slurm_grants(gres: str, books: list[Book], level: Level, word: str) -> None:
    nodes = [Node("n1", 4, 1, gres=((gres, 2),))]
    (found,) = advice_stops.grants({}, books, nodes, {"ve_swap": {"devices"}, "suspend": ()})
    assert found.level is level and word in found.what
