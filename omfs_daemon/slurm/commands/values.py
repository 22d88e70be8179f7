"""Parse single values as Slurm's commands print them (squeue(1), sinfo(1), scontrol(1))."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from math import inf, prod

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from omfs_daemon.cluster.job_refs import task_ids_of
from omfs_daemon.errors import ParseError

NOTHING = frozenset({"", "(null)", "N/A", "n/a", "None", "NONE", "none", "Unknown"})
"""What Slurm prints where there is nothing."""
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
# The policy counts in 64 bits, so a number that does not fit is none.
_DIGITS = 18
_WHOLE = re.compile(r"-[0-9]{1,18}")
_AMOUNT = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)([KMGTP]?)[nc]?")
_DURATION = re.compile(r"(?:([0-9]{1,9})-)?(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,9})")
_NODE_LIST = re.compile(r"[\w.,\[\]-]+", re.ASCII)
_NODE = re.compile(r"[A-Za-z0-9][\w.-]*")
# Slurm parses the number by strtol(3): blanks and a sign may come first.
_FEATURE_COUNT = re.compile(r"\*[ \t-\r]*\+?0*([0-9]{1,9})")
# Slurm stores a list as an update gives it, and reads blanks as commas.
_BETWEEN_NODES = re.compile(r"[\t\n ,]+")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_NAME_IN_LIST = re.compile(r"(?:\[[^\]]*\]?|[^,\[])+")
# As strtol(3) parses it: blanks, a sign, no digits at all. Slurm accepts and shows all that.
_LICENSE = re.compile(r"([^:|=]+)[:=][ \t-\r]*+([+-]?)0*+([0-9]*)")
_STRTOL_KEPT = 20
_LICENSE_NAME = re.compile(r"[A-Za-z0-9_][\w.@:/|+-]*", re.ASCII)
_DIGITS_KEPT = 10
_NO_LIMIT = frozenset({"UNLIMITED", "NOT_SET", "Partition_Limit", "INVALID"})
_GRES_PREFIX = re.compile(r"(?:gres[:/])*")  # "gres:" until 23.02, "gres/" later; users may write it once more
# As Slurm parses it by strtoull(3): blanks and a sign (of some releases), zeros; "1k" and "1kib": 1024, "1kb": 1000.
_GRES_COUNT = re.compile(r"[ \t-\r]*+([+-]?)(?=[0-9])0*+([0-9]*+)(?:([kmgtp])(b|ib)?)?", re.ASCII | re.IGNORECASE)
_IN_PARENTHESES = re.compile(r"\([^()]*\)")
_NODES_KEPT = 4096
_TIMES_KEPT = 16384
# No node has more; users may ask for 18446744073709551610 devices, and the policy counts in 64 bits.
_MOST_MEMORY = 2**50
MOST_COUNT = 2**31 - 1
"""Of anything that is counted; Slurm takes larger numbers, which nothing has."""
_MOST_NODES = 2**18
"""In one list: more than any cluster has."""
_LONGEST_INDEX = 18


def text(value: str) -> str:
    """A value, "" where Slurm prints that there is none."""
    return "" if value in NOTHING else value


def whole(value: str) -> int:
    """A whole number."""
    if value.isdecimal() and value.isascii() and len(value) <= _DIGITS:
        return int(value)
    if not _WHOLE.fullmatch(value):
        raise ParseError(f"not a whole number: {value[:80]!r}")
    return int(value)


def count(value: str) -> int:
    """A number of CPUs, nodes, or devices."""
    number = whole(value)
    if not 0 <= number <= MOST_COUNT:
        raise ParseError(f"not a count: {value!r}")
    return number


def epoch(value: str) -> float | None:
    """A time printed with SLURM_TIME_FORMAT=%s; None where there is none yet."""
    return None if value in NOTHING else float(whole(value))


@lru_cache(maxsize=_TIMES_KEPT)
def duration(value: str) -> float:
    """``1-02:03:04``, ``2:03:04`` or ``3:04`` in seconds; infinite for UNLIMITED."""
    if value in _NO_LIMIT:
        return inf
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ParseError(f"not a duration: {value[:80]!r}")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def memory(value: str, unit: str = "M") -> int:
    """``100M``, ``1.50G`` or a plain number in ``unit``, in bytes; at most 1 PiB."""
    return min(int(_amount(value, unit)), _MOST_MEMORY)


@lru_cache(maxsize=_NODES_KEPT)
def node_names(value: str) -> tuple[str, ...]:
    """``n[1-2],m7`` as names in order."""
    if value in NOTHING:
        return ()
    value = _BETWEEN_NODES.sub(",", value).strip(",")
    if not _NODE_LIST.fullmatch(value):
        raise ParseError(f"not a list of nodes: {value[:80]!r}")
    if "[" not in value:
        return tuple(value.split(","))
    if _most_names(value) > _MOST_NODES:
        raise ParseError(f"more than {_MOST_NODES:,} nodes: {value[:80]!r}")
    try:
        return tuple(NodeSet(value, resolver=RESOLVER_NOGROUP))
    except (NodeSetException, AssertionError) as error:  # digits behind brackets, as in n[1-4]99999999999, make a range
        raise ParseError(f"not a list of nodes: {value[:80]!r} ({error})") from None


def _most_names(value: str) -> int:
    """At most so many names a list can have: what is in brackets multiplies, and is never expanded here."""
    names = _NAME_IN_LIST.findall(value)
    return sum(prod(_range_count(ranges) for ranges in _BRACKETS.findall(name)) for name in names)


def _range_count(ranges: str) -> int:
    ends = (part.partition("-") for part in ranges.split(","))
    return sum(max(1, _index(last) - _index(first) + 1) for first, _, last in ends)


def _index(digits: str) -> int:
    """Of a node, in brackets, at most 10**18 - 1; of what is no number, 0."""
    if not digits.isdigit():
        return 0
    return int("9" * _LONGEST_INDEX if len(digits.lstrip("0")) > _LONGEST_INDEX else digits[-_LONGEST_INDEX:])


@lru_cache(maxsize=_NODES_KEPT)
def node_set(value: str) -> frozenset[str]:
    """The same without order; long lists that many jobs exclude are one object."""
    return frozenset(node_names(value))


def nodes_with_features(expression: str) -> int:
    """How many nodes a job's features count: 5 in ``[a*2&b*3]``; of alternatives (``a*2|b*3``) the most."""
    return min(_MOST_NODES, max(sum(map(int, _FEATURE_COUNT.findall(one))) for one in expression.split("|")))


def tasks(value: str) -> tuple[int, ...]:
    """An array's task ids, ``1,3,5-9%2`` or ``0-8:4``; none for a job that is not of an array."""
    if value in NOTHING:
        return ()
    try:
        return tuple(sorted(task_ids_of(value)))
    except ValueError as error:
        raise ParseError(str(error)) from None


def array_throttle(value: str) -> int:
    """How many tasks of an array may run at a time, 2 in ``1,3,5-9%2``; 0: any number."""
    limit = value.partition("%")[2]
    return count(limit) if limit else 0


def tres(value: str) -> dict[str, str]:
    """``cpu=8,mem=4000M,node=2`` by name."""
    return dict(entry.partition("=")[::2] for entry in value.split(",") if entry and value not in NOTHING)


def default_cpus_per_gpu(job_defaults: str) -> int:
    """DefCpuPerGPU in JobDefaults, of slurm.conf or of a partition; 0 without."""
    return count(tres(job_defaults).get("DefCpuPerGPU", "0"))


def gres(value: str) -> dict[str, int]:
    """``gpu:a100:2(S:0-1),ve:1`` or a request ``gres:gpu:2``: counts by name, typed ones also in their name's sum.

    Slurm takes empty entries (``gpu:1,``) and shows them.
    """
    counts: dict[str, int] = {}
    if value in NOTHING:
        return counts
    for entry in _IN_PARENTHESES.sub("", value).split(","):
        named = _GRES_PREFIX.sub("", entry)
        if not named:
            continue
        name, kind, number = _gres_entry(named)
        for key in (name, f"{name}:{kind}") if kind else (name,):
            counts[key] = min(counts.get(key, 0) + number, MOST_COUNT)
    return counts


def license_counts(value: str) -> tuple[tuple[str, int], ...]:
    """``ve_n1:2,fluent@server`` as counts by name; what is not a count stays part of the name
    (``a:1|b:1``: one of two).

    Counts are parsed as Slurm does: else a user could hold node licenses that we do not see.
    """
    counts: dict[str, int] = {}
    if value in NOTHING:
        return ()
    for entry in re.split("[,;]", value):
        match = _LICENSE.fullmatch(entry)
        name, count = (match[1], _license_count(match[2], match[3])) if match else (entry, 1)
        counts[name] = min(counts.get(name, 0) + count, MOST_COUNT)
    return pairs({name: count for name, count in counts.items() if name})


def _license_count(sign: str, digits: str) -> int:
    """As strtol(3) does, which stops at 64 bits; Slurm keeps the lower 32 of them."""
    number = min(int("0" + digits[:_STRTOL_KEPT]), 2**63 - 1)
    return (-number if sign == "-" else number) % 2**32


def not_licenses(counts: Iterable[tuple[str, int]]) -> str:
    """Why these cannot be written in a command, "" if they can: a site may give its licenses any names."""
    wrong = [name for name, count in counts if not _LICENSE_NAME.fullmatch(name) or count < 1]
    return f"not licenses that can be named in a command: {wrong!r}"[:200] if wrong else ""


def licenses_text(counts: Iterable[tuple[str, int]]) -> str:
    """The inverse of ``license_counts``; ValueError for anything else, so that nothing else gets into a command."""
    listed = list(counts)
    wrong = [pair for pair in listed if not _LICENSE_NAME.fullmatch(pair[0]) or pair[1] < 1]
    if wrong:
        raise ValueError(f"not licenses and their counts: {wrong!r}")
    return ",".join(name if "|" in name else f"{name}:{count}" for name, count in listed)


def pairs(counts: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """Counts as a sorted tuple, so that equal ones compare equal."""
    return tuple(sorted((name, count) for name, count in counts.items() if count))


def names(value: str, separator: str = ",") -> Iterable[str]:
    """The parts of a list, none for "(null)"."""
    return () if value in NOTHING else value.split(separator)


def _gres_entry(entry: str) -> tuple[str, str, int]:
    words = entry.replace("=", ":").split(":")
    number = 1  # the count may be left out
    if len(words) > 1 and (match := _GRES_COUNT.fullmatch(words[-1])):
        words.pop()
        number = _gres_count(match)
    if not 1 <= len(words) <= 2 or not words[0]:
        raise ParseError(f"not a generic resource: {entry[:80]!r}")
    return words[0], words[1] if len(words) == 2 else "", number


def _gres_count(match: re.Match[str]) -> int:
    sign, digits, unit, binary = match.groups()
    number = int("0" + digits[:_STRTOL_KEPT])
    if sign == "-" and number:
        return MOST_COUNT  # Slurm counts modulo 2**64
    base = 1000 if binary and binary.lower() == "b" else 1024
    factor = base ** (1 + "KMGTP".index(unit.upper())) if unit else 1
    return min(number * factor, MOST_COUNT)


def _amount(value: str, unit: str) -> float:
    match = _AMOUNT.fullmatch(value)
    if match is None:
        raise ParseError(f"not an amount: {value[:80]!r}")
    number, suffix = match.groups()
    factor = _UNITS[suffix or unit]
    return int(number) * factor if number.isdigit() else float(number) * factor


def are_nodes(names: Iterable[str]) -> bool:
    """Whether these are names of nodes, and safe in a command."""
    return all(_NODE.fullmatch(name) for name in names)
