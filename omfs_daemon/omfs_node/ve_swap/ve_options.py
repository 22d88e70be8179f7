"""The site's options for VE swapping, and the swap area from VEOS's own option files."""

import os
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Pattern

from omfs_daemon.omfs_node.movers.mover import CannotMove

MOST_VES = 64
_LIBRARY = "/opt/nec/ve/veos/lib64/libveosinfo.so"
_VEOS_OPTIONS = "/etc/opt/nec/ve/veos/ve-os-launcher.d"
_KNOWN = (
    "driver",
    "ves",
    "library",
    "commands",
    "patterns",
    "poll_seconds",
    "call_seconds",
    "settle_seconds",
    "area",
    "veos_options",
    "tolerance",
)
_COMMANDS = ("out", "in", "status", "memory", "area")
_NEEDED_COMMANDS = ("out", "in", "status")
# Named groups that a pattern must have, and may have.
_GROUPS: Dict[str, Any] = {
    "status": ({"pid", "sub", "swapped", "swappable"}, {"state"}),
    "memory": ({"total", "free"}, set()),
    "area": ({"used"}, set()),
}
# One line a process: pid, state, sub-status and two sizes in bytes.
_PATTERNS = {
    "status": r"^\s*(?P<pid>\d+)\s+(?P<state>\S+)\s+(?P<sub>\S+)\s+(?P<swapped>\d+)\s+(?P<swappable>\d+)\s*$",
    "memory": r"^\s*(?P<total>\d+)\s+(?P<free>\d+)\s*$",
    "area": r"^\s*(?P<used>\d+)\s*$",
}
_MEGABYTE = 1 << 20


class VeOptions(NamedTuple):
    """Checked options. Sizes in bytes, times in seconds."""

    driver: str  # library or command
    ves: List[int]  # engine numbers
    library: str
    commands: Dict[str, List[str]]  # argument vectors with {ve} and {pids}
    patterns: Dict[str, Pattern[str]]
    poll: float  # longest pause between two polls
    call: float  # limit of one call to VEOS
    settle: float  # how long VEOS may take to notice that processes are stopped
    area: Optional[int]  # swap area of each engine; None: from VEOS's option files
    veos_options: str
    tolerance: int  # swappable bytes of a process that may stay on the engine


def read_ve_options(options: Mapping[str, Any]) -> VeOptions:
    """Read the options of a request; CannotMove("bad_options") has the name and what is allowed."""
    unknown = sorted(set(options) - set(_KNOWN))
    if unknown:
        raise _bad(unknown[0], "unknown; known are " + ", ".join(_KNOWN))
    driver = options.get("driver", "library")
    if driver not in ("library", "command"):
        raise _bad("driver", 'must be "library" or "command"')
    if driver == "command" and "commands" not in options:
        raise _bad("commands", "needed with the command driver")
    return VeOptions(
        driver=driver,
        ves=_ves(options.get("ves", 1)),
        library=_path("library", options.get("library", _LIBRARY)),
        commands=_commands(options.get("commands", {}), driver == "command"),
        patterns=_patterns(options.get("patterns", {})),
        poll=_number("poll_seconds", options.get("poll_seconds", 0.1), 0.001, 10),
        call=_number("call_seconds", options.get("call_seconds", 5), 0.1, 600),
        settle=_number("settle_seconds", options.get("settle_seconds", 2), 0, 60),
        area=_size("area", options["area"]) if options.get("area") is not None else None,
        veos_options=_path("veos_options", options.get("veos_options", _VEOS_OPTIONS)),
        tolerance=_size("tolerance", options.get("tolerance", 0)),
    )


def swap_area(options: VeOptions, ve: int) -> Optional[int]:
    """Bytes of one engine's swap area: as configured, else from VEOS's option files; None if neither has it.

    ``N/veswap.options`` is for engine N and takes precedence over ``veswap.options``. Sizes there are in MB.
    """
    if options.area is not None:
        return options.area
    for name in (os.path.join(str(ve), "veswap.options"), "veswap.options"):
        try:
            with open(os.path.join(options.veos_options, name), encoding="utf-8", errors="replace") as file:
                text = file.read(1 << 16)
        except OSError:
            continue
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        return area_of("\n".join(lines))
    return None


def area_of(text: str) -> Optional[int]:
    """The swap area in a veswap.options file, memory and file together; None if it has no size."""
    sizes = [int(number) for number in re.findall(r"--ve-swap-(?:mem|file)-max[=\s]\s*(\d+)\b", text)]
    return sum(sizes) * _MEGABYTE if sizes else None


def _ves(value: Any) -> List[int]:
    allowed = "must be the number of engines (1 to %d), or a list of different engine numbers below %d" % (
        MOST_VES,
        MOST_VES,
    )
    if _whole(value) and 1 <= value <= MOST_VES:
        return list(range(value))
    if not isinstance(value, list) or not value or not all(_whole(ve) and 0 <= ve < MOST_VES for ve in value):
        raise _bad("ves", allowed)
    if len(set(value)) < len(value):
        raise _bad("ves", allowed)
    return sorted(value)


def _commands(value: Any, needed: bool) -> Dict[str, List[str]]:
    if not isinstance(value, dict):
        raise _bad("commands", "must be a table of argument lists")
    for name in value:
        if name not in _COMMANDS:
            raise _bad("commands.%s" % name, "unknown; known are " + ", ".join(_COMMANDS))
    for name in _NEEDED_COMMANDS if needed else ():
        if name not in value:
            raise _bad("commands.%s" % name, "is missing")
    for name, vector in value.items():
        where = "commands.%s" % name
        if not isinstance(vector, list) or not vector or not all(_plain(word) for word in vector):
            raise _bad(where, "must be a list of strings without control characters")
        _path(where + " (first item)", vector[0])
        places = set(re.findall(r"\{([^{}]*)\}", " ".join(vector[1:])))
        if places - {"ve", "pids"}:
            raise _bad(where, "only {ve} and {pids} are replaced")
        if name in _NEEDED_COMMANDS and "pids" not in places:
            raise _bad(where, "has no {pids}")
        if "ve" not in places:
            raise _bad(where, "has no {ve}")
    return {str(name): list(vector) for name, vector in value.items()}


def _patterns(value: Any) -> Dict[str, Pattern[str]]:
    if not isinstance(value, dict):
        raise _bad("patterns", "must be a table of regular expressions")
    compiled = {}
    for name in value:
        if name not in _PATTERNS:
            raise _bad("patterns.%s" % name, "unknown; known are " + ", ".join(sorted(_PATTERNS)))
    for name, usual in _PATTERNS.items():
        text = value.get(name, usual)
        if not isinstance(text, str):
            raise _bad("patterns.%s" % name, "must be a regular expression")
        try:
            compiled[name] = re.compile(text, re.MULTILINE)
        except re.error as error:
            raise _bad("patterns.%s" % name, "is not a regular expression: %s" % error) from None
        missing = sorted(_GROUPS[name][0] - set(compiled[name].groupindex))
        if missing:
            raise _bad("patterns.%s" % name, "must have the group (?P<%s>...)" % missing[0])
    return compiled


def _path(name: str, value: Any) -> str:
    # Absolute, so that neither a search path nor the working directory decides what root loads or runs.
    if not _plain(value) or not os.path.isabs(value) or ".." in value.split("/"):
        raise _bad(name, "must be an absolute path without ..")
    return str(value)


def _number(name: str, value: Any, least: float, most: float) -> float:
    # The comparison is false for NaN.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise _bad(name, "must be a number of seconds from %g to %g" % (least, most))
    return float(value)


def _size(name: str, value: Any) -> int:
    if not _whole(value) or not 0 <= value < 1 << 60:
        raise _bad(name, "must be a whole number of bytes, 0 or more")
    return int(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _plain(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and all(ord(letter) >= 32 and ord(letter) != 127 for letter in value)


def _bad(name: str, message: str) -> CannotMove:
    return CannotMove("bad_options", "ve_swap: option %s: %s" % (name, message))
