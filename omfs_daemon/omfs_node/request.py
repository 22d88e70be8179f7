"""Reads and validates a request, and describes errors in the response."""

import json
import re
from typing import Any, Dict, List, NamedTuple, Optional

from omfs_daemon.omfs_node.job_processes import SlurmCommand
from omfs_daemon.omfs_node.movers.mover import CannotMove
from omfs_daemon.protocol.node_request import ACTIONS, IN, KEYS, MAX_BYTES, OUT, PROBE, VERSION

_MAX_SECONDS = 3600
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z")
_PATH = re.compile(r"(/[A-Za-z0-9._+@=-]+)+\Z")


class BadRequest(CannotMove):
    """The request is invalid; nothing was done."""

    def __init__(self, message: str) -> None:
        super().__init__("bad_request", message)


class NodeRequest(NamedTuple):
    """A request. A probe has no job, uid and method, and its options are by method: ``{"pageout": {...}}``.

    resume     ("continue") with "in": continue the processes when the memory is in
    suspended  Slurm has suspended the job: a failed "out" continues only what it has stopped itself
    """

    do: str
    method: str
    node: str
    job: int
    uid: int
    timeout: float
    resume: bool
    suspended: bool
    options: Dict[str, Any]
    slurm: SlurmCommand


def read_request(text: bytes, methods: List[str]) -> NodeRequest:
    """Parse a request; BadRequest says what is wrong with it."""
    if len(text) > MAX_BYTES:
        raise BadRequest("more than {} bytes".format(MAX_BYTES))
    try:
        raw = json.loads(text.decode("utf-8"), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise BadRequest("not JSON: {}".format(str(error)[:80])) from None
    if not isinstance(raw, dict):
        raise BadRequest("not a JSON object")
    return _Reader(raw, methods).read()


class _Reader:
    """Reads the keys one by one."""

    def __init__(self, raw: Dict[str, Any], methods: List[str]) -> None:
        self._raw = raw
        self._methods = methods

    def read(self) -> NodeRequest:
        unknown = sorted(set(self._raw) - set(KEYS))
        if unknown:
            raise BadRequest("unknown key {!r}".format(unknown[0][:40]))
        if self._raw.get("version") != VERSION or isinstance(self._raw["version"], bool):
            raise BadRequest("version must be {}".format(VERSION))
        do = self._one_of("do", ACTIONS)
        is_probe = do == PROBE
        for name in ("method", "job", "uid") if is_probe else ():
            if name in self._raw:
                raise BadRequest("a probe has no {}".format(name))
        options = self._options()
        if is_probe:
            for name, value in options.items():
                if name not in self._methods or not isinstance(value, dict):
                    raise BadRequest("options of a probe are objects by method ({})".format(", ".join(self._methods)))
        return NodeRequest(
            do=do,
            method="" if is_probe else self._one_of("method", self._methods),
            node=self._text("node", _NODE, "a node's name"),
            job=0 if is_probe else self._whole("job", 1),
            uid=0 if is_probe else self._whole("uid", 0),
            timeout=self._seconds(),
            resume=self._flag("continue", do == IN),
            suspended=self._flag("suspended", do == OUT),
            options=options,
            slurm=self._slurm(),
        )

    def _one_of(self, name: str, allowed: Any) -> str:
        value = self._raw.get(name)
        if not isinstance(value, str) or value not in allowed:
            raise BadRequest("{} must be one of {}".format(name, ", ".join(allowed)))
        return value

    def _text(self, name: str, pattern: Any, what: str) -> str:
        value = self._raw.get(name)
        if not isinstance(value, str) or not pattern.match(value):
            raise BadRequest("{} must be {}".format(name, what))
        return value

    def _whole(self, name: str, least: int) -> int:
        value = self._raw.get(name)
        if type(value) is not int or not least <= value < 2**32:
            raise BadRequest("{} must be a whole number from {}".format(name, least))
        return value

    def _seconds(self) -> float:
        value = self._raw.get("timeout")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _MAX_SECONDS:
            raise BadRequest("timeout must be seconds, above 0 and at most {}".format(_MAX_SECONDS))
        return float(value)

    def _flag(self, name: str, is_allowed: bool) -> bool:
        value = self._raw.get(name, False)
        if type(value) is not bool or (value and not is_allowed):
            raise BadRequest("{} must be {}".format(name, "true or false" if is_allowed else "false or absent here"))
        return value

    def _options(self) -> Dict[str, Any]:
        value = self._raw.get("options", {})
        if not isinstance(value, dict):
            raise BadRequest("options must be an object")
        return value

    def _slurm(self) -> SlurmCommand:
        value = self._raw.get("slurm", {})
        if not isinstance(value, dict) or set(value) - {"scontrol", "conf"}:
            raise BadRequest("slurm must be an object of scontrol and conf")
        for name, path in value.items():
            if not isinstance(path, str) or not _PATH.match(path) or ".." in path.split("/"):
                raise BadRequest("slurm: {} must be an absolute path".format(name))
        return SlurmCommand(**value)


def _no_duplicates(pairs: Any) -> Dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def describe(error: CannotMove, state: Optional[str]) -> Dict[str, Any]:
    """The response to a failed request; its message is one printable line."""
    message = "".join(letter if letter.isprintable() else "?" for letter in error.message)[:500]
    response: Dict[str, Any] = {"ok": False, "why": error.why, "message": message}
    if state is not None:
        response["state"] = state
    return response
