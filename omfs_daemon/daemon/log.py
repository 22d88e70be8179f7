"""The daemon's log: to systemd's journal, or one event per line on stderr, as JSON or in color.

docs/events.md lists the events.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from omfs_daemon.daemon.systemd_journal import SystemdJournal, is_read_by_systemd

LogFormat = Literal["auto", "journal", "json", "console"]

LINES_A_MINUTE = 1000
"""Of one event; more are counted, and the first line of the next minute says how many (``not_shown``)."""


def set_up(log_format: LogFormat, level: str, stream: TextIO | None = None) -> None:
    """Send all events of at least ``level`` ("debug", "info", "warning", "error") to ``stream`` (stderr).

    "journal" sends them to systemd's journal, with their fields; "auto" does if it reads ``stream``, else JSON.

    Events hold only what the caller passes: no environment, no local variables of tracebacks.
    """
    out = stream or sys.stderr
    if log_format == "auto":
        log_format = "journal" if is_read_by_systemd(out) else "json"
    structlog.configure(
        processors=[
            LinesAMinute(),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_last(log_format, out),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _Lenient(out))),
        cache_logger_on_first_use=False,
    )


class LinesAMinute:
    """Drops lines of an event that come too often, so that nobody who causes them fills the disk. Events have names of
    the code's, never of users, so that this stays small. Two threads at once may miscount by one."""

    def __init__(self, most: int = LINES_A_MINUTE, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._monotonic = monotonic
        self._counts: dict[str, tuple[int, int]] = {}

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        name, minute = str(event.get("event")), int(self._monotonic() // 60)
        known, count = self._counts.get(name, (minute, 0))
        self._counts[name] = minute, count + 1 if known == minute else 1
        if known == minute and count >= self._most:
            raise structlog.DropEvent
        if known != minute and count > self._most:
            event["not_shown"] = count - self._most
        return event


class _Lenient:
    """A stream that drops lines rather than end the daemon: on a full disk, or when its reader is gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            return self._stream.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def _last(log_format: LogFormat, out: TextIO) -> list[Processor]:
    if log_format == "journal":
        return [structlog.processors.format_exc_info, SystemdJournal()]
    if log_format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    plain = structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)
    return [structlog.processors.format_exc_info, _printable, plain]


def _printable(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """What users have written moves no cursor of a terminal, and begins no line."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            keeps = "\n" if name == "exception" else ""
            event[name] = "".join(c if c.isprintable() or c in keeps else ascii(c)[1:-1] for c in value)
    return event
