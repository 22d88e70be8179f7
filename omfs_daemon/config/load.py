"""Reading and checking a file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from pydantic import ValidationError
from omfs_daemon.config.error_text import fault_line
from omfs_daemon.errors import ConfigError
from omfs_daemon.cluster.accounts import AccountShare
from omfs_daemon.slurm.gateway import AccountRow
from omfs_daemon.config.schema import Config

DEFAULT_PATH = Path("/etc/omfs/omfs.toml")


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
