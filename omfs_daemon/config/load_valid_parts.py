"""What can be used of a configuration file that is wrong: the failsafe must work then, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from omfs_daemon.config.load import load
from omfs_daemon.config.schema import Config
from omfs_daemon.config.text_file import read_text
from omfs_daemon.config.toml_text import read_toml
from omfs_daemon.errors import ConfigError

_TABLE = re.compile(r"\s*\[\s*([\w.-]+)")


def load_valid_parts(path: Path) -> tuple[Config, str]:
    """The configuration, and "" if the file is right. Else what is wrong, in one line, and the configuration with each
    valid key of single values in ``daemon``, ``slurm``, ``scope``, ``nodes``, and
    ``policy``, and defaults for the rest."""
    try:
        return load(path), ""
    except ConfigError as error:
        why = str(error)
    try:
        tables = _tables(read_text(path))
    except ConfigError:
        tables = {}
    valid: dict[str, dict[str, Any]] = {}
    for table in ("daemon", "slurm", "scope", "nodes", "policy"):
        found = tables.get(table)
        for key, value in found.items() if isinstance(found, dict) else ():
            if _is_valid({table: {key: value}}):
                valid.setdefault(table, {})[key] = value
    return Config.model_validate(valid) if _is_valid(valid) else Config(), why


def _is_valid(tables: dict[str, Any]) -> bool:
    try:
        Config.model_validate(tables)
    except (ValidationError, ConfigError):
        return False
    return True


def _tables(text: str) -> dict[str, Any]:
    """Of a file that is no TOML, or too deep, what each of its lines says alone."""
    try:
        return read_toml(text)
    except ConfigError:
        pass
    found: dict[str, Any] = {}
    table = ""
    for line in text.splitlines():
        if line.lstrip().startswith("["):
            named = _TABLE.match(line)
            table = named[1] if named is not None else ""
            continue
        try:
            found.setdefault(table, {}).update(read_toml(line))
        except ConfigError:
            continue
    return found
