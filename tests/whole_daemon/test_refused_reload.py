"""A reload that was refused stays visible until the next good one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from omfs_daemon.config.load import parse_config
from omfs_daemon.daemon.trial import on_a_copy
from tests.whole_daemon.test_process import ALICE, ROOT, Stand

CHANGE: dict[str, object] = {
    "op": "set",
    "entitlements": [{"account": "bio", "percent": "30"}, {"account": "physics", "percent": "40"}],
}


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path)
    yield found
    found.service.close()


@pytest.mark.parametrize("wrong", ["[daemon", "[slurm]\ntimeout_seconds = 3\n[daemon]"])
def test_status_says_why_and_when_until_a_reload_is_good(stand: Stand, wrong: str) -> None:
    good = stand.path.read_text()
    assert "reload_refused" not in stand.service.answers.status(ROOT)
    stand.path.write_text(good.replace("[daemon]", wrong))
    stand.now += 7
    stand.service._reload_if_good()
    stand.now += 50
    refused = stand.service.answers.status(ROOT)["reload_refused"]
    assert refused["time"] == stand.now - 50 and refused["text"].startswith(str(stand.path)), refused
    assert "reload_refused" not in stand.service.answers.status(ALICE), "the file is not for users"
    stand.path.write_text(good)
    stand.service._reload_if_good()
    assert "reload_refused" not in stand.service.answers.status(ROOT)


def test_a_refused_conflict_of_entitlements_is_shown_without_a_restart(stand: Stand) -> None:
    answers, good = stand.service.answers, stand.path.read_text()
    answers.change_entitlements(ROOT, CHANGE)
    stand.path.write_text(good.replace("percent = 50", "percent = 25"))
    stand.service._reload_if_good()
    assert "bio: 30 % -> 25 %" in answers.status(ROOT)["reload_refused"]["text"]
    assert "bio: 30 % -> 25 %" in answers.status(ROOT)["entitlements_conflict"]
    assert answers.entitlements(ROOT)["conflict"] == ["bio: 30 % -> 25 %", "physics: 40 % -> 25 %"]
    stand.run(1)
    assert {row["account"]: row["entitled"] for row in answers.status(ROOT)["accounts"]}["bio"] == 4, "30 % of 16"
    rows = [{"account": name, "percent": "25", "parent": ""} for name in ("bio", "physics")]
    answers.change_entitlements(ROOT, {"op": "replace", "entitlements": rows})
    assert "entitlements_conflict" not in answers.status(ROOT), "those of the file are in force"
    answers.change_entitlements(ROOT, CHANGE)
    stand.service._reload_if_good()
    assert "reload_refused" not in answers.status(ROOT), "the file was not edited after this change"


def test_a_configuration_tried_says_that_its_reload_would_be_refused(stand: Stand) -> None:
    new = stand.path.read_text().replace("percent = 50", "percent = 25")
    stand.run(1)
    assert "refused" not in stand.service.answers.plan_with(ROOT, new, "new.toml")["summary_new"]
    stand.service.answers.change_entitlements(ROOT, CHANGE)
    text = stand.service.answers.plan_with(ROOT, new, "new.toml")["summary_new"]
    assert "a reload would be refused" in text and "bio: 30 % -> 25 %" in text
    with capture_logs() as logs, on_a_copy(parse_config(new, "new.toml")):
        pass
    (logged,) = logs
    assert logged["event"] == "entitlements_conflict" and "bio: 30 % -> 25 %" in logged["message"]
