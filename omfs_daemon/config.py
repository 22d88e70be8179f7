"""The configuration: one TOML file, checked whole before any of it is in force.

The models (:mod:`omfs_daemon.config_sections`) are the only place that names an option; the sample
(:mod:`omfs_daemon.config_sample`) and the one-line faults (:mod:`omfs_daemon.config_faults`) are made from them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import Self

from pydantic import (
    Field,
    ValidationError,
    model_validator,
)

from omfs_daemon.cluster.methods import Pace
from omfs_daemon.config_faults import fault_line
from omfs_daemon.config_sections import (
    BookSection,
    ClassSection,
    DaemonSection,
    EntitlementSection,
    MethodName,
    MethodSection,
    MetricsSection,
    NodesSection,
    PolicySection,
    Section,
    SlurmSection,
)
from omfs_daemon.errors import ConfigError
from omfs_daemon.methods.registry import installed
from omfs_daemon.policy.accounts import AccountShare, AccountTree
from omfs_daemon.policy.rules import Rules
from omfs_daemon.slurm.books import Book, Books
from omfs_daemon.slurm.gateway import AccountRow

DEFAULT_PATH = Path("/etc/omfs/omfs.toml")


class Config(Section):
    """The whole file. Every table may be left out."""

    slurm: SlurmSection = SlurmSection()
    daemon: DaemonSection = DaemonSection()
    policy: PolicySection = PolicySection()
    metrics: MetricsSection = MetricsSection()
    nodes: NodesSection = NodesSection()
    methods: dict[MethodName, MethodSection] = Field(default_factory=dict)
    entitlements: dict[str, EntitlementSection] = Field(default_factory=dict)
    classes: tuple[ClassSection, ...] = Field((), alias="class")
    book: tuple[BookSection, ...] = ()

    @property
    def shares(self) -> tuple[AccountShare, ...]:
        return tuple(AccountShare(name, own.percent, own.parent) for name, own in self.entitlements.items())

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        AccountTree(self.shares)
        licences = [section.licence for section in self.book]
        if twice := [name for name in licences if licences.count(name) > 1]:
            raise ConfigError(
                f"book.licence = {twice[0]!r}: must be unique, but is given {licences.count(twice[0])} times"
            )
        names = [section.name for section in self.classes]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"class.name = {twice[0]!r}: must be unique, but is given {names.count(twice[0])} times")
        return self


def load(path: Path) -> Config:
    """The configuration in a file; ConfigError with one line: file, key, value and what is allowed."""
    return parse(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a file; ConfigError if it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start + 1} is not UTF-8, which TOML must be") from error


def parse(text: str, source: str) -> Config:
    """The configuration in a TOML text; ``source`` names it in the ConfigError."""
    try:
        return Config.model_validate(tomllib.loads(text, parse_float=Decimal))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: {error}: must be TOML") from error
    except ValidationError as error:
        raise ConfigError(f"{source}: {fault_line(error, Config)}") from error
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def check_accounts(config: Config, rows: Sequence[AccountRow] | None) -> None:
    """ConfigError if the file gives an entitlement to an account that slurmdbd does not know.

    ``rows`` is what the gateway says; None (no accounting runs) accepts every name.
    """
    check_shares(config.shares, rows)


def check_shares(shares: Iterable[AccountShare], rows: Sequence[AccountRow] | None) -> None:
    """As :func:`check_accounts`, for entitlements that come from elsewhere."""
    if rows is None:
        return
    known = sorted(row.name for row in rows)
    for share in shares:
        if share.name not in known:
            close = get_close_matches(share.name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it knows {', '.join(known) or 'no account'}"
            raise ConfigError(f"entitlements.{share.name}: must be an account that slurmdbd knows; {hint}")


def rules(config: Config, shares: Iterable[AccountShare]) -> Rules:
    """What the policy goes by, with the entitlements that are in force now."""
    policy = config.policy
    return Rules(
        tree=AccountTree(shares),
        classes=tuple(section.rule() for section in config.classes),
        quantum=policy.quantum_seconds,
        min_runtime_max=policy.min_runtime_max_seconds,
        max_stops_per_hour=policy.max_stops_per_hour,
        max_stops_per_cycle=policy.max_stops_per_cycle,
        urgent_may_take_entitled=policy.urgent_may_take_entitled,
        rank_depth=policy.rank_depth,
        methods={name: method.traits for name, method in installed().items()},
        paces={name: _pace(method.pace, config.methods.get(name)) for name, method in installed().items()},
    )


def books(config: Config) -> Books:
    """The licences that stand for what nodes have."""
    return Books(Book(section.licence, section.kind, section.anywhere or "") for section in config.book)


def stop_timeouts(config: Config) -> dict[str, float]:
    """Seconds that a job may take to be stopped, of the methods that have a limit of their own."""
    careful = (name for name, method in installed().items() if method.traits.is_careful)
    own = {name: section.stop_timeout_seconds for name, section in config.methods.items()}
    given = {name: seconds for name, seconds in own.items() if seconds is not None}
    return dict.fromkeys(careful, _CAREFUL_STOP) | given


_CAREFUL_STOP = 600.0


def _pace(built_in: Pace, own: MethodSection | None) -> Pace:
    """What the site has measured, else what the method says of itself."""
    if own is None:
        return built_in
    measured = {
        "stop_seconds": own.stop_seconds,
        "stop_rate": own.stop_bytes_per_second,
        "back_seconds": own.back_seconds,
        "back_rate": own.back_bytes_per_second,
    }
    return replace(built_in, **{name: value for name, value in measured.items() if value is not None})
