"""``omfs report`` and what else reads accounting: without Slurm, and with options that cannot have an effect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from omfs_daemon.cli.main import app


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "--since", "2d"], "accounting cannot be read (slurm.conf = "),
        (["report", "holes", "--all", "--since", "2d"], "Slurm does not say its SchedulerParameters; --scheduler does"),
        (["advise"], "accounting cannot be read (slurm.conf = "),
        (["advise", "--user", "nobody"], "accounting cannot be read (slurm.conf = "),
        (["whatif", "--policy", "easy", "--since", "2d"], "accounting cannot be read (slurm.conf = "),
    ],
)
def test_without_slurm_accounting_cannot_be_reached(tmp_path: Path, words: list[str], said: str) -> None:
    config = tmp_path / "omfs.toml"
    config.write_text(
        f'[daemon]\nrun_dir = "{tmp_path}"\nstate_dir = "{tmp_path}"\n[slurm]\nconf = "{tmp_path}/none"\n'
    )
    result = CliRunner().invoke(app, ["-c", str(config), *words])
    assert (result.exit_code, said in result.stderr, len(result.stderr.splitlines())) == (3, True, 1), result.stderr


SACCT = "1|1|1700000000|1700000010|1700000070|60|10|2|a|main|normal|COMPLETED|\n"
BARE = ("holes", "--profile", "idle.csv", "--queue", "jobs.csv", "--start", "100")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--log", "LOG", "--strict", "--lenient"), "--strict and --lenient do not go together"),
        (("--log", "LOG", "--nodes", "2"), "--nodes goes with --exclusive"),
        (("--log", "LOG", "--separator", "||"), "jobs.sacct is read as sacct, and it is for sge22 only"),
        (("--log", "LOG", "--format", "sge22", "--separator", ""), "--separator = '': must be at least one character"),
        (("--since", "2d", "--format", "sge"), "--format goes with --log"),
        (("--since", "2d", "--separator", "|"), "--separator goes with --log"),
        (("--log", "LOG", *BARE), "--profile, --queue, and --start go together"),
        ((*BARE[:-2], "--json"), "--profile, --queue, and --start go together"),
        ((*BARE, "--procs", "4"), "--procs does not go with --profile"),
        ((*BARE, "--all"), "--all does not go with --profile"),
    ],
)
def test_options_without_an_effect_are_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    log = tmp_path / "jobs.sacct"
    log.write_text(SACCT)
    result = CliRunner().invoke(app, ["report", *(word.replace("LOG", str(log)) for word in words)])
    assert (result.exit_code, said in result.stderr, len(result.stderr.splitlines())) == (2, True, 1), result.stderr


def test_a_group_named_twice_counts_once(tmp_path: Path) -> None:
    log = tmp_path / "jobs.sacct"
    log.write_text(SACCT)
    result = CliRunner().invoke(app, ["report", "waits", "--log", str(log), "--by", "qos,account, qos", "--json"])
    assert [row["group"] for row in json.loads(result.stdout)["waits"]] == ["all", "qos", "account"]


def test_a_time_far_in_the_future_is_malformed(tmp_path: Path) -> None:
    log = tmp_path / "jobs.sacct"
    log.write_text(SACCT + SACCT.replace("1|1|", "2|2|").replace("|1700000070|", "|3700000000|"))
    result = CliRunner().invoke(app, ["report", "--log", str(log), "--strict"])
    assert result.exit_code == 2
    assert "1 malformed: line 2 (a time more than a year from now)" in result.stderr
