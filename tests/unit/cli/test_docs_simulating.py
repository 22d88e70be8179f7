"""docs/simulating.md names what can be typed."""

from __future__ import annotations

from pathlib import Path

from omfs_daemon.cli.simulation.experiment import app
from omfs_daemon.simulate.policies.policy_table import POLICIES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "simulating.md").read_text()


def test_every_policy_has_a_row() -> None:
    assert [name for name in POLICIES if f"| `{name}` |" not in PAGE] == []


def test_every_experiment_is_listed() -> None:
    names = [command.callback.__name__ for command in app.registered_commands if command.callback is not None]
    assert names
    assert [name for name in names if f"- `{name}`: " not in PAGE] == []
