"""``omfs predict``: what it is asked about."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from omfs_daemon.cli.main import app


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["1", "--user", "ann"], "omfs: --user and --name are of a job that would be submitted"),
        (["1", "--name", "train"], "omfs: --user and --name are of a job that would be submitted"),
        (["job"], "omfs: a job's number is needed, or --user, --name, or both of a job that would be submitted"),
    ],
)
def test_a_job_or_what_one_would_be(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["predict", *words])
    assert (result.exit_code, result.stderr.startswith(said), result.stderr.count("\n")) == (2, True, 1), result.stderr
