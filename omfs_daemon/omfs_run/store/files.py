"""Files below an open directory, written so that a power failure leaves them complete or absent."""

import contextlib
import os
import stat

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 64  # directories in each other, far fewer than Python's limit of calls


def write_file(directory: int, name: str, text: str) -> None:
    """Write a file and rename it into place; it is on disk when this returns."""
    new = name + ".new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new, dir_fd=directory)  # what a crash left; a FIFO would be waited for, a hard link written through
    descriptor = os.open(new, _CREATE, 0o600, dir_fd=directory)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    os.fsync(directory)


def read_file(directory: int, name: str, limit: int) -> str:
    """The text of a regular file of at most ``limit`` bytes; OSError otherwise."""
    with os.fdopen(open_file(directory, name), "rb") as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise OSError("{} is longer than {} bytes".format(name, limit))
    return data.decode("utf-8", errors="surrogateescape")


def open_file(directory: int, name: str) -> int:
    """Open a regular file for reading; ``name`` may have folders, none of them a link. OSError otherwise."""
    with contextlib.ExitStack() as stack:
        *folders, last = name.split("/")
        for folder in folders:
            directory = os.open(folder, _READ | os.O_DIRECTORY, dir_fd=directory)
            stack.callback(os.close, directory)
        descriptor = os.open(last, _READ | os.O_NONBLOCK, dir_fd=directory)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError("{} is not a regular file".format(name))
        return descriptor


def remove_tree(directory: int, name: str, depth: int = _DEEPEST) -> None:
    """Remove a directory and its contents without following links; does nothing if it is missing.

    OSError if there are more than ``depth`` directories in each other.
    """
    if not depth:
        raise OSError("more than {} directories in each other".format(_DEEPEST))
    try:
        inner = os.open(name, _READ | os.O_DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        return
    try:
        for entry in os.listdir(inner):
            if stat.S_ISDIR(os.stat(entry, dir_fd=inner, follow_symlinks=False).st_mode):
                remove_tree(inner, entry, depth - 1)
            else:
                os.unlink(entry, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=directory)
