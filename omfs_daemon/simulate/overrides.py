"""A configuration with some keys overridden, as ``KEY=VALUE``; nothing is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from pydantic import ValidationError

from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.config.entitlement_text import differences
from omfs_daemon.config.error_text import error_line, key_text, value_text
from omfs_daemon.config.percent import percent_text
from omfs_daemon.config.schema import Config, EntitlementSection
from omfs_daemon.config.toml_text import read_toml
from omfs_daemon.errors import ConfigError

_POLICY = ("quantum_seconds", "max_preemptions_per_hour", "max_preemptions_per_cycle", "urgent_may_take_entitled")
_COUNT = (
    *(f"policy.{name}" for name in _POLICY),
    "entitlements.ACCOUNT",
    "entitlements.ACCOUNT.cpus",
    "entitlements.ACCOUNT.parent",
)

_AMOUNTS = frozenset({"percent", "cpus"})

_Document = dict[str, Any]


def in_force(config: Config, entitlements: Iterable[Entitlement]) -> Config:
    """The configuration with these entitlements instead of its own."""
    sections = {
        one.name: EntitlementSection.model_validate({**_amount(one.percent, one.cpus), "parent": one.parent})
        for one in entitlements
    }
    return config.model_copy(update={"entitlements": sections})


def with_overrides(config: Config, overrides: Iterable[str]) -> Config:
    """The configuration with ``KEY=VALUE`` set, checked as a whole by the rules of the file.

    A value is TOML; a word needs no quotes. ``entitlements.NAME=40`` sets its percent. ConfigError, in one line, for
    what the file would not allow either, and for keys that no simulation uses.
    """
    document: _Document = {"policy": config.policy.model_dump(), "entitlements": _tables(config)}
    keys: list[str] = []
    for text in overrides:
        override = _read(text)
        keys += (key_text(path) for path in _paths(override))
        document = _merged(_without_other_amounts(document, override), override)
    try:
        valid = Config.model_validate(document)
    except ValidationError as error:
        raise ConfigError(f"--set: {error_line(error, Config)}") from error
    except ConfigError as error:
        raise ConfigError(f"--set: {error}") from error
    for key in keys:
        _refuse_what_does_not_count(key)
    return config.model_copy(update={"policy": valid.policy, "entitlements": valid.entitlements})


def changed_lines(before: Config, after: Config) -> tuple[str, ...]:
    """What differs, a line each: ``policy.quantum_seconds: 1800.0 -> 600.0``, ``entitlements.bio: 50 % -> 40 %``."""
    old, new = before.policy.model_dump(), after.policy.model_dump()
    policy = [
        f"policy.{name}: {value_text(old[name])} -> {value_text(new[name])}" for name in old if old[name] != new[name]
    ]
    return (*policy, *(f"entitlements.{line}" for line in differences(before.all_entitlements, after.all_entitlements)))


def _read(text: str) -> _Document:
    """``{"policy": {"quantum_seconds": 600}}``."""
    key, equals, value = text.partition("=")
    if not (equals and key.strip() and value.strip()) or "\n" in text:
        raise ConfigError(f"--set {value_text(text)}: must be KEY=VALUE, such as entitlements.physics=40")
    for written in (value, json.dumps(value.strip(), ensure_ascii=False)):
        try:
            document = read_toml(f"{key} = {written}")
        except ConfigError:
            continue
        return _with_percents(document)
    raise ConfigError(f"--set {value_text(text)}: {value_text(key.strip())} must be a key such as entitlements.physics")


def _with_percents(document: _Document) -> _Document:
    """With ``entitlements.NAME = 40`` spelt out as ``entitlements.NAME.percent = 40``."""
    tables = document.get("entitlements")
    if not isinstance(tables, dict):
        return document
    spelt = {name: own if isinstance(own, dict) else {"percent": own} for name, own in tables.items()}
    return document | {"entitlements": spelt}


def _tables(config: Config) -> _Document:
    return {one.name: {**_amount(one.percent, one.cpus), "parent": one.parent} for one in config.all_entitlements}


def _without_other_amounts(document: _Document, override: _Document) -> _Document:
    """Percent replaces CPUs, and CPUs replace percent."""
    asked = override.get("entitlements")
    asked = asked if isinstance(asked, dict) else {}
    kept = {
        name: {
            key: value
            for key, value in own.items()
            if key == "parent" or not _AMOUNTS.intersection(asked.get(name, ()))
        }
        for name, own in document["entitlements"].items()
    }
    return document | {"entitlements": kept}


def _amount(part: Fraction, cpus: int | None) -> _Document:
    return {"percent": percent_text(part)} if cpus is None else {"cpus": cpus}


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> _Document:
    """``old`` updated with ``new``, table by table."""
    both = {
        name: _merged(old[name], value) if isinstance(value, dict) and isinstance(old.get(name), dict) else value
        for name, value in new.items()
    }
    return {**old, **both}


def _paths(table: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _paths(value, (*above, name))
        else:
            yield (*above, name)


def _refuse_what_does_not_count(key: str) -> None:
    if key not in _COUNT and not key.startswith("entitlements."):
        raise ConfigError(f"--set {key}: no simulation goes by it; those that count: {', '.join(_COUNT)}")
