"""How Slurm's commands are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands.run_command import CommandOutput, failure, run_command


def test_without_the_slurm_conf_no_command_is_started(tmp_path: Path) -> None:
    """It would search the network for another one until it is killed."""
    conf, trace = tmp_path / "none" / "slurm.conf", tmp_path / "started"
    with pytest.raises(GatewayError, match=r"none/slurm\.conf' in the configuration: there is no such file"):
        run_command(["touch", str(trace)], timeout=60.0, conf=conf)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("conf", "why"), [("/etc", "is a directory, must be the file in it"), ("/dev/null", "is no regular file")]
)
def test_what_is_no_file_is_not_called_missing(conf: str, why: str) -> None:
    with pytest.raises(GatewayError, match=f"slurm.conf = '{conf}' in the configuration: {why}"):
        run_command(["true"], timeout=60.0, conf=Path(conf))


def test_of_a_wrong_slurm_conf_the_key_and_the_line_are_named() -> None:
    printed = (
        "scontrol: error: _parse_next_key: Parsing error at unrecognized key: Bogus\n"
        'scontrol: error: Parse error in file /etc/slurm/slurm.conf line 37: "Bogus=1"\n'
        "scontrol: fatal: Unable to process configuration file\n"
    )
    assert str(failure(["scontrol", "ping"], CommandOutput("", printed, 1))) == (
        "scontrol ping: exit 1: Unable to process configuration file: Parsing error at unrecognized key: Bogus; "
        'Parse error in file /etc/slurm/slurm.conf line 37: "Bogus=1"'
    )
    plain = failure(["squeue"], CommandOutput("", "squeue: error: a\nsqueue: error: b\n", 1))
    assert str(plain) == "squeue: exit 1: squeue: error: b"
