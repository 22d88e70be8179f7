"""Programs that end within 200 ms of the order to checkpoint them. Over 500 rounds in a soak, on each bench."""

from __future__ import annotations

from random import Random

import pytest

from omfs_daemon.omfs_run.drivers.dmtcp import checkpoint
from tests.support.amounts import is_soak
from tests.support.dmtcp_bench import Bench
from tests.support.dmtcp_endings import SHAPES, rounds, summary
from tests.support.waiting import LIMIT


@pytest.mark.parametrize("shape", SHAPES)
def test_who_has_finished_is_known_to_and_nothing_is_lost(
    bench: Bench, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With patience for images that never come, this would not end.
    monkeypatch.setattr(checkpoint, "_IMAGES_SECONDS", 10 * LIMIT)
    found = []
    for one in rounds(bench, shape, 170 if is_soak() else 2, Random(15)):
        found.append(one)
        assert one.outcome in ("finished", "checkpointed"), f"{one}; round {len(found)}"
    print(shape, summary(found))
