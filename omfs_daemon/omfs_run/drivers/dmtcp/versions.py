"""What differs between releases of DMTCP, as far as the driver has to know it: one table.

Measured on 4.2.0 and on the development head that calls itself 5.0; the other rows are read in the sources of the
releases. The driver follows one protocol that holds on all of them and never takes a command's exit code or text for a
proof; what is left to this table is how to ask, and how long the answer may take.
"""

import re
from typing import NamedTuple, Optional, Tuple

Version = Tuple[int, int, int]


class Quirks(NamedTuple):
    """How releases from ``since`` on behave.

    request   the option of ``dmtcp_command`` that takes a checkpoint and then ends the program
    accepted  the exit codes with which it may have been accepted; 2 is also what a refusal gives, with the same text
    blocks    whether the answer may come only after the images are written
    """

    since: Version
    request: str
    accepted: Tuple[int, ...]
    blocks: bool


OLDEST = (2, 6, 0)

# Newest last. 2.6 knows no --kcheckpoint but an older name of it. Releases 3.2 to 4.2 answer at once and with 2,
# because their dmtcp_command asks a second time for what has just begun; 5.0 answers at once with 0.
_TABLE = (
    Quirks((2, 6, 0), "--xcheckpoint", (0, 2), True),
    Quirks((3, 0, 0), "--kcheckpoint", (0, 2), True),
    Quirks((3, 2, 0), "--kcheckpoint", (0, 2), False),
    Quirks((5, 0, 0), "--kcheckpoint", (0, 2), False),
)
# A release newer than the last row may do anything: its answer is waited for as long as there is time.
_UNKNOWN = Quirks((5, 1, 0), "--kcheckpoint", (0, 2), True)

_VERSION = re.compile(r"\(DMTCP\)\s+v?(\d+)\.(\d+)(?:\.(\d+))?")


def parse_version(text: str) -> Optional[Version]:
    """The version in what ``dmtcp_launch --version`` prints, or None if it says none."""
    found = _VERSION.search(text)
    if found is None:
        return None
    return int(found.group(1)), int(found.group(2)), int(found.group(3) or 0)


def quirks_of(version: Version) -> Quirks:
    """The row for a version; of one older than ``OLDEST`` the caller must have made sure that it is not used."""
    if version >= _UNKNOWN.since:
        return _UNKNOWN
    return [row for row in _TABLE if row.since <= max(version, OLDEST)][-1]


def shown(version: Version) -> str:
    """``dmtcp 4.2.0``."""
    return "dmtcp " + ".".join(str(part) for part in version)
