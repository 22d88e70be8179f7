"""Answers of omfs-node: the good ones are read, everything odd is a failure and never an exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.daemon.node_client import node_answers as answers
from omfs_daemon.daemon.node_client.node_answers import Held, MethodFacts, Ve

GOOD: dict[str, Any] = {"ok": True, "state": "out", "processes": 3, "stopped": 3, "bytes": 300, "freed": 290}
PROBE: dict[str, Any] = {
    "ok": True,
    "methods": {
        "pageout": {"usable": True, "why": "", "free": 1000},
        "ve_swap": {
            "usable": False,
            "why": "not_usable",
            "ves": [{"ve": 0, "memory": 9, "memory_free": 5, "swap_free": 2}],
        },
    },
    "jobs": {"12": {"resident": 5, "ve": 0}},
}


def read(raw: object) -> answers.OmfsNodeAnswer:
    return answers.read_answer(json.dumps(raw).encode())


def test_a_good_answer() -> None:
    found = read(GOOD | {"seconds": 1, "slowest": 0.5, "of a later version": []})
    assert (found.ok, found.state, found.processes, found.stopped) == (True, "out", 3, 3)
    assert (found.moved, found.freed, found.seconds, found.slowest) == (300, 290, 1.0, 0.5)


def test_a_failure() -> None:
    found = read({"ok": False, "why": "no_swap_space", "message": "a\nb\x1b", "state": "running"})
    assert (found.ok, found.why, found.message, found.state) == (False, "no_swap_space", "a b ", "running")


def test_a_probe() -> None:
    found = read(PROBE)
    assert found.methods["pageout"] == MethodFacts(True, "", 1000)
    assert found.methods["ve_swap"] == MethodFacts(False, "not_usable", 0, (Ve(0, 9, 5, 2),))
    assert found.jobs == {12: Held(5, 0)}


@pytest.mark.parametrize(
    "raw",
    [
        [],
        {},
        {"ok": 1},
        GOOD | {"state": "asleep"},
        GOOD | {"bytes": -1},
        GOOD | {"bytes": 2**70},
        GOOD | {"bytes": True},
        GOOD | {"freed": "9"},
        GOOD | {"seconds": float("nan")},
        GOOD | {"slowest": 1e12},
        {"ok": False, "why": "../x"},
        PROBE | {"jobs": {"x": {}}},
        PROBE | {"jobs": {"1": 5}},
        PROBE | {"methods": {"A b": {"usable": True}}},
        PROBE | {"methods": {"ve_swap": {"usable": True, "ves": [{}] * 1000}}},
        PROBE | {"methods": {"pageout": {}}},
    ],
)
def test_odd_answers_are_bad_answers(raw: object) -> None:
    found = read(raw)
    assert (found.ok, found.why) == (False, "bad_answer")
    assert found.message


@pytest.mark.parametrize("printed", [b"", b"{", b"\xff\xfe", b"[" * 100000, b" " * (answers.LIMIT + 1)])
def test_what_is_no_answer(printed: bytes) -> None:
    assert answers.read_answer(printed).why == "bad_answer"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*PROBE, *GOOD, "why", "message", "ves", "pageout", "1"]), inner, max_size=6)
    ),
    max_leaves=20,
)


@given(values)
def test_nothing_raises(raw: object) -> None:
    found = read(raw)
    assert found.ok or (found.why and found.message.isprintable())
