"""The checkpoints of a job, one directory each, and which of them are good.

``gen-0007/`` with ``manifest.json`` written last; ``good`` names the good ones, newest first; ``failed-0008/`` could
not be restarted and is kept until the next restart. A generation newer than ``good`` whose manifest is there is good
too: the power failed between the two.
"""

import contextlib
import errno
import fcntl
import os
import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from omfs_daemon.omfs_run.store import files
from omfs_daemon.omfs_run.store import manifest
from omfs_daemon.omfs_run.drivers.driver import Image
from omfs_daemon.omfs_run.store.manifest import Manifest
from omfs_daemon.omfs_run.store.manifest import Refused

SCRATCH = "scratch-"  # how the names of scratch directories begin that must be seen by all nodes

_GOOD, _LOCK = "good", "lock"
_GENERATION = re.compile(r"gen-([0-9]{4,9})$")
_ANY = re.compile(r"(?:gen|failed)-([0-9]{4,9})$")
_SCRATCH = re.compile(SCRATCH)
_GOOD_LIMIT = 4096


class Busy(Exception):
    """Another run of the job still uses the directory."""


class Place(NamedTuple):
    """A generation: its name, and the path that a tool is given."""

    name: str
    path: str


class Generations:
    """``directory``: the open one; ``path``: where it is."""

    def __init__(self, directory: int, path: str) -> None:
        self._directory = directory
        self.path = path
        self._lock = -1
        self._ahead: Optional[Tuple[str, "Future[Manifest]"]] = None

    def lock(self, limit: float, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Keep other runs out as long as this process lives; Busy after ``limit`` seconds.

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
        """The generations to restart from, best first; a ``good`` that cannot be read is as none."""
        listed = [name for name in self._listed() if _GENERATION.match(name)]
        newest = _number(listed[0]) if listed else 0
        unlisted = [name for name in self._named(_GENERATION) if _number(name) > newest and self._sealed(name)]
        return sorted(unlisted, key=_number, reverse=True) + listed

    def computed(self) -> float:
        """The most seconds of computing that a candidate holds; 0 without one."""
        most = 0.0
        for name in self.candidates():
            with contextlib.suppress(Refused, OSError):
                most = max(most, self.manifest(name).computed)
        return most

    def manifest(self, name: str) -> Manifest:
        """Refused or OSError if there is none."""
        with self._opened(name) as inner:
            return manifest.read(inner, name)

    def verify_ahead(self) -> None:
        """Begin to verify the best candidate while the caller does something else; ``verify`` has its result once."""
        names = self.candidates()[:1]
        if names:
            pool = ThreadPoolExecutor(1)
            self._ahead = names[0], pool.submit(self._verify, names[0])
            pool.shutdown(wait=False)

    def verify(self, name: str) -> Manifest:
        """Check every file of a generation; Refused if it is not what its manifest says."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == name:
            return ahead[1].result()
        return self._verify(name)

    def _verify(self, name: str) -> Manifest:
        try:
            with self._opened(name) as inner:
                return manifest.check(inner, name)
        except OSError as error:
            raise Refused(error.strerror or str(error)) from None

    def new(self) -> Place:
        """Make the next generation, empty. OSError."""
        self._require_same()
        number = max([_number(name) for name in self._named(_ANY)] + [0]) + 1
        name = "gen-{:04d}".format(number)
        os.mkdir(name, 0o700, dir_fd=self._directory)
        os.fsync(self._directory)
        return self.place(name)

    def place(self, name: str) -> Place:
        """Where a generation is. OSError if the directory was exchanged for another."""
        self._require_same()
        return Place(name, os.path.join(self.path, name))

    def seal(self, name: str, method: str, image: Image, computed: float, facts: Mapping[str, Any]) -> int:
        """Make a complete generation the good one; the one before it stays good as well. Returns its bytes."""
        before = self.candidates()[:1]
        with self._opened(name) as inner:
            size = manifest.write(inner, name, method, image, computed, facts)
        os.fsync(self._directory)
        self._write_good([name, *before])
        return size

    def settle(self, used: str, failed: Sequence[str]) -> None:
        """After a verified restart: ``used`` is the only good one, older ones are removed.

        Those that failed just now are kept for a look at them, under another name: the program goes on from an
        earlier state, so they must never be restarted again.
        """
        kept = {used} | self._set_aside(failed)
        self._write_good([used])
        for name in self._named(_ANY):
            if name not in kept:
                files.remove_tree(self._directory, name)

    def start_over(self) -> None:
        """None of them is good any more; they stay until the next restart."""
        self._set_aside(self._named(_GENERATION))
        self._write_good([])

    def discard(self, name: str) -> None:
        """Remove a generation that has not become one."""
        files.remove_tree(self._directory, name)

    def tidy(self) -> None:
        """Remove scratch directories, of runs that ended without doing so too."""
        for name in self._named(_SCRATCH):
            files.remove_tree(self._directory, name)

    def clear(self) -> None:
        """Remove everything, the directory too if nothing of others is in it: the program has ended well."""
        for name in (_GOOD, _GOOD + ".new", "run", "run.new"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._directory)
        for name in self._named(_ANY):
            files.remove_tree(self._directory, name)
        self.tidy()
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
        files.write(self._directory, _GOOD, "".join(name + "\n" for name in names))

    def _listed(self) -> List[str]:
        try:
            return files.read(self._directory, _GOOD, _GOOD_LIMIT).split()
        except OSError:
            return []

    def _named(self, pattern: "re.Pattern[str]") -> List[str]:
        return [name for name in os.listdir(self._directory) if pattern.match(name)]

    def _sealed(self, name: str) -> bool:
        try:
            self.manifest(name)
        except (Refused, OSError):
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
            raise OSError(errno.ESTALE, "{} is another directory now".format(self.path))


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
