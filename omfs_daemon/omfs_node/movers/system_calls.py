"""System calls that Python 3.6 lacks: pidfds, and advice for and reads of another process's memory.

Source: pidfd_open(2), pidfd_send_signal(2), process_madvise(2), process_vm_readv(2). Numbers from 424 on are the same
on all architectures except Alpha.
"""

import ctypes
import mmap
import os
import select
import signal
from typing import Sequence, Tuple

_PIDFD_SEND_SIGNAL = 424  # Linux 5.1
_PIDFD_OPEN = 434  # Linux 5.3
_PROCESS_MADVISE = 440  # Linux 5.10
_MADV_PAGEOUT = 21

IOV_MAX = 1024
PAGE = mmap.PAGESIZE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.process_vm_readv.restype = ctypes.c_ssize_t

Range = Tuple[int, int]  # first address, bytes


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def pidfd_open(pid: int) -> int:
    """A descriptor for this process, even if its pid is reused later; OSError (ESRCH: no such process)."""
    descriptor = _checked(_libc.syscall(_long(_PIDFD_OPEN), _long(pid), _long(0)))
    os.set_inheritable(descriptor, False)
    return descriptor


def pidfd_send_signal(descriptor: int, number: int) -> None:
    """Signal the process of a pidfd; ProcessLookupError if it has ended and was reaped."""
    _checked(_libc.syscall(_long(_PIDFD_SEND_SIGNAL), _long(descriptor), _long(number), None, _long(0)))


def has_ended(descriptor: int) -> bool:
    """Whether the process of a pidfd has ended (a zombie has)."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def pageout(descriptor: int, ranges: Sequence[Range]) -> int:
    """Advise the kernel to write these pages of a process out; returns the number of bytes that it considered.

    That does not prove that a page was moved. At most IOV_MAX ranges. OSError: ESRCH if the process has ended, EINVAL
    if the first range cannot be paged out at all (locked, or pages of a device).
    """
    vector = _vector(ranges)
    return _checked(
        _libc.syscall(
            _long(_PROCESS_MADVISE), _long(descriptor), vector, _size(len(vector)), _long(_MADV_PAGEOUT), _long(0)
        )
    )


def touch(pid: int, pages: Sequence[int]) -> None:
    """Read one byte at each of these addresses of a process, which brings its page back into memory.

    Stops at the first page that cannot be read (the process has ended, or unmapped it).
    """
    scratch = ctypes.create_string_buffer(IOV_MAX)
    for first in range(0, len(pages), IOV_MAX):
        remote = _vector([(page, 1) for page in pages[first : first + IOV_MAX]])
        local = _Iovec(ctypes.addressof(scratch), len(remote))
        read = _libc.process_vm_readv(
            _long(pid), ctypes.byref(local), ctypes.c_ulong(1), remote, ctypes.c_ulong(len(remote)), ctypes.c_ulong(0)
        )
        if read < len(remote):
            return


def can_page_out() -> str:
    """Try on a page of our own what page-out needs; returns "" or why the kernel or our rights do not allow it."""
    page = mmap.mmap(-1, PAGE)
    try:
        page[0] = 1
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        descriptor = pidfd_open(os.getpid())
        try:
            pidfd_send_signal(descriptor, 0)
            pageout(descriptor, [(address, PAGE)])
        finally:
            os.close(descriptor)
    except OSError as error:
        return "{} (process_madvise with MADV_PAGEOUT needs Linux 5.10)".format(error.strerror)
    return ""


def send_stop(descriptor: int) -> None:
    """SIGSTOP; ProcessLookupError if the process has ended."""
    pidfd_send_signal(descriptor, signal.SIGSTOP)


def send_cont(descriptor: int) -> None:
    """SIGCONT; ProcessLookupError if the process has ended."""
    pidfd_send_signal(descriptor, signal.SIGCONT)


def _vector(ranges: Sequence[Range]) -> ctypes.Array:  # type: ignore[type-arg]
    return (_Iovec * len(ranges))(*[_Iovec(start, length) for start, length in ranges])


def _long(value: int) -> ctypes.c_long:
    return ctypes.c_long(value)


def _size(value: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(value)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)
