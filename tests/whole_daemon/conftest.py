"""The daemon dies, the machine does not: nothing is written through to the disk, which takes most of the time."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fdatasync", lambda _: None)
    monkeypatch.setattr("os.fsync", lambda _: None)
