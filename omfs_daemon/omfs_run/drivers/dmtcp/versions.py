"""What differs between releases of DMTCP.

Measured on 4.2.0 and on the development head that calls itself 5.0; the other rows are from the sources of the
releases. The driver follows one protocol that holds for all of them and never takes a command's exit code or text as
proof; this table says how to request a checkpoint and how long the reply may take.
"""

import re
from typing import NamedTuple, Optional, Tuple

Version = Tuple[int, int, int]


class Quirks(NamedTuple):
    """How releases from ``since`` on behave.

    request   the option of ``dmtcp_command`` that takes a checkpoint and then ends the program
    accepted  the exit codes with which it may have been accepted; a refusal also gives 2, with the same text
    blocks    whether the reply may come only after the images are written
    """

    since: Version
    request: str
    accepted: Tuple[int, ...]
    blocks: bool


OLDEST = (2, 6, 0)

# Newest last. 2.6 knows no --kcheckpoint but an older name of it. Releases 3.2 to 4.2 reply at once with 2,
# because their dmtcp_command repeats the request that was just accepted; 5.0 replies at once with 0.
_TABLE = (
    Quirks((2, 6, 0), "--xcheckpoint", (0, 2), True),
    Quirks((3, 0, 0), "--kcheckpoint", (0, 2), True),
    Quirks((3, 2, 0), "--kcheckpoint", (0, 2), False),
    Quirks((5, 0, 0), "--kcheckpoint", (0, 2), False),
)
# A release newer than the last row may do anything: wait for its reply as long as there is time.
_UNKNOWN = Quirks((5, 1, 0), "--kcheckpoint", (0, 2), True)

# The interface for plug-ins is the same in these; 5.0 refuses a plug-in for another one and ends the program.
_PLUG_INS = ((3, 0, 0), (5, 1, 0))

# Rehearsals were tried with 4.2 and 5.0 only.
REHEARSES = (4, 2, 0)

_VERSION = re.compile(r"\(DMTCP\)\s+v?(\d+)\.(\d+)(?:\.(\d+))?")


def parse_version(text: str) -> Optional[Version]:
    """The version in what ``dmtcp_launch --version`` prints, or None if there is none."""
    found = _VERSION.search(text)
    if found is None:
        return None
    return int(found.group(1)), int(found.group(2)), int(found.group(3) or 0)


def quirks_of(version: Version) -> Quirks:
    """The row for a version; the caller must have refused any older than ``OLDEST``."""
    if version >= _UNKNOWN.since:
        return _UNKNOWN
    return [row for row in _TABLE if row.since <= max(version, OLDEST)][-1]


def takes_plug_ins(version: Version) -> bool:
    """Whether our plug-in fits a version."""
    return _PLUG_INS[0] <= version < _PLUG_INS[1]


def shown(version: Version) -> str:
    """``dmtcp 4.2.0``."""
    return "dmtcp " + ".".join(str(part) for part in version)
