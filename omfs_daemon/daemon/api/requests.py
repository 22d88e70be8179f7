"""How a request is answered, whichever way it came: one JSON line in, one JSON line out.

Answers are ``{"ok": {...}}`` or ``{"error": LINE, "kind": "refused" | "input" | "denied" | "unanswered" | "fault"}``.
:mod:`~omfs_daemon.daemon.api.operations` lists who may do what.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext

import structlog

from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.daemon.api.operations import Control, perform, takes_turns_itself
from omfs_daemon.daemon.api.shared_core import UsersTurns
from omfs_daemon.errors import ConfigError, ControlError, DeniedError, OmfsError, UnansweredError

TOO_MANY = "too many requests at once: try again"


class Requests:
    """Answers them by ``control``; those of users in turn, from wherever they ask."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._turns = UsersTurns()
        self._log = structlog.get_logger("control")

    def answer(self, caller: Callable[[], Caller], line: bytes) -> bytes:
        """``line``: without its end; ``caller`` is looked up once."""
        try:
            return _line({"ok": self._result(caller(), line)})
        except DeniedError as error:
            return failure_line(error, "denied")
        except ConfigError as error:
            return failure_line(error, "input")
        except UnansweredError as error:
            return failure_line(error, "unanswered")
        except OmfsError as error:
            return failure_line(error, "refused")
        except Exception:
            self._log.exception("control_request_failed")
            return failure_line(ControlError("internal error: see the daemon's log"), "fault")

    def _result(self, caller: Caller, line: bytes) -> object:
        with nullcontext() if caller.is_operator else self._turns.turn(caller.uid):
            request = _decoded(line)
            if not takes_turns_itself(request):
                return perform(self._control, caller, request)
        return perform(self._control, caller, request)


def failure_line(error: Exception, kind: str) -> bytes:
    return _line({"error": " ".join(str(error).split()), "kind": kind})


def _line(answer: dict[str, object]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _decoded(line: bytes) -> object:
    try:
        text = line.decode()  # json would take UTF-16 as well, and such halves in UTF-8
        found: object = json.loads(text)
        if "\\u" in text:  # half of a surrogate pair is no text: neither SQLite nor Slurm takes it
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"request: must be JSON ({error})") from error
