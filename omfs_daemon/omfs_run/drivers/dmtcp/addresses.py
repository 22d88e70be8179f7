"""Programs under DMTCP run without address randomization.

DMTCP restores memory where it was. With randomization, what the kernel puts elsewhere at a restart can be in the way of
the heap: about one in three programs whose heap grows then ends with a segmentation fault (4.2.0 and 5.0).
"""

import ctypes
import os

_ADDR_NO_RANDOMIZE = 0x0040000  # personality(2)
_QUERY = 0xFFFFFFFF
_libc = ctypes.CDLL(None)


def in_group_with_fixed_addresses() -> None:
    """Between fork and exec: make a process group, and switch randomization off for all that is executed."""
    os.setpgrp()
    current = _libc.personality(ctypes.c_ulong(_QUERY))
    if current >= 0:
        _libc.personality(ctypes.c_ulong(current | _ADDR_NO_RANDOMIZE))


def are_randomized(pid: int) -> bool:
    """Whether it could not be switched off (a container may forbid it); False if the process has ended."""
    try:
        with open("/proc/{}/personality".format(pid)) as file:
            return not int(file.read(), 16) & _ADDR_NO_RANDOMIZE
    except (OSError, ValueError):
        return False
