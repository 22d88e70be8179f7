"""Times as people type them."""

from __future__ import annotations

import pytest

from omfs_daemon.errors import ConfigError
from omfs_daemon.terminal.times import seconds_since_epoch


def test_so_long_ago_and_never_before_the_epoch() -> None:
    assert seconds_since_epoch("2h", 10_000.0) == 2800.0
    assert seconds_since_epoch(" 1.5m ", 100.0) == 10.0
    assert seconds_since_epoch("30d", 10_000.0) == 0.0


def test_a_date_with_a_zone() -> None:
    assert seconds_since_epoch("1970-01-02T00:00+00:00", 0.0) == 86400.0


@pytest.mark.parametrize("text", ["", "soon", "5", "-1h", "1h2m", "2026-13-01"])
def test_all_else_is_refused_with_the_name_of_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--until = .*: must be such as 30m"):
        seconds_since_epoch(text, 0.0, "--until")
