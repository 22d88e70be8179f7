"""The checkpoints of a job, one directory each, and which of them are good.

In ``gen-0007/`` the file ``manifest.json`` is written last; ``good`` lists the good generations, newest first;
``failed-0008/`` could not be restarted and is kept until the next restart. A generation that has a manifest and is
newer than those in ``good`` is good as well: power failed between the two writes.
"""

import contextlib
import errno
import fcntl
import os
import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from omfs_daemon.omfs_run.drivers.driver import Image
from omfs_daemon.omfs_run.store import files, manifest
from omfs_daemon.omfs_run.store.manifest import BadManifest, Manifest

SCRATCH = "scratch-"  # prefix of scratch directories that must be visible to all nodes

_GOOD, _LOCK = "good", "lock"
_GENERATION = re.compile(r"gen-([0-9]{4,9})\Z")
_ANY = re.compile(r"(?:gen|failed)-([0-9]{4,9})\Z")
_SCRATCH = re.compile(SCRATCH)
_GOOD_LIMIT = 4096


class Busy(Exception):
    """Another run of the job still uses the directory."""


class GenerationPath(NamedTuple):
    """A generation: its name, and its path for tools."""

    name: str
    path: str


class Generations:
    """``directory``: the open descriptor; ``path``: its path."""

    def __init__(self, directory: int, path: str) -> None:
        self._directory = directory
        self.path = path
        self._lock = -1
        self._ahead: Optional[Tuple[str, "Future[Manifest]"]] = None

    def lock(self, limit: float, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Lock out other runs while this process lives; Busy after ``limit`` seconds.

        False if the file system has no locks (Lustre mounted without ``flock``).
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = os.open(_LOCK, flags, 0o600, dir_fd=self._directory)
        end = time.monotonic() + limit
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Busy("{}: another run of the job still uses it".format(self.path)) from None
                sleep(0.2)
            except OSError as error:
                if error.errno in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
                    return False
                raise

    def candidates(self) -> List[str]:
        """The generations to restart from, best first; an unreadable ``good`` counts as none."""
        listed = [name for name in self._listed() if _GENERATION.match(name)]
        newest = _number(listed[0]) if listed else 0
        unlisted = [name for name in self._named(_GENERATION) if _number(name) > newest and self._sealed(name)]
        return sorted(unlisted, key=_number, reverse=True) + listed

    def computed(self) -> float:
        """The most seconds of computing that a candidate holds; 0 without one."""
        most = 0.0
        for name in self.candidates():
            with contextlib.suppress(BadManifest, OSError):
                most = max(most, self.manifest(name).computed)
        return most

    def manifest(self, name: str) -> Manifest:
        """BadManifest or OSError if there is none."""
        with self._opened(name) as inner:
            return manifest.read_manifest(inner, name)

    def verify_ahead(self) -> None:
        """Begin to verify the best candidate in the background; the next ``verify`` of it returns the result."""
        names = self.candidates()[:1]
        if names:
            pool = ThreadPoolExecutor(1)
            self._ahead = names[0], pool.submit(self._verify, names[0])
            pool.shutdown(wait=False)

    def verify(self, name: str) -> Manifest:
        """Check every file of a generation; BadManifest if one differs from the manifest."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == name:
            return ahead[1].result()
        return self._verify(name)

    def _verify(self, name: str) -> Manifest:
        try:
            with self._opened(name) as inner:
                return manifest.verify_files(inner, name)
        except OSError as error:
            raise BadManifest(error.strerror or str(error)) from None

    def new(self) -> GenerationPath:
        """Create the next generation, empty. OSError."""
        self._require_same()
        number = max([_number(name) for name in self._named(_ANY)] + [0]) + 1
        name = "gen-{:04d}".format(number)
        os.mkdir(name, 0o700, dir_fd=self._directory)
        os.fsync(self._directory)
        return self.generation(name)

    def generation(self, name: str) -> GenerationPath:
        """The path of a generation; OSError if the directory was replaced by another."""
        self._require_same()
        return GenerationPath(name, os.path.join(self.path, name))

    def seal(self, name: str, method: str, image: Image, computed: float, facts: Mapping[str, Any]) -> int:
        """Make a complete generation the best one; the one before it stays good. Returns its bytes."""
        before = self.candidates()[:1]
        with self._opened(name) as inner:
            size = manifest.write_manifest(inner, name, method, image, computed, facts)
        os.fsync(self._directory)
        self._write_good([name, *before])
        return size

    def settle(self, used: str, failed: Sequence[str]) -> None:
        """After a verified restart: ``used`` becomes the only good one, and older ones are removed.

        Those that just failed are kept for inspection, under another name: the program continues from an earlier
        state, so they must never be restarted.
        """
        kept = {used} | self._set_aside(failed)
        self._write_good([used])
        for name in self._named(_ANY):
            if name not in kept:
                files.remove_tree(self._directory, name)

    def start_over(self) -> None:
        """Mark all generations as failed; they are kept until the next restart."""
        self._set_aside(self._named(_GENERATION))
        self._write_good([])

    def discard(self, name: str) -> None:
        """Remove a generation that was not completed."""
        files.remove_tree(self._directory, name)

    def remove_scratch(self) -> None:
        """Remove scratch directories, also those that earlier runs left behind."""
        for name in self._named(_SCRATCH):
            files.remove_tree(self._directory, name)

    def clear(self) -> None:
        """Remove everything after the program's success, also the directory unless it has other files."""
        for name in (_GOOD, _GOOD + ".new", "run", "run.new"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._directory)
        for name in self._named(_ANY):
            files.remove_tree(self._directory, name)
        self.remove_scratch()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_LOCK, dir_fd=self._directory)
        with contextlib.suppress(OSError):
            self._require_same()
            os.rmdir(self.path)

    def _set_aside(self, names: Sequence[str]) -> "set[str]":
        aside = set()
        for name in names:
            new = "failed-" + name.partition("-")[2]
            with contextlib.suppress(FileNotFoundError):
                os.rename(name, new, src_dir_fd=self._directory, dst_dir_fd=self._directory)
                aside.add(new)
        os.fsync(self._directory)
        return aside

    def _write_good(self, names: Sequence[str]) -> None:
        files.write_file(self._directory, _GOOD, "".join(name + "\n" for name in names))

    def _listed(self) -> List[str]:
        try:
            return files.read_file(self._directory, _GOOD, _GOOD_LIMIT).split()
        except OSError:
            return []

    def _named(self, pattern: "re.Pattern[str]") -> List[str]:
        return [name for name in os.listdir(self._directory) if pattern.match(name)]

    def _sealed(self, name: str) -> bool:
        try:
            self.manifest(name)
        except (BadManifest, OSError):
            return False
        return True

    @contextlib.contextmanager
    def _opened(self, name: str) -> Any:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        inner = os.open(name, flags, dir_fd=self._directory)
        try:
            yield inner
        finally:
            os.close(inner)

    def _require_same(self) -> None:
        if not os.path.samestat(os.fstat(self._directory), os.lstat(self.path)):
            raise OSError(errno.ESTALE, "{} was replaced by another directory".format(self.path))


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
