"""TOML that people write: whatever it says, it is read, or refused in one line."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from omfs_daemon.errors import ConfigError

_MOST_LEVELS = 32
_TOO_DEEP = f"must be nested in at most {_MOST_LEVELS} levels"
_LONG_NUMBER = "a number is too long: must be whole numbers of 64 bits, or decimals with exponents of up to 18 digits"


def read_toml(text: str, fraction: Callable[[str], object] = Decimal) -> dict[str, Any]:
    """ConfigError for what is no TOML, is nested too deeply to be worked with, or has a number that is too long.

    ``fraction`` makes a number of a decimal one; percentages need exact ones.
    """
    try:
        found = tomllib.loads(text, parse_float=fraction)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{error}: must be TOML") from error
    except RecursionError:
        raise ConfigError(_TOO_DEEP) from None
    except (ValueError, ArithmeticError):
        raise ConfigError(_LONG_NUMBER) from None
    for level, value in _values(found):
        if level > _MOST_LEVELS:
            raise ConfigError(_TOO_DEEP)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:  # hexadecimal ones may have any length
            raise ConfigError(_LONG_NUMBER)
    return found


def _values(document: dict[str, Any]) -> Iterator[tuple[int, object]]:
    """All, with their levels; without recursion."""
    left: list[tuple[int, object]] = [(0, document)]
    while left:
        level, value = left.pop()
        yield level, value
        if isinstance(value, dict):
            left += ((level + 1, part) for part in value.values())
        elif isinstance(value, list):
            left += ((level + 1, part) for part in value)
