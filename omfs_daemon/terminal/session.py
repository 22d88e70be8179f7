"""The options before the command: which configuration, which daemon."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from omfs_daemon.config.socket_path import DEFAULT_PATH, socket_path
from omfs_daemon.daemon.api.client import Client

if TYPE_CHECKING:
    from omfs_daemon.config.schema import Config


@dataclass(frozen=True)
class Session:
    """``config_path`` is None when nobody named one; then the default file is used if it is there."""

    config_path: Path | None
    socket: Path | None

    def config(self) -> Config:
        """The configuration file; the defaults when none was named and this user cannot read one. ConfigError."""
        from omfs_daemon.config.load import load
        from omfs_daemon.config.schema import Config

        if self.config_path is not None:
            return load(self.config_path)
        return load(DEFAULT_PATH) if os.access(DEFAULT_PATH, os.R_OK) else Config()

    def client(self) -> Client:
        """A client of the daemon with this configuration: a file that is wrong elsewhere still says where its socket
        is, and for one that this user may not read it is the default one. ConfigError if there is no such file."""
        return Client(self.socket or socket_path(self.config_path) or self._socket_in_valid_parts())

    def _socket_in_valid_parts(self) -> Path:
        from omfs_daemon.config.load_valid_parts import load_valid_parts

        path = self.config_path or DEFAULT_PATH
        config, _ = load_valid_parts(path)
        if "run_dir" not in config.daemon.model_fields_set and os.access(path, os.R_OK | os.F_OK):
            self._refuse_wrong_run_dir(path)
        if not path.exists():
            self.config()  # says so
        return config.daemon.socket

    def _refuse_wrong_run_dir(self, path: Path) -> None:
        """ConfigError for a file that names one which is wrong: no daemon is where the default is."""
        with suppress(OSError, UnicodeDecodeError):
            if re.search(r"(?m)^\s*run_dir\b", path.read_text(encoding="utf-8")):
                self.config()


def session_of(context: typer.Context) -> Session:
    return cast(Session, context.find_root().obj)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
