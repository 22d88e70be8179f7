"""One of two daemons as a process: what it tells while it stands by."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from omfs_daemon.config.load import parse_config
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.leadership.candidate import Candidate
from omfs_daemon.daemon.leadership.failed_turns import FailedTurns
from omfs_daemon.daemon.leadership.holder import LeaseHolder, own_holder
from omfs_daemon.daemon.leadership.leadership import Leadership
from omfs_daemon.daemon.leadership.lease import Controller
from omfs_daemon.daemon.leadership.lease_directory import LeaseDirectory
from omfs_daemon.daemon.leadership.timed_calls import TimedCalls
from omfs_daemon.daemon.pair import Pair
from omfs_daemon.daemon.signals import Signals
from omfs_daemon.daemon.systemd_notify import Notifier
from omfs_daemon.slurm.gateway import Gateway

TEXT = "[daemon]\nstate_dir = '{0}'\nrun_dir = '{0}/run'\n[policy]\nquantum_seconds = {1}\n"


class Standby:
    """A pair's standby, and the lease of the omfsd on ctl1."""

    def __init__(self, directory: Path) -> None:
        self.state_dir = directory / "state"
        shared = directory / "shared"
        shared.mkdir(mode=0o700)
        self.pair = Pair(self.config(0), shared, directory / "omfs.toml", cast(Gateway, None), None, "")
        self.pair._failed = FailedTurns(lambda: 0.0)
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


def test_after_each_takeover_that_fails_the_next_one_waits_longer() -> None:
    now = 50.0
    failed = FailedTurns(lambda: now)
    assert failed.why_not_yet == ""
    for seconds in (2, 4, 8, 16, 32, 60, 60):
        failed.add("No space left")
        assert failed.why_not_yet == f"a takeover failed: No space left; the next one is tried {seconds} s later"
        now += seconds - 0.5
        assert failed.why_not_yet
        now += 0.5
        assert failed.why_not_yet == ""
    failed.clear()
    failed.add("again")
    now += 2
    assert failed.why_not_yet == "", "one that begins ends the row"


def test_an_epoch_that_cannot_be_written_is_not_tried_at_once_again(standby: Standby) -> None:
    assert standby.pair._unfit() == ""
    assert not standby.pair._waited(standby.active, Signals(), Notifier({}))  # there is no run_dir
    assert "state/run: No such file or directory; the next one is tried 2 s later" in standby.pair._unfit()
    assert standby.active.is_lost, "the other one may act"


def test_a_state_that_cannot_be_copied_is_not_tried_at_once_again(
    standby: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("omfs_daemon.daemon.pair.make_state", refuse)
    assert standby.pair._act(standby.active, Signals()) is False
    assert "No space left on device; the next one is tried 2 s later" in standby.pair._unfit()
    assert standby.active.is_lost, "the other one may act"
