"""What a complete checkpoint of DMTCP looks like on disk.

DMTCP writes each process's image to ``*.dmtcp.temp`` and renames it; the coordinator writes the restart script when
the last process has reported the name of its image, makes it executable, and then links it under a name without number.
So the link comes last, and the script lists all images.
"""

import contextlib
import os
import re
import stat
from typing import Iterable, List, NamedTuple, Optional

LINK = "dmtcp_restart_script.sh"
SUFFIX = ".dmtcp"

_SCRIPT = re.compile(r"dmtcp_restart_script_[0-9A-Za-z_.-]+\.sh\Z")
_COUNT = re.compile(r"^# Number of processes in the computation = (\d+)$", re.MULTILINE)
# One host: given_ckpt_files=" A B"; several: worker_ckpts=' :: HOST :bg: A B : ssh'. Names may hold blanks.
_LISTED = re.compile(r"""^(?:given_ckpt_files="([^"]*)"|worker_ckpts='([^']*)')$""", re.MULTILINE)
_IMAGE = re.compile(r"/(ckpt_[^/]*?\.dmtcp)(?=\s|\Z)")
_RECORDED = re.compile(r"""^given_ckpt_files=" *(/[^"\n]*?)/ckpt_[^/]*\.dmtcp""", re.MULTILINE)
_MOST_SCRIPT = 16 << 20


class Script(NamedTuple):
    """The names of the images that a restart script lists, and its count of processes (None: it gives none)."""

    images: List[str]
    processes: Optional[int]


class IncompleteCheckpoint(Exception):
    """The directory holds no complete checkpoint (yet); the message says what is missing."""


def parse_script(text: str) -> Script:
    """Parse a restart script; paths are reduced to names, as a checkpoint is one directory."""
    images: List[str] = []
    for one_host, hosts in _LISTED.findall(text):
        images += _IMAGE.findall(one_host or hosts)
    count = _COUNT.search(text)
    return Script(images, int(count.group(1)) if count else None)


def recorded_directory(directory: str) -> str:
    """The absolute path under which DMTCP wrote the checkpoint in ``directory``; "" if no script tells it."""
    try:
        scripts = [name for name in os.listdir(directory) if _SCRIPT.match(name)]
        text = _read(os.path.join(directory, scripts[0])) if len(scripts) == 1 else ""
    except (OSError, IncompleteCheckpoint):
        return ""
    found = _RECORDED.search(text)
    return found.group(1) if found is not None else ""


def complete_set(directory: str, peers: int) -> List[str]:
    """The names of the images in ``directory``; raises IncompleteCheckpoint unless they are a complete checkpoint.

    ``peers``: the number of processes when the checkpoint was requested. The script's own count, where it has one, is
    better: a shell starts and ends children all the time.
    """
    names = sorted(os.listdir(directory))
    half = [name for name in names if name.endswith(".temp")]
    if half:
        raise IncompleteCheckpoint("{} is not finished".format(_one_line(half[0])))
    scripts = [name for name in names if _SCRIPT.match(name)]
    if LINK not in names or not scripts:
        raise IncompleteCheckpoint("no restart script")
    if len(scripts) > 1:
        raise IncompleteCheckpoint("{} restart scripts".format(len(scripts)))
    script = parse_script(_read(os.path.join(directory, scripts[0])))
    present = [name for name in names if name.endswith(SUFFIX)]
    for name in present:
        _require_plain(directory, name)
    missing = sorted(set(script.images) - set(present))
    if missing:
        raise IncompleteCheckpoint("{} is missing".format(_one_line(missing[0])))
    expected = peers if script.processes is None else script.processes
    if not present or sorted(script.images) != present or len(present) != expected:
        raise IncompleteCheckpoint(
            "{} images, {} in the restart script, for {} processes".format(len(present), len(script.images), expected)
        )
    return present


def of_process(names: Iterable[str], identity: str) -> List[str]:
    """Those of the names in a checkpoint that belong to the process that DMTCP calls so, unfinished ones too."""
    mark = "_" + identity
    return [name for name in names if mark + "." in name or name.endswith(mark + "_files")]


def bytes_in(directory: str) -> int:
    """Bytes written so far, as far as they can be seen."""
    total = 0
    try:
        for name in os.listdir(directory):
            total += os.lstat(os.path.join(directory, name)).st_size
    except OSError:
        pass
    return total


def _require_plain(directory: str, name: str) -> None:
    if not name.isprintable() or not name.startswith("ckpt_"):
        raise IncompleteCheckpoint("{} is not the name of an image".format(_one_line(name)))
    entry = os.lstat(os.path.join(directory, name))
    if not stat.S_ISREG(entry.st_mode) or entry.st_uid != os.geteuid() or entry.st_size == 0:
        raise IncompleteCheckpoint("{} is not a nonempty file of ours".format(_one_line(name)))


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        entry = os.fstat(descriptor)
        if not stat.S_ISREG(entry.st_mode) or not entry.st_mode & stat.S_IXUSR:
            raise IncompleteCheckpoint("the restart script is not finished")
        return file.read(_MOST_SCRIPT).decode("utf-8", "replace")


def seal(directory: str) -> List[str]:
    """Write a complete checkpoint to disk (fsync; DMTCP does so only with gzip) and list its files.

    The link to the restart script is removed: it is of no use later, and the directory then holds no links. Raises
    OSError; IncompleteCheckpoint if there is anything but files and directories.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, LINK))
    files: List[str] = []
    for here, directories, names in os.walk(directory):
        for name in names:
            path = os.path.join(here, name)
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise IncompleteCheckpoint("{} is neither a file nor a directory".format(_one_line(name)))
            _sync(path, 0)
            files.append(os.path.relpath(path, directory))
        for name in directories:
            if os.path.islink(os.path.join(here, name)):
                raise IncompleteCheckpoint("{} is a link".format(_one_line(name)))
        _sync(here, os.O_DIRECTORY)
    return sorted(files)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _one_line(name: str) -> str:
    return name.encode("unicode_escape").decode("ascii")[:120]
