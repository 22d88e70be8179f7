"""How Slurm's commands are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands.run_command import run_command


def test_without_the_slurm_conf_no_command_is_started(tmp_path: Path) -> None:
    """It would search the network for another one until it is killed."""
    conf, trace = tmp_path / "none" / "slurm.conf", tmp_path / "started"
    with pytest.raises(GatewayError, match=r"none/slurm\.conf' in the configuration: there is no such file"):
        run_command(["touch", str(trace)], timeout=60.0, conf=conf)
    assert not trace.exists()
