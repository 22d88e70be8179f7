"""Whatever a TOML text says, it is read, or refused in one line."""

from __future__ import annotations

from decimal import Decimal

import pytest

from omfs_daemon.config.toml_text import read_toml
from omfs_daemon.errors import ConfigError
from tests.support.hostile_text import HOSTILE_TOML


@pytest.mark.parametrize("text", HOSTILE_TOML.values(), ids=HOSTILE_TOML)
def test_a_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be") as caught:
        read_toml(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 120


def test_decimals_are_exact_unless_asked() -> None:
    assert read_toml("a = 0.1") == {"a": Decimal("0.1")}
    assert read_toml("a = 0.1", float) == {"a": 0.1}


def test_what_fits_is_read() -> None:
    assert read_toml(f"a = [{2**63 - 1}, {-(2**63)}]") == {"a": [2**63 - 1, -(2**63)]}
    assert read_toml("a." * 31 + "a = 1")
    with pytest.raises(ConfigError, match="nested"):
        read_toml("a." * 32 + "a = 1")
