"""Types of single values in the configuration."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from omfs_daemon.config.percent import percent


def _plain_number(value: object) -> object:
    """TOML's decimals are parsed as Decimal, so that percentages are exact."""
    return float(value) if isinstance(value, Decimal) else value


def _plain_options(value: object) -> object:
    """Options are sent to the nodes as JSON, which has neither Decimal nor dates."""
    if isinstance(value, dict):
        return {name: _plain_options(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain_options(part) for part in value]
    value = _plain_number(value)
    if not isinstance(value, str | int | float):
        raise ValueError("must be made of text, numbers, true and false, lists and tables")
    return value


def _without_nul(text: str) -> str:
    """As the system takes names of files, users, and hosts."""
    if "\0" in text:
        raise ValueError("must have no NUL character")
    return text


def _absolute(path: Path) -> Path:
    _without_nul(str(path))
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path


def _safe_word(word: str) -> str:
    """A word of a command on a node: it passes a remote shell, so it has no character that a shell interprets."""
    if not re.fullmatch(r"[A-Za-z0-9_./=+:@-]+", word):
        raise ValueError("must be made of letters, digits and _ . / = + : @ -")
    return word


def _slurm_name(name: str) -> str:
    """The submit plug-in reads lists of names, divided by commas."""
    if not name.isprintable() or not name or re.search(r"[\s,;]", name):
        raise ValueError("must be a name without blanks, commas or semicolons")
    return name


def license_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]*\{node\}[A-Za-z0-9_.-]*", name):
        raise ValueError('must hold {node} once, as in "ve_{node}", and else letters, digits and _ . -')
    return name


_Number = BeforeValidator(_plain_number)
Seconds = Annotated[float, _Number, Field(ge=0, allow_inf_nan=False, strict=True)]
SomeSeconds = Annotated[float, _Number, Field(gt=0, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]
SomeCount = Annotated[int, Field(gt=0, strict=True)]
Switch = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(min_length=1), AfterValidator(_without_nul)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
Slowdown = Annotated[float, _Number, Field(ge=1, allow_inf_nan=False, strict=True)]
Weight = Annotated[float, _Number, Field(ge=0, allow_inf_nan=False, strict=True)]
PercentOfMachine = Annotated[float, _Number, Field(gt=0, le=100, allow_inf_nan=False, strict=True)]
SafeWord = Annotated[str, AfterValidator(_safe_word)]
SlurmName = Annotated[str, AfterValidator(_slurm_name)]
MethodOptions = Annotated[dict[str, Any], BeforeValidator(_plain_options)]
Percent = Annotated[Fraction, BeforeValidator(percent)]
