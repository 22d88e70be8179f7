"""Shapes by open files. Python 3.6."""

import ctypes
import fcntl
import mmap
import os
import struct

from stepping import LIBC, main, must, must_permit, steps


def written():
    """A file that is written in the middle and read again."""
    with open("data", "w+b", buffering=0) as file:
        for number in steps():
            file.seek(8 * (number % 1000))
            file.write(struct.pack("<q", number))
            file.seek(-8, os.SEEK_CUR)
            must(file.read(8) == struct.pack("<q", number), "a file has changed")
    return 7


def position():
    """A file that is written on at the position that it keeps, without O_APPEND."""
    descriptor = os.open("data", os.O_WRONLY | os.O_CREAT, 0o600)
    os.lseek(descriptor, 0, os.SEEK_END)
    for number in steps():
        must(os.lseek(descriptor, 0, os.SEEK_CUR) == os.fstat(descriptor).st_size, "the position has changed")
        os.write(descriptor, struct.pack("<q", number))
    return 7


def duplicate():
    """A duplicate (dup) of a descriptor, at whose position both write."""
    descriptor = os.open("data", os.O_WRONLY | os.O_CREAT, 0o600)
    again = os.dup(descriptor)
    for _ in steps():
        before = os.lseek(again, 0, os.SEEK_CUR)
        os.write(descriptor, b"step")
        must(os.lseek(again, 0, os.SEEK_CUR) == before + 4, "they have a position each")
    return 7


def unlinked():
    """A file without a name."""
    with open("gone", "w+b", buffering=0) as file:
        os.unlink("gone")
        _rewrite(file.fileno())
    return 7


def tmpfile():
    """A file that was made without a name."""
    _rewrite(os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600))
    return 7


def memfd():
    """A file in memory alone."""
    _rewrite(LIBC.memfd_create(b"shape", 0))
    return 7


def _rewrite(descriptor):
    must(descriptor >= 0, "cannot be made")
    before = b""
    for number in steps():
        must(before == b"" or os.pread(descriptor, 8, 0) == before, "what was written is lost")
        before = struct.pack("<q", number)
        os.pwrite(descriptor, before, 0)


def flock():
    """A file that others must not lock."""
    return _locked(fcntl.flock)


def lockf():
    """The same with a POSIX lock."""
    return _locked(fcntl.lockf)


def _locked(lock):
    with open("locked", "w") as file:
        lock(file, fcntl.LOCK_EX)
        for _ in steps():
            must(_is_locked(), "the lock is gone")
    return 7


def _is_locked():
    inode = os.stat("locked").st_ino
    with open("/proc/locks") as file:
        return any(line.split()[5].endswith(":" + str(inode)) for line in file if " -> " not in line)


def mapped():
    """A shared mapping of a file."""
    with open("mapped", "w+b") as file:
        file.truncate(1 << 16)
        _use(mmap.mmap(file.fileno(), 1 << 16), file.fileno())
    return 7


def shm():
    """A shared mapping in /dev/shm, with its name."""
    name = "/dev/shm/omfs-shape-{}".format(os.getpid())  # noqa: S108
    descriptor = os.open(name, os.O_CREAT | os.O_RDWR, 0o600)
    os.ftruncate(descriptor, 1 << 16)
    memory = mmap.mmap(descriptor, 1 << 16)
    os.close(descriptor)
    _use(memory, None)
    os.unlink(name)
    return 7


def _use(memory, descriptor):
    for number in steps():
        at = 8 * (number % 1000)
        before = 8 * ((number - 1) % 1000)
        known = struct.unpack("<q", memory[before : before + 8])[0]
        must(number == 1 or known in (0, number - 1), "a mapping has changed")
        memory[at : at + 8] = struct.pack("<q", number)
        if descriptor is not None:
            must(os.pread(descriptor, 8, at) == struct.pack("<q", number), "file and mapping differ")


def _below():
    os.makedirs("below", exist_ok=True)
    with open("below/file", "w") as file:
        file.write("x")


def directory():
    """A descriptor of a directory."""
    _below()
    place = os.open("below", os.O_RDONLY | os.O_DIRECTORY)
    for _ in steps():
        must(os.listdir(place) == ["file"] and os.stat("file", dir_fd=place).st_size == 1, "a directory has changed")
    return 7


def path_only():
    """A descriptor of a path alone."""
    _below()
    only = os.open("below/file", os.O_PATH)
    for _ in steps():
        must(os.fstat(only).st_size == 1, "a descriptor has changed")
    return 7


def anonymous():
    """Shared memory without a file, in one process."""
    _use(mmap.mmap(-1, 1 << 16), None)
    return 7


def fifo():
    """A FIFO of its own, read and written."""
    if not os.path.exists("fifo"):
        os.mkfifo("fifo")
    descriptor = os.open("fifo", os.O_RDWR)
    ahead = b""
    for number in steps():
        must(not ahead or os.read(descriptor, 8) == ahead, "a FIFO has lost what was in it")
        ahead = struct.pack("<q", number)
        os.write(descriptor, ahead)
    return 7


def inotify():
    """Told of new files."""
    watch = LIBC.inotify_init1(0)
    must_permit(watch >= 0, "inotify")
    os.makedirs("watched", exist_ok=True)
    must(LIBC.inotify_add_watch(watch, b"watched", ctypes.c_uint32(0x100)) >= 0, "inotify fails")
    for number in steps():
        with open("watched/{}".format(number), "w"):
            pass
        must(len(os.read(watch, 4096)) > 0, "nothing was told")
        os.unlink("watched/{}".format(number))
    return 7


TABLE = {
    "written": written,
    "position": position,
    "duplicate": duplicate,
    "unlinked": unlinked,
    "tmpfile": tmpfile,
    "memfd": memfd,
    "flock": flock,
    "lockf": lockf,
    "mapped": mapped,
    "shm": shm,
    "directory": directory,
    "path only": path_only,
    "anonymous": anonymous,
    "fifo": fifo,
    "inotify": inotify,
}

if __name__ == "__main__":
    main(TABLE)
