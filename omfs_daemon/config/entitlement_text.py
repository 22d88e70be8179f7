"""Entitlements as text: TOML tables as in the configuration file, CSV, and the rows of the socket."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from typing import TypedDict

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.config.load import parse_config
from omfs_daemon.config.percent import amount, percent_text
from omfs_daemon.config.toml_text import read_toml
from omfs_daemon.errors import ConfigError


class EntitlementRow(TypedDict):
    """``percent``: exact decimal text, of the parent's entitlement; or ``cpus=8``."""

    account: str
    percent: str
    parent: str


FORMAT_LINE = re.compile(r"^format = ([0-9]{1,9})\n", re.MULTILINE)
"""Of the file of those in force (daemon/store/file_format.py)."""

NO_ENTITLEMENTS = "[entitlements]\n"

_COLUMNS = ("account", "percent", "parent")


def to_toml(entitlements: Iterable[Entitlement]) -> str:
    """``[entitlements.NAME]`` tables; :func:`from_toml` and the configuration file take them back exactly."""
    import tomlkit  # omfsd and the client need it only here

    tables = tomlkit.table(is_super_table=True)
    for entitlement in entitlements:
        table = tomlkit.table()
        if entitlement.cpus is None:
            table.add("percent", tomlkit.value(percent_text(entitlement.percent)))
        else:
            table.add("cpus", entitlement.cpus)
        if entitlement.parent:
            table.add("parent", entitlement.parent)
        tables.add(entitlement.name, table)
    document = tomlkit.document()
    document.add("entitlements", tables)
    return tomlkit.dumps(document)


def from_toml(text: str, source: str) -> tuple[Entitlement, ...]:
    """The entitlements of a TOML text, which may be a whole configuration file, or the file of those in force with its
    format; ConfigError names ``source``."""
    return parse_config(FORMAT_LINE.sub("\n", text, count=1), source).all_entitlements


def says_none(text: str) -> bool:
    """Whether this valid TOML says that there are no entitlements, as a file does not that was cut off or mistaken."""
    return read_toml(text).get("entitlements") == {}


def from_csv(text: str, source: str) -> tuple[Entitlement, ...]:
    """Rows below the header ``account,percent,parent`` (parent may be left out); ConfigError for anything else."""
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True, strict=True)
    entitlements = []
    try:
        header = tuple(name.strip().lower() for name in reader.fieldnames or ())
        if header not in (_COLUMNS, _COLUMNS[:2]):
            raise ConfigError(f"{source}: line 1 = {','.join(header)!r}: must be account,percent,parent")
        reader.fieldnames = header
        for row in reader:
            # csv puts surplus cells under None and gives None for missing ones.
            if None in row or row["percent"] is None:
                raise ConfigError(f"{source}: line {reader.line_num}: must be account,percent,parent")
            entitlements.append(entitlement_from(row, f"{source}: line {reader.line_num}"))
    except csv.Error as error:
        raise ConfigError(f"{source}: line {reader.reader.line_num}: {error}: must be CSV") from error
    try:
        AccountTree(entitlements)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    return tuple(entitlements)


def amount_text(entitlement: Entitlement) -> str:
    """``"12.5"`` or ``"cpus=8"``: as :func:`omfs_daemon.config.percent.amount` reads it."""
    return percent_text(entitlement.percent) if entitlement.cpus is None else f"cpus={entitlement.cpus}"


def from_rows(rows: object) -> tuple[Entitlement, ...]:
    """The entitlements in a request on the socket; ConfigError if they are not :class:`EntitlementRow`."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError("entitlements: must be a list of {account, percent, parent}")
    return tuple(entitlement_from(row, f"entitlements[{index}]") for index, row in enumerate(rows))


def to_rows(entitlements: Iterable[Entitlement]) -> list[EntitlementRow]:
    return [
        {"account": entitlement.name, "percent": amount_text(entitlement), "parent": entitlement.parent}
        for entitlement in entitlements
    ]


def entitlement_from(row: Mapping[str, object], where: str) -> Entitlement:
    """One row of a request or of a CSV file; ConfigError that begins with ``where``."""
    account, parent = row.get("account"), row.get("parent") or ""
    if not isinstance(account, str) or not isinstance(parent, str):
        raise ConfigError(f"{where}: account and parent must be text")
    try:
        part, cpus = amount(row.get("percent"))
        return Entitlement(account.strip(), part, parent.strip(), cpus)
    except ValueError as error:
        raise ConfigError(f"{where}: percent = {row.get('percent')!r}: {error}") from error


def differences(old: Iterable[Entitlement], new: Iterable[Entitlement]) -> list[str]:
    """One line for each account that differs: ``bio: 50 % -> 40 %``."""
    before, after = ({entitlement.name: entitlement for entitlement in entitlements} for entitlements in (old, new))
    return [
        f"{name}: {_entitlement_text(before.get(name))} -> {_entitlement_text(after.get(name))}"
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    ]


def digest(entitlements: Iterable[Entitlement]) -> str:
    """The same for the same entitlements in any order."""
    text = to_toml(sorted(entitlements, key=lambda entitlement: entitlement.name))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _entitlement_text(entitlement: Entitlement | None) -> str:
    if entitlement is None:
        return "none"
    much = f"{percent_text(entitlement.percent)} %" if entitlement.cpus is None else f"{entitlement.cpus} CPUs"
    return much + (f" of {entitlement.parent}" if entitlement.parent else "")
