"""What the next active daemon must know, in the shared directory: a directory for each epoch.

Only the holder of an epoch's lease writes there. The next one copies it once, so what one that is paused writes later
is read by nobody.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from omfs_daemon.config.schema import DaemonSection
from omfs_daemon.daemon.store.disk import open_own, sync_directory
from omfs_daemon.daemon.store.file_format import (
    AUDIT,
    ENTITLEMENTS,
    EXEMPTIONS,
    JOURNAL,
    STATE_FILES,
    StateFile,
    refuse_unread_files,
)
from omfs_daemon.daemon.store.journal import refuse_other_cluster, replay
from omfs_daemon.errors import OmfsError

SHARED = (JOURNAL, ENTITLEMENTS, EXEMPTIONS, AUDIT)
"""History and what was learned stay in each host's own ``state_dir``: SQLite wants a local disk."""

_LOCAL = tuple(file for file in STATE_FILES if file not in SHARED)

_STATE = re.compile(r"state\.([1-9][0-9]{0,5})")
_KEPT = 2
"""Directories of the latest epochs."""


def decided_state_dir(daemon: DaemonSection) -> Path:
    """Where the files of ``SHARED`` are now: of two daemons, those of the last active one. OSError if that cannot be
    read."""
    if daemon.shared_directory is None:
        return daemon.state_dir
    states = _states(daemon.shared_directory)
    return states[max(states)] if states else daemon.state_dir


def files_by_directory(own: Path, decided: Path) -> dict[Path, tuple[StateFile, ...]]:
    """Which files omfsd keeps in which directory. ``own``: of this host; ``decided``: of ``decided_state_dir``."""
    return {own: STATE_FILES} if own == decided else {own: _LOCAL, decided: SHARED}


def _states(shared: Path) -> dict[int, Path]:
    """By epoch."""
    found = ((_STATE.fullmatch(path.name), path) for path in shared.iterdir())
    return {int(match[1]): path for match, path in found if match}


def why_unread(daemon: DaemonSection, cluster: str) -> str:
    """Why this version could not act on it, "" if it could; changes nothing."""
    try:
        directory = decided_state_dir(daemon)
        refuse_unread_files(directory)
        journal = directory / JOURNAL.name
        refuse_other_cluster(journal, replay(journal).state, cluster)
    except OmfsError as error:
        return str(error)
    return ""


def make_state(daemon: DaemonSection, shared: Path, epoch: int) -> Path:
    """This epoch's directory, made from the last one, or at first from this host's own ``state_dir``. OSError if that
    fails; then nothing is there."""
    before = decided_state_dir(daemon)
    made, draft = shared / f"state.{epoch}", shared / f".state.{epoch}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    for file in SHARED:
        with suppress(FileNotFoundError):
            _copy(before / file.name, draft / file.name)
    sync_directory(draft)
    draft.rename(made)
    sync_directory(shared)
    states = _states(shared)
    for old in sorted(states)[:-_KEPT]:
        shutil.rmtree(states[old], ignore_errors=True)
    return made


def _copy(old: Path, new: Path) -> None:
    source = os.fdopen(open_own(old, os.O_RDONLY), "rb")
    target = os.fdopen(open_own(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")
    with source, target:
        shutil.copyfileobj(source, target)
        target.flush()
        os.fsync(target.fileno())
