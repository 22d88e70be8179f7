"""The daemon dies, the machine does not: nothing is written through to the disk, which takes most of the time."""

from __future__ import annotations

import pytest

from omfs_daemon.daemon import observer


@pytest.fixture(autouse=True)
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fdatasync", lambda _: None)
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def nodes_polled_with_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has just changed of nodes and settings is seen in the next cycle."""
    monkeypatch.setattr(observer, "NODES_SECONDS", 0.0)
