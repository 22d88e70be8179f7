"""What job_submit.lua holds at submit, and what it lets in because the file ``admission`` has room for it.

The same lines, and the same counting of what the daemon may not have seen. Sizes are modeled for plain jobs and arrays
only; all others are held, as the plug-in holds what is not certain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission

SETTLES = 2
"""As in job_submit.lua."""

_ALL = ("all",)


@dataclass(frozen=True, slots=True)
class _Taken:
    second: int
    path: tuple[str, ...]
    cpus: int
    uid: int


class FakeAdmission:
    """The gate at submit. ``text``: what the file holds now; "" without one."""

    def __init__(self, text: Callable[[], str], started: float) -> None:
        self._text = text
        self._uncounted_until = int(started)
        self._taken: list[_Taken] = []
        self._seen: set[str] = set()
        self._read, self._accounts = "", ""

    def hold_and_mark(self, what: Submission, uid: int, now: float) -> tuple[Hold, str]:
        """The hold of a non-preemptible job that is submitted, and its AdminComment."""
        return (Hold.NONE, what.admin_comment) if self.lets_in(what, uid, now) else (Hold.USER, SUBMIT_MARK)

    def lets_in(self, what: Submission, uid: int, now: float) -> bool:
        """Whether a non-preemptible job needs no hold. It counts from now on, held or not."""
        lines = self._lines(now)
        path = _path(lines, what.account)
        if path == _ALL:
            return True
        cpus = what.request.cpus * max(1, len(what.array))
        is_certain = path and not (what.request.exclusive or what.parts or what.open_tasks or what.after)
        is_counted = self._is_observed(lines, self._uncounted_until) and what.begin <= now
        if is_certain and is_counted and all(self._left(lines, level) >= cpus for level in path):
            self._taken.append(_Taken(int(now), path, cpus, uid))
            return True
        if not lines:
            self._uncounted_until = int(now)
        elif path:
            self._taken.append(_Taken(int(now), path, max(0, self._left(lines, path[0])), -1))
        return False

    def _lines(self, now: float) -> list[list[str]]:
        """The lines of the file as words, once what it has observed no longer counts."""
        text = self._text()
        lines = [line.split(" ") for line in text.splitlines()]
        accounts = text.partition("\naccounts\n")[2]
        if text != self._read and lines:
            if self._accounts not in ("", accounts):
                self._uncounted_until = int(now)
            self._accounts = accounts
            for words in lines:
                if words[0] == "seen" and words[1] not in self._seen:
                    self._seen.add(words[1])
                    self._forget(int(words[2]), int(words[3]), words[4])
        self._read = text
        self._taken = [one for one in self._taken if not self._is_observed(lines, one.second)]
        return lines

    def _forget(self, uid: int, second: int, level: str) -> None:
        """The smallest that it could be."""
        could_be = [one for one in self._taken if (one.uid, one.path[0]) == (uid, level) and one.second <= second]
        if could_be:
            self._taken.remove(min(could_be, key=lambda one: one.cpus))

    def _left(self, lines: list[list[str]], level: str) -> int:
        (room,) = (int(words[2]) for words in lines if words[:2] == ["level", level])
        return room - sum(one.cpus for one in self._taken if level in one.path)

    @staticmethod
    def _is_observed(lines: list[list[str]], second: int) -> bool:
        return bool(lines) and float(lines[0][3]) >= second + 1 + SETTLES


def _path(lines: list[list[str]], account: str) -> tuple[str, ...]:
    """The levels of the account; () without a file."""
    named = [words[2] for words in lines if words[:2] == ["account", account]]
    others = [words[1] for words in lines if words[0] == "others"]
    return tuple((named or others or [""])[0].split(",")) if lines else ()
