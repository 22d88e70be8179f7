"""docs/security.md names tests that exist, and all of those about hostile users."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
ATTACKS = PAGE.partition("## Attacks")[2].partition("\n## ")[0]
NAMED = re.findall(r"`(\w+(?:/\w+)*/test_\w+\.py)::(test_\w+)`", PAGE)
HOSTILE = "integration/test_hostile_users.py"


def names_in(path: str) -> set[str]:
    return set(re.findall(r"^ *def (test_\w+)\(", (ROOT / "tests" / path).read_text(), re.MULTILINE))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_each_test_that_it_names_exists(path: str, name: str) -> None:
    assert name in names_in(path)


def test_each_threat_has_a_test() -> None:
    table = PAGE.partition("## Threats")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) + ATTACKS.count("::test_") == len(NAMED)
    assert all(row.count("::test_") == 1 for row in rows)


def test_each_attack_has_a_row_in_order() -> None:
    numbers = re.findall(r"^\| ([A-EK])(\d+) \|", ATTACKS, re.MULTILINE)
    counts = {"A": 17, "B": 14, "C": 6, "D": 9, "E": 6, "K": 36}
    assert numbers == [(letter, str(number)) for letter, count in counts.items() for number in range(1, count + 1)]


def test_it_names_all_tests_of_hostile_users() -> None:
    assert names_in(HOSTILE) == {name for path, name in NAMED if path == HOSTILE}
