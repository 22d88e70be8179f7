"""Whatever a command is given, it answers in its own words: never with a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from omfs_daemon.cli.lazy_command import LazyCommand
from omfs_daemon.cli.main import COMMANDS, app
from omfs_daemon.terminal.exit_status import run_plainly
from tests.support.waiting import LIMIT

JUNK = ("x" * 5000, "\x00", "-1", "nan", "ü\u202e", "/nonexistent/file")
LONG = ("demo", "failsafe", "experiment", "simulate", "sweep", "optimum")
"""They take their time with what is right, or act on the machine: their options alone are tried."""


def leaves() -> Iterator[tuple[str, ...]]:
    group = typer.main.get_group(app)
    for name in COMMANDS:
        stand_in = group.commands[name]
        command = stand_in.load() if isinstance(stand_in, LazyCommand) else stand_in
        below = getattr(command, "commands", None)
        yield from [(name, sub) for sub in below] if below else [(name,)]


@pytest.mark.parametrize("words", list(leaves()), ids=" ".join)
def test_wrong_words_files_and_types_end_in_a_line(words: tuple[str, ...], tmp_path: Path) -> None:
    config = tmp_path / "omfs.toml"
    config.write_text(
        f'[daemon]\nrun_dir = "{tmp_path}"\nstate_dir = "{tmp_path}"\n[slurm]\nconf = "{tmp_path}/none"\n'
    )
    given = [["--no-such-option"], ["--json", "--json=x"], *([junk] for junk in JUNK), ["a", "\x00"], ["1", "2", "3"]]
    given += [["--since", junk] for junk in JUNK] + [["--config", junk] for junk in JUNK]
    for rest in given[:1] if words[0] in LONG else given:
        if words == ("config", "show") or rest == [""]:
            continue
        result = CliRunner().invoke(app, ["-c", str(config), *words, *rest], input="")
        assert result.exception is None or isinstance(result.exception, SystemExit), (rest, repr(result.exception))
        assert "Traceback" not in result.output


@pytest.mark.parametrize("text", ["\x00", "[", "a = 1\n" * 3, "\ufeff[daemon]", "[daemon]\nrun_dir = 7"])
def test_wrong_configurations_end_in_a_line(tmp_path: Path, text: str) -> None:
    config = tmp_path / "omfs.toml"
    config.write_text(text)
    for words in (
        ["status"],
        ["check"],
        ["config", "show"],
        ["config", "job-submit"],
        ["plan", "--config", str(config)],
    ):
        result = CliRunner().invoke(app, ["-c", str(config), *words])
        assert result.exception is None or isinstance(result.exception, SystemExit), (words, repr(result.exception))


def run(code: str, stdout: int, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, "config", "default"]
    variables = {**os.environ, **(environment or {})}
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=LIMIT, env=variables)


OMFS = "from omfs_daemon.cli.main import run; run()"


def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = run(OMFS, full.fileno())
    assert (done.returncode, done.stderr) == (1, "omfs: the output cannot be written: No space left on device\n")


def test_a_pipe_that_nobody_reads_is_no_line_at_all() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run(OMFS, writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_closed_output_and_a_terminal_without_the_characters() -> None:
    shell = ["sh", "-c", 'exec "$0" -c "$1" config default <&- >&-', sys.executable, OMFS]
    closed = subprocess.run(shell, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
    assert (closed.returncode, closed.stderr) == (0, "")
    narrow = {"PYTHONIOENCODING": "ascii", "COLUMNS": "40", "TERM": "dumb"}
    assert run(OMFS, subprocess.DEVNULL, narrow).returncode == 0


def test_an_error_of_ours_is_one_line_that_says_how_to_see_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMFS_TRACEBACK", raising=False)

    def faulty() -> None:
        raise KeyError("dmtcp\x1b[2J")

    with pytest.raises(SystemExit) as ended:
        run_plainly(faulty, "omfs")
    assert ended.value.code == 1
    printed = capsys.readouterr().err
    assert printed.startswith("omfs: internal error (KeyError: 'dmtcp") and printed.count("\n") == 1
    assert "\x1b" not in printed
    monkeypatch.setenv("OMFS_TRACEBACK", "1")
    with pytest.raises(KeyError):
        run_plainly(faulty, "omfs")
