"""Records of jobs asked of Slurm's accounting, gently: a day at a time, one call after the other, each day once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import polars as pl

from omfs_daemon.accounting.accounting_store import AccountingDay, AccountingStore, days_between
from omfs_daemon.accounting.job_records import JobRecords
from omfs_daemon.accounting.records_of_sacct import sacct_records
from omfs_daemon.accounting.sacct_query import asked_sacct
from omfs_daemon.accounting.sacct_rows import FULL_FIELDS, SacctRows, columns_of
from omfs_daemon.errors import GatewayError, UnreachableError

AskDay = Callable[[float, float], SacctRows]
"""Asks Slurm for the records from a time to another, seconds since the epoch; GatewayError."""


def asking_slurm(conf: Path | None) -> AskDay:
    """``conf``: the slurm.conf of the cluster."""
    return lambda begin, end: asked_sacct(begin, end, conf, FULL_FIELDS)


def asked_records(
    since: float, until: float, ask: AskDay, now: float, store: AccountingStore | None = None
) -> JobRecords:
    """Jobs that were pending or ran on the days from ``since`` to ``until`` (seconds since the epoch).

    Days in the store are not asked for; days that are final (``AccountingStore.keep``) go there, so that a report that
    was stopped goes on where it stopped. UnreachableError if slurmdbd does not answer; it says from which day to go on
    if any was read.
    """
    days = days_between(since, min(until, now))
    return sacct_records(Path("sacct"), "record", _once(_asked_days(days, ask, now, store)), now=now)


def _asked_days(
    days: Sequence[AccountingDay], ask: AskDay, now: float, store: AccountingStore | None
) -> Iterator[SacctRows]:
    for day in days:
        try:
            rows = _asked(day, ask, now, store)
        except GatewayError as error:
            known = f"was read up to {day.name}; go on with --since {day.name}"
            raise UnreachableError(f"accounting {'cannot be read' if day == days[0] else known} ({error})") from None
        yield rows


def _asked(day: AccountingDay, ask: AskDay, now: float, store: AccountingStore | None) -> SacctRows:
    kept = None if store is None else store.day(day, columns_of(FULL_FIELDS))
    if kept is not None:
        return kept
    rows = ask(day.begin, min(day.end, now))
    if store is not None:
        store.keep(day, rows, now)
    return rows


def _once(days: Iterator[SacctRows]) -> Iterator[SacctRows]:
    """Each record once: a job is part of every day on which it was there; the last day knows most of it."""
    frames: list[pl.DataFrame] = []
    wrong: dict[int, str] = {}
    total = 0
    for day in days:
        shifted = day.frame.with_columns(pl.col("place") + total)
        wrong |= {place + total: why for place, why in day.wrong.items()}
        total += len(day.frame) + len(day.wrong)
        frames.append(shifted)
    if frames:
        every = pl.concat(frames).unique(["job", "submit"], keep="last", maintain_order=True)
        yield SacctRows(every, wrong)
