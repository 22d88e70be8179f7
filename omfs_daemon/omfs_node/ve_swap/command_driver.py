"""VEOS through commands; the site configures their arguments and output patterns.

Of NEC's veswap only -n is confirmed, so nothing is assumed. Unless configured otherwise, the status command prints a
line for each process: pid, state, sub-status (a, o, s or i), bytes swapped out, bytes that still could be.
"""

import errno
import os
import signal
import subprocess
import tempfile
from typing import Dict, List, Optional, Pattern, Sequence, Tuple

from omfs_daemon.omfs_node.movers.mover import CannotMove
from omfs_daemon.omfs_node.ve_swap.ve_driver import (
    ACTIVE,
    BAD,
    STOPPED,
    SWAPPED_OUT,
    SWAPPING_IN,
    SWAPPING_OUT,
    VeDriver,
    VeProcess,
    batches,
    check_trusted,
)

_SUBS = {"a": ACTIVE, "o": SWAPPING_OUT, "s": SWAPPED_OUT, "i": SWAPPING_IN}
_MOST_OUTPUT = 1 << 20
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


class CommandDriver(VeDriver):
    """``commands`` and ``patterns`` as in VeOptions; ``limit``: seconds that one command may take."""

    def __init__(self, commands: Dict[str, List[str]], patterns: Dict[str, Pattern[str]], limit: float) -> None:
        self._commands = commands
        self._patterns = patterns
        self._limit = limit

    def open(self, ves: Sequence[int]) -> None:
        """See VeDriver; checks whether the commands may be run."""
        for vector in self._commands.values():
            check_trusted(vector[0])

    def processes(self, ve: int, pids: Sequence[int]) -> List[VeProcess]:
        """See VeDriver; a pid that the command does not list is not on the engine."""
        found: Dict[int, VeProcess] = {}
        for batch in batches(pids):
            code, output, errors = self._run("status", ve, batch)
            rows = self._rows(ve, output)
            if code and not rows and not _all_unknown(errors):
                raise CannotMove("not_usable", "VE %d: %s: exit code %d: %s" % (ve, self._name("status"), code, errors))
            found.update((row.pid, row) for row in rows)
        return [found.get(pid) or VeProcess(pid, BAD, -errno.ESRCH, 0, 0) for pid in pids]

    def swap_out(self, ve: int, pids: Sequence[int]) -> int:
        """See VeDriver; a failed command counts as EPERM, as the status shows what it did."""
        return -errno.EPERM if self._run("out", ve, pids)[0] else 0

    def swap_in(self, ve: int, pids: Sequence[int]) -> int:
        """See ``swap_out``."""
        return -errno.EPERM if self._run("in", ve, pids)[0] else 0

    def memory(self, ve: int) -> Optional[Tuple[int, int]]:
        """See VeDriver."""
        groups = self._one("memory", ve)
        return (int(groups["total"]), int(groups["free"])) if groups else None

    def area_used(self, ve: int) -> Optional[int]:
        """See VeDriver."""
        groups = self._one("area", ve)
        return int(groups["used"]) if groups else None

    def _rows(self, ve: int, output: str) -> List[VeProcess]:
        rows = []
        for match in self._patterns["status"].finditer(output):
            groups = match.groupdict()
            sub = _SUBS.get(groups["sub"].lower())
            if sub is None:
                # An errno, as from the library, or an unknown text: leave the process alone.
                known = groups["sub"].lstrip("-").isdigit()
                code = -abs(int(groups["sub"])) if known else -errno.EPERM
                rows.append(VeProcess(int(groups["pid"]), BAD, code, 0, 0))
                continue
            state = groups.get("state")
            number = int(state) if state and state.lstrip("-").isdigit() else STOPPED if state in (None, "T") else 1
            rows.append(VeProcess(int(groups["pid"]), number, sub, int(groups["swapped"]), int(groups["swappable"])))
        if output.strip() and not rows:
            raise self._unexpected("status", ve, output)
        return rows

    def _one(self, what: str, ve: int) -> Optional[Dict[str, str]]:
        if what not in self._commands:
            return None
        code, output, errors = self._run(what, ve, [])
        if code:
            raise CannotMove("not_usable", "VE %d: %s: exit code %d: %s" % (ve, self._name(what), code, errors))
        match = self._patterns[what].search(output)
        if not match:
            raise self._unexpected(what, ve, output)
        return match.groupdict()

    def _unexpected(self, what: str, ve: int, output: str) -> CannotMove:
        text = "VE %d: %s: unexpected output: %s" % (ve, self._name(what), _line(output))
        return CannotMove("tool_failed", text)

    def _name(self, what: str) -> str:
        return os.path.basename(self._commands[what][0])

    def _run(self, what: str, ve: int, pids: Sequence[int]) -> Tuple[int, str, str]:
        arguments = [
            word.replace("{ve}", str(ve)).replace("{pids}", ",".join(str(pid) for pid in pids))
            for word in self._commands[what]
        ]
        if "{pids}" in self._commands[what]:  # on its own: one argument for each pid
            place = self._commands[what].index("{pids}")
            arguments[place : place + 1] = [str(pid) for pid in pids]
        try:
            # Files, not pipes: processes that the command leaves running cannot block us.
            with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
                process = subprocess.Popen(
                    arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    env=_ENVIRONMENT,
                    start_new_session=True,
                )
                try:
                    code = process.wait(self._limit)
                except subprocess.TimeoutExpired:
                    raise CannotMove(
                        "tool_hung", "VE %d: %s: no response within %g s" % (ve, self._name(what), self._limit)
                    ) from None
                finally:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
                        process.wait()
                texts = []
                for file in (output, errors):
                    file.seek(0)
                    texts.append(file.read(_MOST_OUTPUT).decode("utf-8", "replace"))
        except OSError as error:
            text = "VE %d: cannot execute %s: %s" % (ve, arguments[0], error.strerror)
            raise CannotMove("not_usable", text) from None
        return code, texts[0], _line(texts[1])


def _all_unknown(errors: str) -> bool:
    return "no such process" in errors.lower()


def _line(text: str) -> str:
    lines = text.strip().splitlines()
    return "".join(letter if letter.isprintable() else "?" for letter in lines[-1][:200]) if lines else "(nothing)"
