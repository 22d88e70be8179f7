"""``omfs when``: options that do not go together, and what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.cli.when import chance_lines
from omfs_daemon.daemon.api.bound_chance_view import BoundChanceView
from omfs_daemon.terminal.output import show

COUNTS = "--realtime: --cpus and --minutes must be whole numbers from 1 on"
NEEDED = "either jobs, or --realtime CLASS with --cpus and --minutes, are needed, and not both"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), NEEDED),
        (("7", "--realtime", "beamline"), NEEDED),
        (("--realtime", "beamline", "--at-limit"), "--at-limit: does not go with --realtime"),
        (("--realtime", "x", "--cpus", "4"), COUNTS),
        (("--realtime", "x", "--cpus", "0", "--minutes", "5"), COUNTS),
        (("7", "--cpus", "4"), "--cpus and --minutes are for --realtime CLASS"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    config = tmp_path / "omfs.toml"
    config.write_text("")
    done = CliRunner().invoke(app, ["--config", str(config), "when", *words])
    assert (done.exit_code, done.stderr) == (2, f"omfs: {said}\n")


@pytest.mark.parametrize(
    ("victims", "said"), [(0, "none may be"), (1, "on: 1 job would be"), (1200, "on: 1,200 jobs would be")]
)
def test_how_many_would_be_preempted(capsys: pytest.CaptureFixture[str], victims: int, said: str) -> None:
    view = BoundChanceView(
        job_class="beamline", cpus=4, limit=60.0, slowdown_bound=1.5, start_by=90.0, acts_at=60.0, chance=0.5,
        victims=victims,
    )  # fmt: skip
    show(*chance_lines(view))
    assert said in " ".join(capsys.readouterr().out.split())
