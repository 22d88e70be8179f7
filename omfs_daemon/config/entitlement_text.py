"""Entitlements as text: TOML tables as in the configuration file, CSV, and the rows of the socket."""

from __future__ import annotations

from typing import TypedDict
import csv
import io
from collections.abc import Iterable, Mapping
import tomlkit
from omfs_daemon.config.load import parse
from omfs_daemon.errors import ConfigError
from omfs_daemon.config.percent import percent
from omfs_daemon.config.percent import percent_text
from omfs_daemon.cluster.accounts import AccountShare
from omfs_daemon.cluster.accounts import AccountTree
from collections.abc import Iterable


# -- entitlements ------------------------------------------------------------------------------------


class ShareView(TypedDict):
    """``percent`` is exact decimal text, of the parent's share."""

    account: str
    percent: str
    parent: str

_COLUMNS = ("account", "percent", "parent")


def to_toml(shares: Iterable[AccountShare]) -> str:
    """``[entitlements.NAME]`` tables; :func:`from_toml` and the configuration file take them back exactly."""
    entitlements = tomlkit.table(is_super_table=True)
    for share in shares:
        table = tomlkit.table()
        table.add("percent", tomlkit.value(percent_text(share.percent)))
        if share.parent:
            table.add("parent", share.parent)
        entitlements.add(share.name, table)
    document = tomlkit.document()
    document.add("entitlements", entitlements)
    return tomlkit.dumps(document)


def from_toml(text: str, source: str) -> tuple[AccountShare, ...]:
    """Those of a TOML text, which may be a whole configuration file; ConfigError names ``source``."""
    return parse(text, source).shares


def from_csv(text: str, source: str) -> tuple[AccountShare, ...]:
    """Lines of ``account,percent,parent`` below that heading (parent may be left out); else ConfigError."""
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True, strict=True)
    shares = []
    try:
        heading = tuple(name.strip().lower() for name in reader.fieldnames or ())
        if heading not in (_COLUMNS, _COLUMNS[:2]):
            raise ConfigError(f"{source}: line 1 = {','.join(heading)!r}: must be account,percent,parent")
        reader.fieldnames = heading
        for row in reader:
            # csv puts surplus cells under None and gives None for missing ones.
            if None in row or row["percent"] is None:
                raise ConfigError(f"{source}: line {reader.line_num}: must be account,percent,parent")
            shares.append(share_from(row, f"{source}: line {reader.line_num}"))
    except csv.Error as error:
        raise ConfigError(f"{source}: line {reader.reader.line_num}: {error}: must be CSV") from error
    try:
        AccountTree(shares)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    return tuple(shares)


def from_rows(rows: object) -> tuple[AccountShare, ...]:
    """The shares in a request of the socket; ConfigError if they are not rows as :class:`ShareView` says."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError("shares: must be a list of {account, percent, parent}")
    return tuple(share_from(row, f"shares[{index}]") for index, row in enumerate(rows))


def to_rows(shares: Iterable[AccountShare]) -> list[ShareView]:
    return [{"account": share.name, "percent": percent_text(share.percent), "parent": share.parent} for share in shares]


def share_from(row: Mapping[str, object], where: str) -> AccountShare:
    """One row of a request or of a CSV file; ConfigError that begins with ``where``."""
    account, parent = row.get("account"), row.get("parent") or ""
    if not isinstance(account, str) or not isinstance(parent, str):
        raise ConfigError(f"{where}: account and parent must be text")
    try:
        return AccountShare(account.strip(), percent(row.get("percent")), parent.strip())
    except ValueError as error:
        raise ConfigError(f"{where}: percent = {row.get('percent')!r}: {error}") from error


def differences(old: Iterable[AccountShare], new: Iterable[AccountShare]) -> list[str]:
    """One line for each account that differs: ``bio: 50 % -> 40 %``."""
    before, after = ({share.name: share for share in shares} for shares in (old, new))
    return [
        f"{name}: {_share_text(before.get(name))} -> {_share_text(after.get(name))}"
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    ]


def _share_text(share: AccountShare | None) -> str:
    if share is None:
        return "none"
    return f"{percent_text(share.percent)} %" + (f" of {share.parent}" if share.parent else "")
