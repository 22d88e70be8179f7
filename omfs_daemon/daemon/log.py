"""The daemon's log: one event per line on stderr, as JSON or in color. docs/events.md lists the events."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Literal, TextIO, cast

import structlog
from structlog.typing import Processor

LogFormat = Literal["json", "console"]


def set_up(log_format: LogFormat, level: str, stream: TextIO | None = None) -> None:
    """Send all events of at least ``level`` ("debug", "info", "warning", "error") to ``stream`` (stderr).

    Events hold only what the caller passes: no environment, no local variables of tracebacks.
    """
    out = stream or sys.stderr
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_last(log_format, out),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _Lenient(out))),
        cache_logger_on_first_use=False,
    )


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
    if log_format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=plain)]
