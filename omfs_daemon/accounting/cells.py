"""Cells of a table: every column under one rule, every bad cell with its place."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from omfs_daemon.accounting.arrays import Bools, Ints
from omfs_daemon.accounting.lines import lines
from omfs_daemon.accounting.read_report import Malformed, Progress, ReadReport, repeated, require_usable
from omfs_daemon.accounting.trace_files import missing
from omfs_daemon.errors import ConfigError


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A file's records, not yet interpreted.

    frame    one column each; of a CSV file all text, with null for an empty cell
    places   where each row is, for people: its line in a CSV file, its number from 1 in a Parquet file
    unit     what ``places`` count: "line" or "row"
    broken   lines that are no rows under the header, which are not in ``frame``: place and what is wrong
    remarks  ``key: value`` lines before a CSV file's header (after #), or a Parquet file's metadata
    """

    path: Path
    frame: pl.DataFrame
    places: Ints
    unit: str
    broken: dict[int, str]
    remarks: dict[str, str]

    @property
    def names(self) -> list[str]:
        """The columns'."""
        return self.frame.columns

    def at(self, place: int) -> str:
        """For people, e.g. line 12."""
        return f"{self.unit} {place}"


def read_cells(path: Path, progress: Progress | None = None) -> Cells:
    """The cells of a CSV file (.gz too) or a Parquet file; ConfigError if it has no header or cannot be read."""
    return _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path, progress)


def _csv(path: Path, progress: Progress | None) -> Cells:
    """A row is a line: an open quote must not swallow the lines after it."""
    remarks: dict[str, str] = {}
    numbered = enumerate(lines(path, progress), start=1)
    place, line = next(numbered, (1, ""))
    while line.startswith("#"):
        key, _, value = line.removeprefix("#").partition(":")
        remarks[key.strip()] = value.strip()
        place, line = next(numbered, (place + 1, ""))
    try:
        header = [name.strip() for name in csv_fields(line)]
    except ValueError:
        header = []
    if not header or len(set(header)) < len(header):
        raise ConfigError(f"{path}: line {place}: not a header of distinct column names")
    rows: list[list[str]] = []
    places: list[int] = []
    broken: dict[int, str] = {}
    for place, line in numbered:
        try:
            row = csv_fields(line)
        except ValueError as error:
            broken[place] = str(error)
            continue
        if len(row) == len(header):
            rows.append(row)
            places.append(place)
        elif row:
            broken[place] = f"{len(row)} fields, not {len(header)}"
    columns = zip(*rows, strict=True) if rows else ([] for _ in header)
    frame = pl.DataFrame(
        [pl.Series(name, values, dtype=pl.String) for name, values in zip(header, columns, strict=True)]
    ).with_columns(pl.all().replace("", None))
    return Cells(path, frame, np.array(places, dtype=np.int64), "line", broken, remarks)


def csv_fields(line: str) -> list[str]:
    """The cells of a line, none of an empty one; ValueError if it is no line of CSV."""
    try:
        return next(csv.reader((line,), strict=True), [])
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from None


def _parquet(path: Path) -> Cells:
    try:
        frame, remarks = pl.read_parquet(path), pl.read_parquet_metadata(path)
    except FileNotFoundError:
        raise missing(path) from None
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ConfigError(f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]})") from None
    for name, kind in frame.schema.items():
        if not (kind.is_numeric() or kind in (pl.String, pl.Boolean, pl.Null)):
            raise ConfigError(f"{path}: column {name}: {kind} is not allowed, only numbers and text")
    return Cells(path, frame, np.arange(1, len(frame) + 1), "row", {}, remarks)


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A column of numbers from ``low`` to ``high``. ``default``: for an empty cell; None: it must not be empty."""

    name: str
    high: int
    low: int = 0
    whole: bool = False
    default: float | None = None

    @property
    def allowed(self) -> str:
        """For people."""
        return f"a {'whole ' if self.whole else ''}number from {self.low} to {self.high:,}"

    def read(self, cells: pl.Series) -> tuple[NDArray[Any], Bools]:
        """The values (int64 if whole, else float64), and which of the filled cells are bad."""
        numbers = cells.cast(pl.Float64, strict=False).fill_null(nan).to_numpy()
        good = (numbers >= self.low) & (numbers <= self.high)
        if self.whole:
            good &= numbers == np.floor(numbers)
        return np.where(good, numbers, 0.0).astype(np.int64 if self.whole else np.float64), ~good


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of text; ``choices`` empty: any. ``default``: for an empty cell; None: it must not be empty."""

    name: str
    default: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """For people."""
        return "one of " + ", ".join(self.choices) if self.choices else "text"

    def read(self, cells: pl.Series) -> tuple[NDArray[Any], Bools]:
        """The values (objects), and which of the filled cells are bad."""
        words = cells.cast(pl.String)
        values = words.fill_null(self.default or "").to_numpy().astype(object)
        return values, _not(words.is_in(self.choices)) if self.choices else words.is_null().to_numpy()


Columns = dict[str, NDArray[Any]]


def understood(
    cells: Cells, rules: Sequence[NumberColumn | TextColumn], strict: bool, key: str = "job number"
) -> tuple[Columns, ReadReport]:
    """The columns by name, good rows only, and a report on the others. The first rule's column is the ``key`` of a row.

    A row is malformed if a cell is bad or if its key stood before. ConfigError if a column without a default
    is not there, if no row is good, and for malformed ones if ``strict``.
    """
    columns, faults = _columns(cells, rules)
    good = np.ones(len(cells.frame), dtype=np.bool_)
    good[list(faults)] = False
    again = np.flatnonzero(good)[repeated(columns[rules[0].name][good])]
    good[again] = False
    faults |= dict.fromkeys(again.tolist(), f"its {key} stood in a row before")
    wrong = cells.broken | {int(cells.places[row]): why for row, why in faults.items()}
    malformed = tuple(Malformed(cells.at(place), wrong[place]) for place in sorted(wrong))
    report = ReadReport(cells.path, len(cells.frame) + len(cells.broken), (), malformed)
    require_usable(report, strict)
    return {name: values[good] for name, values in columns.items()}, report


def _columns(cells: Cells, rules: Sequence[NumberColumn | TextColumn]) -> tuple[Columns, dict[int, str]]:
    """The columns by name, and for each row of the frame with a bad cell what is wrong with its first one."""
    columns: Columns = {}
    faults: dict[int, str] = {}
    for rule in rules:
        if rule.name not in cells.names and rule.default is None:
            needed = ", ".join(rule.name for rule in rules if rule.default is None)
            raise ConfigError(f"{cells.path}: no column {rule.name}; needed are {needed}")
        column = cells.frame[rule.name] if rule.name in cells.names else pl.Series([None] * len(cells.frame))
        values, bad = rule.read(column)
        empty = column.is_null().to_numpy()
        if rule.default is not None:
            values = np.where(empty, np.asarray(rule.default, dtype=values.dtype), values)
        for row in np.flatnonzero(bad & ~empty if rule.default is not None else bad).tolist():
            value = "an empty cell" if empty[row] else repr(column[row])
            faults.setdefault(row, f"column {rule.name}: {value} is not allowed, only {rule.allowed}")
        columns[rule.name] = values
    return columns, faults


def _not(good: pl.Series) -> Bools:
    bad: Bools = ~good.fill_null(False).to_numpy()
    return bad
