"""omfs-node's answers, validated: a node may be broken or compromised."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from omfs_daemon.protocol.node_request import STATES

LIMIT = 1024 * 1024  # bytes of one answer
_MOST_BYTES = 2**60
_MOST_SECONDS = 7 * 86400.0
_MOST_COUNT = 2**22  # pids on a node
_MOST_VES = 64
_CODE = re.compile(r"[a-z_]{1,40}\Z")
_JOB = re.compile(r"[1-9][0-9]{0,9}\Z")
_LINE = 500


@dataclass(frozen=True, slots=True)
class Ve:
    """A vector engine of a node; sizes in bytes, ``swap_free`` of the area that VEOS swaps to."""

    number: int
    memory: int
    memory_free: int
    swap_free: int


@dataclass(frozen=True, slots=True)
class MethodFacts:
    """What a method can do on a node; ``free``: bytes of swap that page-out may fill."""

    usable: bool
    why: str = ""
    free: int = 0
    ves: tuple[Ve, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes that a job has on a node: memory that page-out would free, and vector engines' memory."""

    resident: int = 0
    ve: int = 0


@dataclass(frozen=True, slots=True)
class OmfsNodeAnswer:
    """One node's answer. Where ``ok`` is false, only ``why`` (a code), ``message`` (a line), and ``state`` count.

    Codes set here: unreachable, timeout, bad_answer; others are omfs-node's. ``moved`` and ``freed`` are bytes,
    ``slowest`` the seconds of the slowest process. ``methods`` and ``jobs`` (by raw id) answer a probe.
    """

    ok: bool
    why: str = ""
    message: str = ""
    state: str = ""
    processes: int = 0
    stopped: int = 0
    moved: int = 0
    freed: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    methods: Mapping[str, MethodFacts] = field(default_factory=lambda: MappingProxyType({}))
    jobs: Mapping[int, Held] = field(default_factory=lambda: MappingProxyType({}))


def failed(why: str, message: str) -> OmfsNodeAnswer:
    """Stands for an answer that did not come."""
    return OmfsNodeAnswer(ok=False, why=why, message=printable_line(message))


def printable_line(text: str) -> str:
    """The text as one printable line of at most 500 characters."""
    return "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))[:_LINE]


def read_answer(printed: bytes) -> OmfsNodeAnswer:
    """The answer in what omfs-node printed; ``bad_answer`` if it is anything but one."""
    if len(printed) > LIMIT:
        return failed("bad_answer", f"more than {LIMIT} bytes")
    try:
        raw = json.loads(printed.decode("utf-8"))
        return _answer(_object(raw))
    except (ValueError, RecursionError) as error:
        return failed("bad_answer", str(error)[:200])


def _answer(raw: dict[str, object]) -> OmfsNodeAnswer:
    ok = _flag(raw, "ok")
    state = _one_of(raw, "state", ("", *STATES))
    if not ok:
        return OmfsNodeAnswer(False, _code(raw, "why") or "bad_answer", printable_line(_text(raw, "message")), state)
    return OmfsNodeAnswer(
        ok=True,
        state=state,
        processes=_whole(raw, "processes", _MOST_COUNT),
        stopped=_whole(raw, "stopped", _MOST_COUNT),
        moved=_whole(raw, "bytes", _MOST_BYTES),
        freed=_whole(raw, "freed", _MOST_BYTES),
        seconds=_seconds(raw, "seconds"),
        slowest=_seconds(raw, "slowest"),
        methods=MappingProxyType({_name(key): _facts(_object(value)) for key, value in _entries(raw, "methods")}),
        jobs=MappingProxyType({_job(key): _held(_object(value)) for key, value in _entries(raw, "jobs")}),
    )


def _facts(raw: dict[str, object]) -> MethodFacts:
    ves = raw.get("ves", [])
    if not isinstance(ves, list) or len(ves) > _MOST_VES:
        raise ValueError("ves is not a list of vector engines")
    free = _whole(_known(raw), "free", _MOST_BYTES)
    return MethodFacts(_flag(raw, "usable"), _code(raw, "why"), free, tuple(_ve(_object(ve)) for ve in ves))


def _known(raw: dict[str, object]) -> dict[str, object]:
    """Without what the node does not know of itself (null), which then counts as none."""
    return {name: value for name, value in raw.items() if value is not None}


def _ve(raw: dict[str, object]) -> Ve:
    raw = _known(raw)
    sizes = [_whole(raw, name, _MOST_BYTES) for name in ("memory", "memory_free", "swap_free")]
    return Ve(_whole(raw, "ve", _MOST_VES), *sizes)


def _held(raw: dict[str, object]) -> Held:
    return Held(_whole(raw, "resident", _MOST_BYTES), _whole(raw, "ve", _MOST_BYTES))


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _entries(raw: dict[str, object], name: str) -> list[tuple[str, object]]:
    entries = list(_object(raw.get(name, {})).items())
    if len(entries) > _MOST_COUNT:
        raise ValueError(f"{name} has too many entries")
    return entries


def _flag(raw: dict[str, object], name: str) -> bool:
    value = raw.get(name)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is not true or false")
    return value


def _whole(raw: dict[str, object], name: str, most: int) -> int:
    value = raw.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"{name} is not a whole number from 0 to {most}")
    return value


def _seconds(raw: dict[str, object], name: str) -> float:
    value = raw.get(name, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST_SECONDS:
        raise ValueError(f"{name} is not seconds")
    return float(value)


def _text(raw: dict[str, object], name: str) -> str:
    value = raw.get(name, "")
    if not isinstance(value, str):
        raise ValueError(f"{name} is not text")
    return value


def _code(raw: dict[str, object], name: str) -> str:
    value = _text(raw, name)
    if value and not _CODE.match(value):
        raise ValueError(f"{name} is not a code")
    return value


def _one_of(raw: dict[str, object], name: str, allowed: tuple[str, ...]) -> str:
    value = _text(raw, name)
    if value not in allowed:
        raise ValueError(f"{name} is none of {', '.join(filter(None, allowed))}")
    return value


def _name(value: str) -> str:
    if not _CODE.match(value):
        raise ValueError("a method's name is not valid")
    return value


def _job(value: str) -> int:
    if not _JOB.match(value):
        raise ValueError("a job's number is not valid")
    return int(value)
