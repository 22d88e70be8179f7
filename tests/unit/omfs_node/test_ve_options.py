"""The options of VE swapping: what is accepted, and the one-line errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.omfs_node.movers.mover import CannotMove
from omfs_daemon.omfs_node.ve_swap.ve_options import area_of, read_ve_options, swap_area

COMMANDS: dict[str, Any] = {
    "out": ["/bin/x", "-N", "{ve}", "--out={pids}"],
    "in": ["/bin/x", "-N{ve}", "{pids}"],
    "status": ["/bin/x", "{ve}", "{pids}"],
}


def test_usual_options() -> None:
    options = read_ve_options({})
    assert (options.driver, options.ves, options.area, options.tolerance) == ("library", [0], None, 0)
    assert read_ve_options({"ves": 3}).ves == [0, 1, 2]
    assert read_ve_options({"ves": [4, 2]}).ves == [2, 4]
    assert read_ve_options({"driver": "command", "commands": COMMANDS}).commands == COMMANDS


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"drivr": "library"}, "option drivr: unknown"),
        ({"driver": "ssh"}, "option driver: must be"),
        ({"driver": "command"}, "option commands: needed"),
        ({"driver": "command", "commands": {"out": COMMANDS["out"]}}, "option commands.in: is missing"),
        ({"commands": ["x"]}, "option commands: must be a table"),
        ({"commands": {"rm": ["/bin/rm"]}}, "option commands.rm: unknown"),
        ({"commands": {"out": "/bin/x {ve} {pids}"}}, "option commands.out: must be a list"),
        ({"commands": {"out": ["x", "{ve}", "{pids}"]}}, "must be an absolute path"),
        ({"commands": {"out": ["/bin/../x", "{ve}", "{pids}"]}}, "must be an absolute path"),
        ({"commands": {"out": ["/bin/x", "{ve}"]}}, "option commands.out: has no {pids}"),
        ({"commands": {"memory": ["/bin/x"]}}, "option commands.memory: has no {ve}"),
        ({"commands": {"out": ["/bin/x", "{ve}", "{pids}", "{user}"]}}, "only {ve} and {pids}"),
        ({"commands": {"out": ["/bin/x", "{ve}\n", "{pids}"]}}, "without control characters"),
        ({"patterns": {"status": "("}}, "option patterns.status: is not a regular expression"),
        ({"patterns": {"status": "(?P<pid>.)"}}, "option patterns.status: must have the group (?P<sub>...)"),
        ({"patterns": {"other": "x"}}, "option patterns.other: unknown"),
        ({"patterns": {"area": 3}}, "option patterns.area: must be"),
        ({"library": "libveosinfo.so"}, "option library: must be an absolute path"),
        ({"library": "/x\0y"}, "option library: must be an absolute path"),
        ({"ves": 0}, "option ves: must be"),
        ({"ves": True}, "option ves: must be"),
        ({"ves": [1, 1]}, "option ves: must be"),
        ({"ves": [64]}, "option ves: must be"),
        ({"ves": "2"}, "option ves: must be"),
        ({"poll_seconds": 0}, "option poll_seconds: must be a number of seconds from 0.001 to 10"),
        ({"poll_seconds": float("nan")}, "option poll_seconds: must be"),
        ({"call_seconds": "5"}, "option call_seconds: must be"),
        ({"area": -1}, "option area: must be a whole number of bytes"),
        ({"area": 1.5}, "option area: must be"),
        ({"tolerance": True}, "option tolerance: must be"),
    ],
)
def test_invalid_options_are_refused_in_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(CannotMove) as failure:
        read_ve_options(options)
    assert failure.value.why == "bad_options"
    assert text in failure.value.message
    assert "\n" not in failure.value.message


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [
        ("--ve-swap-mem-max=512", 512),
        ("--ve-swap-mem-max 512 --ve-swap-file-path=/swap --ve-swap-file-max=1024\n", 1536),
        ("--ve-swap-file-path=/swap\n--ve-swap-file-max=64\n", 64),
    ],
)
def test_the_area_of_veos_options(text: str, megabytes: int) -> None:
    assert area_of(text) == megabytes << 20


def test_an_engine_s_own_file_goes_before_the_common_one(tmp_path: Path) -> None:
    options = read_ve_options({"veos_options": str(tmp_path)})
    assert swap_area(options, 0) is None
    (tmp_path / "veswap.options").write_text("# --ve-swap-mem-max=9\n--ve-swap-mem-max=100\n")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "veswap.options").write_text("--ve-swap-mem-max=200\n")
    assert (swap_area(options, 0), swap_area(options, 1)) == (100 << 20, 200 << 20)
    assert swap_area(read_ve_options({"veos_options": str(tmp_path), "area": 7}), 1) == 7
    assert area_of("--ve-swap-file-user=x") is None
