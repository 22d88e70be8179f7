"""``omfsd --check-state``: whether this version reads the files in the state directory, and what it would convert.

Only reads, takes no lock, and asks Slurm nothing, so that it also works beside a running omfsd of another version.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from omfs_daemon.daemon.store.entitlement_store import stored_entitlements
from omfs_daemon.daemon.store.exemption_store import stored_exemptions
from omfs_daemon.daemon.store.file_format import ENTITLEMENTS, EXEMPTIONS, JOURNAL, STATE_FILES, StateFile, format_of
from omfs_daemon.daemon.store.journal import replay
from omfs_daemon.errors import OmfsError


class StateReport(NamedTuple):
    """``lines``: one for each file, and a last one that sums them up. ``is_read``: this version reads all of them."""

    lines: tuple[str, ...]
    is_read: bool


def check_state(state_dir: Path, files: Iterable[StateFile] | None = None) -> StateReport:
    """``files``: those that omfsd keeps there; default: all."""
    lines, unread = [], []
    for file in STATE_FILES if files is None else files:
        path = state_dir / file.name
        try:
            lines.append(f"{path}: {_found(file, path)}")
        except OmfsError as error:
            lines.append(str(error))
            unread.append(file)
    if not unread:
        lines.append(f"{state_dir}: this version reads what is there")
    elif any(file.is_needed for file in unread):
        lines.append(f"{state_dir}: this version does not start with what is there")
    else:
        lines.append(f"{state_dir}: this version starts with what is there, but without predictions")
    return StateReport(tuple(lines), not unread)


def _found(file: StateFile, path: Path) -> str:
    """OmfsError, whose text names the file, if omfsd would not read it."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise OmfsError(f"{path}: is no regular file")
        number = file.number(path)
    except FileNotFoundError:
        return "not there: omfsd begins a new one when it needs it"
    except OSError as error:
        raise OmfsError(f"{path}: cannot be read: {error.strerror}") from error
    found = format_of(file, path)
    if file is JOURNAL:
        replay(path)
    elif file is ENTITLEMENTS:
        stored_entitlements(path)
    elif file is EXEMPTIONS:
        stored_exemptions(path)
    if number is None:
        return "empty, torn, or damaged: omfsd begins a new one"
    if found == file.newest:
        return f"format {found}, which this version writes"
    return f"format {found}: this version, which writes format {file.newest}, {file.conversion}"
