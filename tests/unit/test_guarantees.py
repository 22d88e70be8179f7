"""docs/guarantees.md names a test for each limit, and each of these exists."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "guarantees.md").read_text(encoding="utf-8")
NOT_BUILT = "- Entitlements count CPUs"


def limits() -> list[str]:
    _, _, text = PAGE.partition("## Limits")
    return [f"- {limit}" for limit in re.split(r"^- ", text, flags=re.MULTILINE)[1:]]


def test_each_limit_names_a_test() -> None:
    assert limits()
    assert [limit for limit in limits() if "test_" not in limit and not limit.startswith(NOT_BUILT)] == []


def test_the_named_tests_exist() -> None:
    names = re.findall(r"`(?:tests/)?([a-z_/]*test_\w+\.py)`", PAGE)
    assert names
    assert [name for name in names if not any(TESTS.rglob(name))] == []
