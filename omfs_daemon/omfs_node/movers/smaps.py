"""What a process holds in memory and in swap, by mapping: /proc/PID/smaps (proc(5)).

Unlike maps, smaps tells which mappings are locked or on huge pages, and how much of each is swapped out.
"""

import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Set

_KIB = 1024
# The kernel writes a newline in a file's name as \012, so a name cannot forge a line.
_HEADER = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) ([rwxsp-]{4}) [0-9a-f]+ \S+ [0-9]+ *(.*)")
_VALUE = re.compile(rb"(\w+): +([0-9]+) kB$")
# Memory that is shared but belongs to no file: shm_open, SysV, memfd, mmap(MAP_SHARED | MAP_ANONYMOUS).
_SHARED_MEMORY = (b"/dev/shm/", b"/SYSV", b"/memfd:", b"/dev/zero")
_SPECIAL = (b"[vdso]", b"[vvar]", b"[vvar_vclock]", b"[vsyscall]")
# VmFlags: locked, huge pages, pages of a device, I/O memory; the kernel refuses advice for them.
_UNMOVABLE = {b"lo", b"ht", b"pf", b"io"}

# Linux 5.4, and page-out needs 5.10.
_ROLLUP = (b"Pss_Anon", b"Pss_Shmem", b"Private_Hugetlb", b"Shared_Hugetlb")


class Mapping(NamedTuple):
    """One mapping of the process that holds memory or swap.

    resident  bytes in memory that only swap can take (file pages need no swap); shared pages count for each process
              in proportion, so that the sum over a job is right
    swapped   bytes in swap, counted in the same way
    movable   whether the kernel accepts advice for it
    """

    start: int
    length: int
    resident: int
    swapped: int
    movable: bool


def read_mappings(pid: int) -> List[Mapping]:
    """The mappings of a process; [] if it has ended. PermissionError if it must not be read."""
    try:
        with open("/proc/{}/smaps".format(pid), "rb") as stream:
            return parse_smaps(stream)
    except (FileNotFoundError, ProcessLookupError):
        return []


def resident_now(pid: int) -> int:
    """The sum of ``Mapping.resident`` as the kernel computes it, which is cheap even for a million mappings.

    0 if the process has ended. Files in tmpfs count too, wherever they are mounted.
    """
    try:
        with open("/proc/{}/smaps_rollup".format(pid), "rb") as stream:
            found = {value.group(1): int(value.group(2)) for value in map(_VALUE.match, stream) if value is not None}
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(found.get(name, 0) for name in _ROLLUP) * _KIB


def parse_smaps(lines: Iterable[bytes]) -> List[Mapping]:
    """Parse the text of smaps."""
    found: List[Mapping] = []
    entry: Optional[_Entry] = None
    for line in lines:
        value = _VALUE.match(line)
        if value is not None:
            if entry is not None:
                entry.kib[value.group(1)] = int(value.group(2))
        elif line.startswith(b"VmFlags:"):
            if entry is not None:
                entry.flags = set(line.split()[1:])
        else:
            header = _HEADER.match(line)
            if header is not None:
                _keep(found, entry)
                entry = _Entry(header)
    _keep(found, entry)
    return found


class _Entry:
    """A mapping while its lines are read."""

    def __init__(self, header: "re.Match[bytes]") -> None:
        self.start = int(header.group(1), 16)
        self.length = int(header.group(2), 16) - self.start
        self.is_shared = header.group(3).endswith(b"s")
        self.path = header.group(4)
        self.kib: Dict[bytes, int] = {}
        self.flags: Set[bytes] = set()

    def mapping(self) -> Mapping:
        resident, part = self._kib(b"Rss"), self._kib(b"Pss")
        if self.is_shared:
            anonymous = part if self.path.startswith(_SHARED_MEMORY) else 0
            swapped = self._kib(b"Swap")
        else:
            anonymous = self._kib(b"Anonymous") * part // resident if resident else 0
            swapped = self._kib(b"SwapPss")
        huge = self._kib(b"Private_Hugetlb") + self._kib(b"Shared_Hugetlb")
        movable = not (self.flags & _UNMOVABLE) and self.path not in _SPECIAL
        return Mapping(self.start, self.length, (anonymous + huge) * _KIB, swapped * _KIB, movable)

    def _kib(self, name: bytes) -> int:
        return self.kib.get(name, 0)


def _keep(found: List[Mapping], entry: Optional[_Entry]) -> None:
    mapping = entry.mapping() if entry is not None else None
    if mapping is not None and (mapping.resident or mapping.swapped):
        found.append(mapping)
