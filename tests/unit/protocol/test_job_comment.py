"""What omfs-run reports in the job comment, and what the user asks for there."""

from __future__ import annotations

import pytest

from omfs_daemon.protocol import job_comment


def test_the_report_is_replaced_and_the_rest_is_kept() -> None:
    first = job_comment.make_run_comment(0, "ready", {"method": "dmtcp"})
    assert first == "omfs:run=0:ready:method=dmtcp"
    assert job_comment.put_run_comment("", first) == first
    assert job_comment.put_run_comment("my job", first) == f"my job {first}"
    second = job_comment.make_run_comment(1, "ready", {"method": "dmtcp", "from": 3, "seconds": 1.254, "lost": 0.0})
    assert second == "omfs:run=1:ready:method=dmtcp:from=3:seconds=1.25:lost=0.00"
    assert job_comment.put_run_comment(f"a  {first}\tomfs:wait", second) == f"a  {second}\tomfs:wait"
    assert job_comment.put_run_comment(f"{first} {first}", second).split() == [second]
    assert job_comment.put_run_comment("xomfs:run=7", first) == f"xomfs:run=7 {first}"


def test_a_value_never_breaks_the_report() -> None:
    assert job_comment.make_run_comment(0, "failed", {"why": "a b:c=d\n"}) == "omfs:run=0:failed:why=a_b_c_d_"


@pytest.mark.parametrize(
    "comment",
    ["", "omfs:run=", "omfs:run=1", "omfs:run=x:ready", "omfs:run=-1:ready", "omfs:run=1:odd", "xomfs:run=1:ready"],
)
def test_what_is_no_report_is_none(comment: str) -> None:
    assert job_comment.find_run_comment(comment) is None


def test_a_report_is_read_back() -> None:
    assert job_comment.find_run_comment("a omfs:run=2:ready:method=criu:from=1 b") == (
        2,
        "ready",
        {"method": "criu", "from": "1"},
    )


@pytest.mark.parametrize(
    ("comment", "methods"),
    [
        ("x omfs:method=ve_swap,criu y", ["ve_swap", "criu"]),
        ("omfs:method=criu omfs:method=dmtcp", ["criu"]),
        ("omfs:method=dmtcp, omfs:method=criu", ["criu"]),
        ("", []),
        ("omfs:method=", []),
        ("omfs:method=dmtcp,", []),
        ("omfs:method=Ünot", []),
        ("xomfs:method=criu", []),
        ("omfs:methods=criu", []),
    ],
)
def test_methods_of_a_comment(comment: str, methods: list[str]) -> None:
    assert job_comment.methods_in_comment(comment) == methods


@pytest.mark.parametrize(
    ("comment", "seconds"),
    [("a omfs:min_runtime=90", 90), ("omfs:min_runtime=90s", None), ("omfs:min_runtime=", None), ("", None)],
)
def test_min_runtime_of_a_comment(comment: str, seconds: int | None) -> None:
    assert job_comment.min_runtime_in_comment(comment) == seconds


@pytest.mark.parametrize(
    ("comment", "signal"),
    [
        ("a omfs:signal=USR2 b", "USR2"),
        ("omfs:signal=B:TERM", "B:TERM"),
        ("omfs:signal=none", ""),
        ("omfs:signal=B:none", None),
        ("omfs:signal=KILL", None),
        ("omfs:signal=SIGUSR2", None),
        ("omfs:signal=USR2@60", None),
        ("omfs:signal=", None),
        ("", None),
    ],
)
def test_signal_of_a_comment(comment: str, signal: str | None) -> None:
    assert job_comment.signal_in_comment(comment) == signal


def test_excluded_methods_of_a_comment() -> None:
    assert job_comment.excluded_in_comment("x omfs:exclude=suspend,pageout y") == ["suspend", "pageout"]
    assert job_comment.excluded_in_comment("omfs:exclude=suspend,") == []
