"""``omfs report`` and what else reads accounting: without Slurm, and with options that cannot have an effect."""

from __future__ import annotations

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
