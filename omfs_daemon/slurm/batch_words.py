"""The words of sbatch's options, as sbatch(1) takes them apart: getopt_long(3), in order, the last one counts. Pure.

The words are users' text. What each option means is in ``batch_options.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from omfs_daemon.errors import ConfigError


class OptionWord(NamedTuple):
    """A word, and where it stands, for messages: ``job.sh, line 4``."""

    origin: str
    text: str


class GivenOption(NamedTuple):
    """An option by its long name, as far as that is known; ``value``: "" without one."""

    origin: str
    name: str
    value: str

    def wrong(self, allowed: str) -> ConfigError:
        """What to raise for a value that is none."""
        value = self.value if len(self.value) <= _SHOWN else f"{self.value[:_SHOWN]}..."
        return ConfigError(f"{self.origin}: --{self.name} = {value!r}: must be {allowed}")


_SHOWN = 40

_SHORT = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "h": "help",
    "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters", "m": "distribution",
    "N": "nodes", "n": "ntasks", "O": "overcommit", "o": "output", "p": "partition", "Q": "quiet", "q": "qos",
    "S": "core-spec", "s": "oversubscribe", "t": "time", "V": "version", "v": "verbose", "W": "wait",
    "w": "nodelist", "x": "exclude",
}  # fmt: skip
_WITHOUT_VALUE = frozenset(
    {
        *("contiguous", "help", "hold", "ignore-pbs", "no-requeue", "overcommit", "oversubscribe", "parsable", "quiet"),
        *("reboot", "requeue", "spread-job", "test-only", "usage", "use-min-nodes", "verbose", "version", "wait"),
    }
)
_MAY_HAVE_VALUE = frozenset({"exclusive", "get-user-env", "nice", "no-kill", "propagate"})
_WITH_VALUE = frozenset(_SHORT.values()) - _WITHOUT_VALUE - _MAY_HAVE_VALUE | {
    *("acctg-freq", "batch", "bb", "bbf", "cluster-constraint", "comment", "container", "cores-per-socket", "cpu-freq"),
    *("cpus-per-gpu", "deadline", "delay-boot", "export", "export-file", "gid", "gpu-bind", "gpu-freq", "uid"),
    *("gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "hint", "kill-on-invalid-dep"),
    *("mail-type", "mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "network"),
    *("ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "open-mode", "power", "prefer"),
    *("priority", "profile", "reservation", "signal", "sockets-per-node", "switches", "thread-spec", "time-min", "tmp"),
    *("threads-per-core", "tres-per-task", "wait-all-nodes", "wckey", "wrap"),
}
_LONG = _WITHOUT_VALUE | _MAY_HAVE_VALUE | _WITH_VALUE


def given_options(words: Sequence[OptionWord]) -> list[GivenOption]:
    """The options of these words.

    An option that a plug-in adds has its value after ``=``, or the next word if that does not begin with ``-``.
    ConfigError for a word that is none, for a value that is missing, and for a heterogeneous job.
    """
    found, at = list[GivenOption](), 0
    while at < len(words):
        taken = _at(words, at)
        if taken is None:
            origin, text = words[at]
            if text in ("hetjob", "packjob", ":"):
                raise ConfigError(f"{origin}: of heterogeneous jobs no start is estimated")
            raise ConfigError(f"{origin}: {text[:_SHOWN]!r}: must be an option of sbatch")
        found += taken.options
        at = taken.next
    return found


def count_of_options(words: Sequence[OptionWord]) -> int:
    """How many of the words of a command line stand before the script."""
    at = 0
    while at < len(words) and (taken := _at(words, at)) is not None:
        at = taken.next
    return at


class _Taken(NamedTuple):
    options: tuple[GivenOption, ...]
    next: int


def _at(words: Sequence[OptionWord], at: int) -> _Taken | None:
    """What begins with this word; None if that is no option."""
    text = words[at].text
    if text == "--":
        return None
    if text.startswith("--"):
        return _long(words, at)
    return _shorts(words, at) if text.startswith("-") and len(text) > 1 else None


def _long(words: Sequence[OptionWord], at: int) -> _Taken:
    origin, text = words[at]
    typed, has_value, value = text[2:].partition("=")
    name = _completed(typed)
    if has_value or name in _WITHOUT_VALUE | _MAY_HAVE_VALUE:
        return _Taken((GivenOption(origin, name, value),), at + 1)
    following = words[at + 1].text if at + 1 < len(words) and words[at + 1].origin == origin else None
    if name not in _LONG and (following is None or following.startswith("-")):
        return _Taken((GivenOption(origin, name, ""),), at + 1)
    if following is None:
        raise ConfigError(f"{origin}: --{name} needs a value")
    return _Taken((GivenOption(origin, name, following),), at + 2)


def _shorts(words: Sequence[OptionWord], at: int) -> _Taken:
    """``-n4``, ``-n 4``, ``-HQn4``."""
    origin, text = words[at]
    found = list[GivenOption]()
    for place, letter in enumerate(text[1:], start=2):
        name = _SHORT.get(letter)
        if name is None:
            raise ConfigError(f"{origin}: -{letter}: sbatch has no such option")
        if name in _WITH_VALUE:
            if text[place:]:
                return _Taken((*found, GivenOption(origin, name, text[place:])), at + 1)
            if at + 1 == len(words) or words[at + 1].origin != origin:
                raise ConfigError(f"{origin}: -{letter} needs a value")
            return _Taken((*found, GivenOption(origin, name, words[at + 1].text)), at + 2)
        found.append(GivenOption(origin, name, text[place:] if name in _MAY_HAVE_VALUE else ""))
        if name in _MAY_HAVE_VALUE:
            break
    return _Taken(tuple(found), at + 1)


def _completed(typed: str) -> str:
    """The option that is meant: a beginning is enough if only one option begins so."""
    if typed in _LONG:
        return typed
    meant = [name for name in _LONG if typed and name.startswith(typed)]
    return meant[0] if len(meant) == 1 else typed
