"""Days of Slurm's accounting that were asked for before, so that slurmdbd is asked once for each."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import polars as pl

from omfs_daemon.accounting.sacct_rows import SacctRows

_LATE = 3600.0
"""slurmctld may reach slurmdbd so many seconds late; a day is not kept before."""
_WRONG = "wrong"


class AccountingDay(NamedTuple):
    """A day of this machine's clock, from midnight to midnight; seconds since the epoch."""

    name: str
    begin: float
    end: float


def days_between(since: float, until: float) -> list[AccountingDay]:
    """All days that the period touches."""
    found = []
    date = datetime.fromtimestamp(since).date()
    while (begin := _midnight(date.isoformat())) < until:
        following = date + timedelta(days=1)
        found.append(AccountingDay(date.isoformat(), begin, _midnight(following.isoformat())))
        date = following
    return found


def _midnight(date: str) -> float:
    return datetime.fromisoformat(date).timestamp()


class AccountingStore:
    """``directory`` of the days, ``2026-03-01.parquet``, readable by its owner alone: it holds what all users did."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def day(self, day: AccountingDay, columns: list[str]) -> SacctRows | None:
        """None if it was not kept, by another release, or not whole: then it is asked for again."""
        try:
            frame = pl.read_parquet(self._path(day))
        except (OSError, pl.exceptions.PolarsError):
            return None
        if frame.columns != [*columns, _WRONG]:
            return None
        bad = frame.filter(pl.col(_WRONG) != "")
        wrong = dict(zip(bad["place"].to_list(), bad[_WRONG].to_list(), strict=True))
        return SacctRows(frame.filter(pl.col(_WRONG) == "").drop(_WRONG), wrong)

    def keep(self, day: AccountingDay, rows: SacctRows, now: float) -> bool:
        """Write the day if it is final: over, and all of its jobs have ended. Whether it was."""
        if now < day.end + _LATE or rows.frame["end"].has_nulls():
            return False
        bad = pl.DataFrame({"place": list(rows.wrong), _WRONG: list(rows.wrong.values())}, schema=_BAD_SCHEMA)
        frame = pl.concat((rows.frame.with_columns(pl.lit("").alias(_WRONG)), bad), how="diagonal")
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            _replace(self._path(day), lambda path: frame.write_parquet(path))
        except OSError:
            return False
        return True

    def _path(self, day: AccountingDay) -> Path:
        return self._directory / f"{day.name}.parquet"


_BAD_SCHEMA = {"place": pl.Int64, _WRONG: pl.String}


def _replace(path: Path, write: Callable[[Path], None]) -> None:
    """Whole or not at all: another report may read or write the same day."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
