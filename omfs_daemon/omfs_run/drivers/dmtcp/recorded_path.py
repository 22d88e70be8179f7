"""The path under which DMTCP wrote a checkpoint, which must exist again while it is restarted.

DMTCP copies files that it may not find again (``/dev/shm`` mappings, unlinked files) into the checkpoint, and looks for
the copies under the absolute path of that time. That path lay in the scratch directory of an earlier start, which is
gone, or on another node.
"""

import contextlib
import os
import stat
import sys
from typing import List

from omfs_daemon.omfs_run.drivers.dmtcp import images
from omfs_daemon.omfs_run.private_directory import BadDirectory, open_private


class RecordedPath:
    """A link to ``directory`` at the path that its restart script names, until ``remove``."""

    def __init__(self, directory: str) -> None:
        self._made: List[str] = []  # what is to be removed, innermost first
        path = images.recorded_directory(directory)
        if path and os.path.realpath(path) != os.path.realpath(directory):
            try:
                self._link(path, os.path.abspath(directory))
            except (BadDirectory, OSError) as error:
                text = "omfs-run: {} cannot be made again: {}; files that DMTCP has copied will be missing\n"
                sys.stderr.write(text.format(path, error))

    def remove(self) -> None:
        for path in self._made:
            with contextlib.suppress(OSError):
                if os.path.islink(path):
                    os.unlink(path)
                else:
                    os.rmdir(path)
        self._made = []

    def _link(self, path: str, directory: str) -> None:
        parent, name = os.path.split(path)
        missing = parent
        while not os.path.lexists(missing):
            self._made.append(missing)
            missing = os.path.dirname(missing)
        descriptor, _ = open_private(parent, os.geteuid())
        try:
            with contextlib.suppress(FileNotFoundError):
                _set_aside(name, descriptor)
            os.symlink(directory, name, dir_fd=descriptor)
            self._made.insert(0, path)
        finally:
            os.close(descriptor)


def _set_aside(name: str, parent: int) -> None:
    """What an earlier start of this run left there: a link, or an empty directory."""
    if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent)
    else:
        os.rmdir(name, dir_fd=parent)
