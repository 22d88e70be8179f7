"""Requests to omfs-node: what is refused, and that the response is always one line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.omfs_node import main
from omfs_daemon.omfs_node.movers.mover import CannotMove
from omfs_daemon.omfs_node.request import BadRequest, NodeRequest, describe, read_request
from tests.support.waiting import LIMIT

ROOT = Path(__file__).parents[3]
GOOD: dict[str, Any] = {
    "version": 1,
    "do": "out",
    "method": "pageout",
    "node": "n1",
    "job": 7,
    "uid": 1000,
    "timeout": 10,
    "options": {"prefault": True},
}
PROBE: dict[str, Any] = {"version": 1, "do": "probe", "node": "n1", "timeout": 10, "options": {"pageout": {}}}


def read(raw: object) -> NodeRequest:
    return read_request(json.dumps(raw).encode(), ["pageout", "ve_swap"])


def test_good_requests_are_read() -> None:
    found = read(GOOD)
    assert (found.do, found.method, found.node, found.job, found.uid) == ("out", "pageout", "n1", 7, 1000)
    assert (found.timeout, found.resume, found.suspended, found.options) == (10.0, False, False, {"prefault": True})
    assert read(GOOD | {"do": "in", "continue": True}).resume
    assert read(GOOD | {"suspended": True}).suspended
    assert read(PROBE).options == {"pageout": {}}
    assert read(GOOD | {"slurm": {"conf": "/etc/slurm/slurm.conf"}}).slurm.conf == "/etc/slurm/slurm.conf"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": 2}, "version"),
        ({"version": True}, "version"),
        ({"do": "kill"}, "do must be one of"),
        ({"do": ["out"]}, "do must be one of"),
        ({"method": "../x"}, "method must be one of"),
        ({"node": "n1;reboot"}, "node"),
        ({"node": "-n1"}, "node"),
        ({"node": "n1\n"}, "node"),
        ({"job": 0}, "job"),
        ({"job": "7"}, "job"),
        ({"job": True}, "job"),
        ({"job": 2**40}, "job"),
        ({"uid": -1}, "uid"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": 1e9}, "timeout"),
        ({"continue": True}, "continue"),
        ({"suspended": 1}, "suspended"),
        ({"options": []}, "options"),
        ({"more": 1}, "unknown key 'more'"),
        ({"slurm": {"conf": "../slurm.conf"}}, "absolute path"),
        ({"slurm": {"scontrol": "/bin/../opt/x"}}, "absolute path"),
        ({"slurm": {"scontrol": "/opt/x y"}}, "absolute path"),
    ],
)
def test_invalid_requests_are_refused_with_the_fault(change: dict[str, Any], text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        read(GOOD | change)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"[" * 60000, b'{"do":"in","do":"out"}', b" " * 70000])
def test_what_is_no_request_is_refused(text: bytes) -> None:
    with pytest.raises(BadRequest):
        read_request(text, ["pageout"])


@pytest.mark.parametrize("name", ["method", "job", "uid"])
def test_a_probe_is_about_no_job(name: str) -> None:
    with pytest.raises(BadRequest, match="a probe has no"):
        read(PROBE | {name: GOOD[name]})


def test_the_answer_is_one_printable_line() -> None:
    answer = describe(CannotMove("tool_failed", "a\nb\x1b[31m" + "x" * 1000), "mixed")
    assert answer["message"].isprintable() and len(answer["message"]) == 500
    assert (answer["ok"], answer["why"], answer["state"]) == (False, "tool_failed", "mixed")


def test_only_root_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main.respond(json.dumps(GOOD).encode())["why"] == "not_root"


def test_an_internal_error_is_a_response_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("x")

    monkeypatch.setattr(main, "_probe", broken)
    answer = main.respond(json.dumps(PROBE).encode())
    assert (answer["ok"], answer["why"], answer["message"]) == (False, "fault", "ZeroDivisionError: x")


@pytest.mark.parametrize("text", [b"nonsense", json.dumps(GOOD | {"options": {"speed": 9}}).encode()])
def test_the_program_answers_and_exits_with_zero(text: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "omfs_daemon.omfs_node"],
        input=text,
        capture_output=True,
        cwd=ROOT,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (0, b"", 1)
    answer = json.loads(done.stdout)
    assert not answer["ok"] and answer["why"] in ("bad_request", "bad_options")
