"""A run tries a sample, and a soak everything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.amounts import SOAK_EXAMPLES, SOAK_TOTAL, SOAK_VARIABLE, sample

TESTS = Path(__file__).parents[2]


def test_a_sample_goes_from_the_first_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SOAK_VARIABLE, raising=False)
    assert list(sample(range(101), 5)) == [0, 25, 50, 75, 100]
    assert list(sample(range(3), 5)) == [0, 1, 2]
    monkeypatch.setenv(SOAK_VARIABLE, "1")
    assert list(sample(range(101), 5)) == list(range(101))


def test_a_soak_has_enough_random_examples() -> None:
    given = re.compile(r"^ *@given\(", re.M)
    properties = sum(len(given.findall(path.read_text())) for path in TESTS.rglob("test_*.py"))
    assert properties * SOAK_EXAMPLES >= SOAK_TOTAL
