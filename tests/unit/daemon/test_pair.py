"""One of two daemons as a process: what it tells while it stands by."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from omfs_daemon.config.load import parse_config
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.leadership.candidate import Candidate
from omfs_daemon.daemon.leadership.holder import LeaseHolder, own_holder
from omfs_daemon.daemon.leadership.leadership import Leadership
from omfs_daemon.daemon.leadership.lease import Controller
from omfs_daemon.daemon.leadership.lease_directory import LeaseDirectory
from omfs_daemon.daemon.leadership.timed_calls import TimedCalls
from omfs_daemon.daemon.pair import Pair
from omfs_daemon.slurm.gateway import Gateway

TEXT = "[daemon]\nstate_dir = '{}'\n[policy]\nquantum_seconds = {}\n"


class Standby:
    """A pair's standby, and the lease of the omfsd on ctl1."""

    def __init__(self, directory: Path) -> None:
        self.state_dir = directory / "state"
        shared = directory / "shared"
        shared.mkdir(mode=0o700)
        self.pair = Pair(self.config(0), shared, directory / "omfs.toml", cast(Gateway, None), None, "")
        seen, calls = LeaseDirectory(shared), TimedCalls(5.0)
        lease = seen.take(seen.look(), self.holder(0))
        assert lease is not None
        self.active = Leadership(seen, lease, 0.0, self.holder(0), lambda: 0.0, calls, lambda: 0.0)
        self.candidate = Candidate(
            seen, self.pair._own, lambda: Controller(), lambda: 0.0, lambda: "", calls, calls, lambda: 0.0
        )

    def config(self, quantum: int) -> Config:
        return parse_config(TEXT.format(self.state_dir, quantum), "omfs.toml")

    def holder(self, quantum: int) -> LeaseHolder:
        return own_holder(self.config(quantum), "ctl1")._replace(daemon="of ctl1")

    def looks(self) -> list[str]:
        """The hosts of which it says that they differ."""
        with capture_logs() as logs:
            assert self.candidate.step() is None
            self.pair._note(self.candidate)
        return [entry["host"] for entry in logs if entry["event"] == "configurations_differ"]

    @property
    def shown(self) -> str:
        return self.pair._view(self.candidate)["text"]


@pytest.fixture
def standby(tmp_path: Path) -> Standby:
    return Standby(tmp_path)


def test_a_standby_says_once_per_change_that_its_configuration_differs(standby: Standby) -> None:
    assert standby.looks() == []
    assert standby.shown == "omfsd on ctl1 is active"
    standby.pair._config = standby.config(7)
    assert standby.looks() == ["ctl1"] and standby.looks() == []
    assert standby.shown == (
        "omfsd on ctl1 is active; its configuration differs, so this omfsd would not take over: make them the same "
        "and reload"
    )
    standby.active.update(standby.holder(8))
    assert standby.looks() == ["ctl1"] and standby.looks() == []
    standby.active.update(standby.holder(7))
    assert standby.looks() == [] and standby.shown == "omfsd on ctl1 is active"
    standby.active.update(standby.holder(8))
    assert standby.looks() == ["ctl1"]
