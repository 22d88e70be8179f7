"""``omfs where`` as people and scripts call it, against a real control socket."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from omfs_daemon.cli.main import app
from omfs_daemon.daemon.api.callers import Caller, Peer, operators
from omfs_daemon.daemon.api.control_socket import ControlServer
from omfs_daemon.daemon.api.where_view import WhereRowView, WhereView
from omfs_daemon.slurm.batch_options import batch_options
from omfs_daemon.slurm.batch_words import OptionWord

HOSTILE = "[red]\x1b[2J\u202eevil"


def row(cluster: str, partition: str, start: float | None, why: str = "", **changes: Any) -> WhereRowView:
    return WhereRowView(  # type: ignore[typeddict-item]
        cluster=cluster,
        partition=partition,
        nodes=2,
        cpus=8,
        p10=start,
        p50=start,
        p90=start and start + 600,
        end_p50=start and start + 3600,
        run_p50=start and 3000.0,
        key="user and name",
        samples=7 if start else 0,
        feasible=start is not None,
        why_not=why,
        options=["-M", cluster, "-p", partition],
        conf="",
        **changes,
    )


class WhereStub:
    """A daemon that knows where, and what it was asked."""

    def __init__(self) -> None:
        self.rows = [
            row("vector", "long", 1_800_000_000.0),
            row("here", "main", 1_800_003_600.0),
            row("far", "main", None, f"it does not answer: {HOSTILE}"),
            row("here", "small", None, "partition small allows 30 minutes"),
        ]
        self.words: list[tuple[str, str]] = []

    def where(self, caller: Caller, words: list[tuple[str, str]]) -> WhereView:
        batch_options([OptionWord(*word) for word in words])
        self.words = words
        read = {"here": 1_800_000_000.0}
        return WhereView(read=read, rows=self.rows, predictor="ladder", p90_held=0.93, scored=120, not_seen=["memory"])


class Asked:
    def __init__(self, directory: Path) -> None:
        self.stub = WhereStub()
        self.config = directory / "omfs.toml"
        self.config.write_text(f'[daemon]\nrun_dir = "{directory}"\n')
        self.script = directory / "my job.sh"
        self.script.write_text("#!/bin/sh\n#SBATCH -n 8 --mem=1G\n")

    def omfs(self, *words: str) -> Result:
        runner = CliRunner(env={"COLUMNS": "200", "TZ": "UTC", "SBATCH_QOS": "high"})
        return runner.invoke(app, ["-c", str(self.config), "where", *words])


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    made = Asked(tmp_path)
    server = ControlServer(
        tmp_path / "omfs.sock", made.stub, operators(None, None), peer=lambda _: Peer(0, 0)  # type: ignore[arg-type]
    )  # fmt: skip
    with server:
        yield made


def test_the_first_place_comes_first_with_the_line_to_type(asked: Asked) -> None:
    done = asked.omfs(str(asked.script))
    assert done.exit_code == 0, done.stderr
    first, *_ = done.stdout.splitlines()
    assert first.startswith("It would start first on cluster vector, partition long: about 2027-01-15")
    assert f"To send it there: sbatch -M vector -p long {shlex.quote(str(asked.script))}" in done.stdout
    assert "from 7 ended jobs that are alike (user and name), by ladder" in done.stdout
    assert "held: 93% of 120 starts; not considered: memory" in done.stdout
    assert "not on cluster far" in done.stdout and "\x1b[2J" not in done.stdout and "\u202e" not in done.stdout
    assert "partition small" not in done.stdout, "there is a better one on that cluster"


def test_only_options_are_sent_each_with_its_place(asked: Asked) -> None:
    asked.omfs("--", "--time=5", str(asked.script), "an argument")
    script = str(asked.script)
    assert [tuple(pair) for pair in asked.stub.words] == [
        (script, "--job-name=my job.sh"),
        (f"{script}, line 2", "-n"),
        (f"{script}, line 2", "8"),
        (f"{script}, line 2", "--mem=1G"),
        ("SBATCH_QOS", "--qos=high"),
        ("the command line", "--time=5"),
    ]


def test_a_name_that_is_no_text_is_shown_harmlessly(asked: Asked) -> None:
    path = os.fsencode(asked.script.with_name("job")) + b"\xff\x1b[2J.sh"
    Path(os.fsdecode(path)).write_text("#!/bin/sh\n")
    done = asked.omfs(os.fsdecode(path))
    assert done.exit_code == 0, done.stderr
    assert "job\ufffd\ufffd[2J.sh" in done.stdout
    assert asked.omfs("--json", os.fsdecode(path)).exit_code == 0


def test_json_has_the_line_for_each_row(asked: Asked) -> None:
    answer = json.loads(asked.omfs("--json", "--", "-n4").stdout)
    commands = [one["command"] for one in answer["rows"]]
    assert commands == ["sbatch -n4 -M vector -p long", "sbatch -n4 -M here -p main", "", ""]
    assert answer["read"] == {"here": 1_800_000_000.0}


def test_nowhere_is_exit_code_1_with_every_reason(asked: Asked) -> None:
    asked.stub.rows = asked.stub.rows[2:]
    done = asked.omfs("--", "-n4")
    assert done.exit_code == 1
    assert done.stdout.startswith("It can start nowhere:")
    assert "partition small: partition small allows 30 minutes" in done.stdout
    assert json.loads(asked.omfs("--json", "--", "-n4").stdout)["rows"][0]["command"] == ""


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["none.sh"], "omfs: none.sh: cannot be read: No such file or directory\n"),
        (["--", "-n0"], "omfs: the command line: --ntasks = '0': must be a whole number from 1 to 10,000,000\n"),
        (["--", "--time=\x1b[2J"], "omfs: the command line: --time = '\\x1b[2J': must be minutes"),
        (["--", "-n"], "omfs: the command line: -n needs a value\n"),
    ],
)
def test_bad_input_is_exit_code_2_and_one_line(asked: Asked, words: list[str], error: str) -> None:
    done = asked.omfs(*words)
    assert done.exit_code == 2
    assert done.stderr.startswith(error) and done.stderr.count("\n") == 1
