"""The options before the command: which configuration, which daemon."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from omfs_daemon.config.login_place import LoginPlace, host_port
from omfs_daemon.config.socket_path import DEFAULT_PATH, DaemonPlaces, daemon_places
from omfs_daemon.config.text_file import read_text
from omfs_daemon.daemon.api.client import Client
from omfs_daemon.errors import ConfigError

if TYPE_CHECKING:
    from omfs_daemon.config.schema import Config, DaemonSection


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
        is, and for one that this user may not read it is the default one. Where that is not, as on a login node, the
        daemon is asked at its login address. ConfigError if there is no such file."""
        if self.socket is not None:
            return Client(self.socket)
        places = daemon_places(self.config_path) or self._places_in_valid_parts()
        if places.login is None or os.access(places.socket, os.F_OK):
            return Client(places.socket)
        from omfs_daemon.daemon.api.login_client import login_client

        return login_client(places.login)

    def _places_in_valid_parts(self) -> DaemonPlaces:
        from omfs_daemon.config.load_valid_parts import load_valid_parts

        path = self.config_path or DEFAULT_PATH
        config, _ = load_valid_parts(path)
        daemon = config.daemon
        self._refuse_wrong("run_dir", daemon, path)
        if not path.exists():
            self.config()  # says so
        if os.access(daemon.socket, os.F_OK):
            return DaemonPlaces(daemon.socket)
        self._refuse_wrong("login_address", daemon, path)
        if daemon.login_address is None:
            return DaemonPlaces(daemon.socket)
        if daemon.user is None:
            self.config()  # says so
        return DaemonPlaces(
            daemon.socket, LoginPlace(host_port(daemon.login_address), str(daemon.user), config.slurm.conf)
        )

    def _refuse_wrong(self, key: str, valid: DaemonSection, path: Path) -> None:
        """ConfigError for a file that has it, but wrong: no daemon is where the default is."""
        if key in valid.model_fields_set:
            return
        try:
            text = read_text(path)
        except ConfigError:
            return
        if re.search(rf"(?m)^\s*{key}\b", text):
            self.config()


def session_of(context: typer.Context) -> Session:
    return cast(Session, context.find_root().obj)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
