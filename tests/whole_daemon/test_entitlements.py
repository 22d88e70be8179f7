"""What a change of the entitlements comes to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.whole_daemon.test_process import ROOT, Stand


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path)
    yield found
    found.service.close()


def answered(stand: Stand, *amounts: str) -> list[str]:
    rows = [{"account": name, "percent": amount} for name, amount in zip(("bio", "physics"), amounts, strict=False)]
    return stand.service.answers.change_entitlements(ROOT, {"op": "set", "entitlements": rows})["changed"]


def test_a_change_says_what_each_account_comes_to_where_all_are_cut(stand: Stand) -> None:
    stand.run(1)
    assert answered(stand, "cpus=8") == ["bio: 50 % -> 8 CPUs"], "all that physics leaves"
    *_, cut = answered(stand, "cpus=99999")
    assert cut == "the top accounts would own 100007 of 16 CPUs, so all are cut in proportion: bio 15, physics 0"
