"""One cycle on paper beside a running daemon: on a copy of its state, so that neither waits for the other's lock."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.leadership.shared_state import decided_state_dir
from omfs_daemon.daemon.store.audit_log import AuditLog
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore, conflict_text
from omfs_daemon.errors import ConfigError


@contextmanager
def on_a_copy(config: Config) -> Iterator[Config]:
    """The configuration with directories of its own, which are removed in the end, and a copy of the journal in them.

    Changed entitlements count as in a start, but where this configuration was edited after the change: then its own are
    what is tried. ConfigError if the state cannot be read.
    """
    try:
        state = decided_state_dir(config.daemon)
    except OSError as error:
        raise ConfigError(f"{config.daemon.shared_directory}: cannot be read: {error.strerror}") from error
    with tempfile.TemporaryDirectory(prefix="omfsd-trial-") as directory:
        copies = {name: Path(directory) / name for name in ("state_dir", "run_dir")}
        for path in copies.values():
            path.mkdir(mode=0o700)
        names = ["journal", "exemptions.json", "entitlements.toml"]
        if conflict := _conflict(config, state):
            text = f"tried here with its own, but a reload would be refused: {conflict_text(conflict)}"
            structlog.get_logger("omfsd").error("entitlements_conflict", message=text)
            names.remove("entitlements.toml")
        for name in names:
            try:
                copy = shutil.copyfile(state / name, copies["state_dir"] / name)
                copy.chmod(0o600)
            except FileNotFoundError:
                continue  # nothing was changed, or no daemon has run yet
            except OSError as error:
                raise ConfigError(f"{state / name}: cannot be read: {error.strerror}; run as omfsd's user") from error
        yield config.model_copy(update={"daemon": config.daemon.model_copy(update=copies | {"shared_directory": None})})


def _conflict(config: Config, state: Path) -> list[str]:
    """Where its entitlements were edited since those in force were changed by command."""
    try:
        return EntitlementStore(state, config.all_entitlements, AuditLog(state, lambda: 0.0)).conflict()
    except OSError as error:
        raise ConfigError(f"{state}: cannot be read: {error.strerror}; run as omfsd's user") from error
