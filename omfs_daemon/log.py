"""The daemon's log: one event a line on stderr, as JSON for machines or in colours for people."""

from __future__ import annotations

import logging
import sys
from typing import Literal, TextIO

import structlog
from structlog.typing import Processor

LogFormat = Literal["json", "console"]


def set_up(log_format: LogFormat, level: str, stream: TextIO | None = None) -> None:
    """Send all events of at least ``level`` ("debug", "info", "warning", "error") to ``stream`` (stderr).

    Events hold what the caller gives and nothing else: no environment, no local variables of tracebacks.
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
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=False,
    )


def _last(log_format: LogFormat, out: TextIO) -> list[Processor]:
    if log_format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=plain)]
