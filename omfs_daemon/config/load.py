"""Read and check a configuration file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError

from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.config.error_text import error_line, key_text, value_text
from omfs_daemon.config.schema import Config
from omfs_daemon.config.text_file import read_text
from omfs_daemon.config.toml_text import read_toml
from omfs_daemon.errors import ConfigError
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.slurm.gateway import ROOT_ACCOUNT, AccountRow


def load(path: Path) -> Config:
    """The configuration in a file; ConfigError with one line: file, key, value and what is allowed."""
    return parse_config(read_text(path), str(path))


def parse_config(text: str, source: str) -> Config:
    """The configuration in a TOML text; ``source`` names it in the ConfigError."""
    try:
        config = Config.model_validate(read_toml(text))
        _check_methods(config)
        _check_login(config)
    except ValidationError as error:
        raise ConfigError(f"{source}: {error_line(error, Config)}") from error
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    return config


def _check_methods(config: Config) -> None:
    """ConfigError for the first name of a method that is not installed."""
    named: list[tuple[tuple[str | int, ...], str]] = [(("methods", name), name) for name in config.methods]
    for number, section in enumerate(config.classes):
        for key, names in (("methods", section.methods or ()), ("default", section.default)):
            named += [(("class", number, key, index), name) for index, name in enumerate(names)]
    unknown = [(place, name) for place, name in named if name not in installed()]
    if unknown:
        place, name = unknown[0]
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise ConfigError(f"{key_text(place)} = {value_text(name)}: must be one of {', '.join(installed())}{more}")


def _check_login(config: Config) -> None:
    daemon = config.daemon
    if daemon.login_address is not None and daemon.user is None:
        raise ConfigError("daemon.login_address: needs daemon.user, the user for whom login nodes write requests")


def check_accounts(config: Config, rows: Sequence[AccountRow] | None) -> None:
    """ConfigError that names all accounts with an entitlement in the file that slurmdbd does not know.

    ``rows``: as the gateway returns them; None (no accounting runs) accepts every name.
    """
    check_entitlements(config.all_entitlements, rows)


def check_entitlements(entitlements: Iterable[Entitlement], rows: Sequence[AccountRow] | None) -> None:
    """As :func:`check_accounts`, for entitlements that come from elsewhere."""
    if rows is None:
        return
    known = sorted(row.name for row in rows if row.name != ROOT_ACCOUNT)
    unknown = [entitlement.name for entitlement in entitlements if entitlement.name not in known]
    if ROOT_ACCOUNT in unknown:
        what = "is above all accounts, so it is the whole cluster: entitlements are of accounts below it"
        raise ConfigError(f"entitlements.{ROOT_ACCOUNT}: {what}; jobs of its own count among those without one")
    if unknown:
        close = [best for name in unknown for best in get_close_matches(name, known, n=1)]
        hint = (
            f"did you mean {', '.join(map(repr, close))}?" if close else f"it knows {', '.join(known) or 'no account'}"
        )
        what = "must be an account" if len(unknown) == 1 else "must be accounts"
        raise ConfigError(f"entitlements.{', '.join(unknown)}: {what} that slurmdbd knows; {hint}")
