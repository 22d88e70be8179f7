"""The lines of a text file, plain or compressed, with progress."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path

from omfs_daemon.accounting.read_report import Progress
from omfs_daemon.accounting.trace_files import missing
from omfs_daemon.errors import ConfigError

_BETWEEN_REPORTS = 10_000


def lines(path: Path, progress: Progress | None, begin: int = 0) -> Iterator[str]:
    """Each line with its line end, from this byte of a plain file on; a file whose name ends in .gz is decompressed.

    Bytes that are no UTF-8 become replacement characters: they stand in comments. ConfigError if it cannot be read.
    """
    try:
        size = max(path.stat().st_size, 1)
        with path.open("rb") as raw:
            if begin:
                raw.seek(begin)
            stream = gzip.GzipFile(fileobj=raw) if path.suffix.lower() == ".gz" else raw
            with TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="") as text:
                for number, line in enumerate(text):
                    if progress is not None and number % _BETWEEN_REPORTS == 0 and raw.seekable():
                        progress(raw.tell() / size)
                    yield line
    except FileNotFoundError:
        raise missing(path) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ConfigError(f"{path}: not a whole gzip file ({error})") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
    if progress is not None:
        progress(1.0)
