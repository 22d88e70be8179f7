"""Cells of a table: every column under one rule, every bad cell with its place."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.locate import missing
from omfs_daemon.simulate.readers.lines import lines
from omfs_daemon.simulate.readers.loaded import Progress, repeated
from omfs_daemon.simulate.workload import Bools, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A file's records, not yet understood.

    frame    one column each; of a CSV file all text, with null for an empty cell
    places   where each row is, for people: its line in a CSV file, its number from 1 in a Parquet file
    unit     what ``places`` count: "line" or "row"
    ragged   rows with another number of cells than the header, which are not in ``frame``: place and what is wrong
    remarks  ``key: value`` lines before a CSV file's header (after #), or a Parquet file's metadata
    """

    path: Path
    frame: pl.DataFrame
    places: Ints
    unit: str
    ragged: dict[int, str]
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
    remarks: dict[str, str] = {}
    text, before = lines(path, progress), 0
    first = next(text, "")
    while first.startswith("#"):
        key, _, value = first.removeprefix("#").partition(":")
        remarks[key.strip()] = value.strip()
        first, before = next(text, ""), before + 1
    reader = csv.reader(chain((first,), text))
    rows: list[list[str]] = []
    places: list[int] = []
    ragged: dict[int, str] = {}
    try:
        header = [name.strip() for name in next(reader, [])]
        for row in reader:
            if len(row) == len(header):
                rows.append(row)
                places.append(before + reader.line_num)
            elif row:
                ragged[before + reader.line_num] = f"{len(row)} fields, not {len(header)}"
    except csv.Error as error:
        raise ConfigError(f"{path}: line {before + reader.line_num}: {error}") from None
    if not header or len(set(header)) < len(header):
        raise ConfigError(f"{path}: line {before + 1}: not a header of distinct column names")
    columns = zip(*rows, strict=True) if rows else ([] for _ in header)
    frame = pl.DataFrame(
        [pl.Series(name, values, dtype=pl.String) for name, values in zip(header, columns, strict=True)]
    ).with_columns(pl.all().replace("", None))
    return Cells(path, frame, np.array(places, dtype=np.int64), "line", ragged, remarks)


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
class Number:
    """A column of finite numbers from ``low`` on. ``default``: for an empty cell; None: it must not be empty."""

    name: str
    low: float = 0.0
    whole: bool = False
    default: float | None = None

    @property
    def allowed(self) -> str:
        """For people."""
        return f"a {'whole ' if self.whole else ''}number of {self.low:g} or more"

    def read(self, cells: pl.Series) -> tuple[NDArray[Any], Bools]:
        """The values (int64 if whole, else float64), and which of the filled cells are bad."""
        floats = cells.cast(pl.Float64, strict=False)
        # 512.0 is whole too, but a large number is exact only when it is read as a whole one.
        whole = cells.cast(pl.Int64, strict=False).fill_null(floats.cast(pl.Int64, strict=False))
        good = floats.is_finite() & (floats >= self.low)
        if self.whole:
            good &= floats == whole.cast(pl.Float64)
        return (whole if self.whole else floats).fill_null(0).to_numpy(), _not(good)


@dataclass(frozen=True, slots=True)
class Word:
    """A column of text; ``choices`` empty: any. ``default``: for an empty cell."""

    name: str
    default: str
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """For people."""
        return "one of " + ", ".join(self.choices)

    def read(self, cells: pl.Series) -> tuple[NDArray[Any], Bools]:
        """The values (objects), and which of the filled cells are bad."""
        words = cells.cast(pl.String)
        values = words.fill_null(self.default).to_numpy().astype(object)
        return values, _not(words.is_in(self.choices)) if self.choices else np.zeros(len(words), dtype=np.bool_)


Columns = dict[str, NDArray[Any]]


def understood(cells: Cells, rules: Sequence[Number | Word]) -> tuple[Columns, dict[int, str]]:
    """The columns by name, and for each row of the frame with a bad cell what is wrong with its first one.

    ConfigError if a column without a default is not there.
    """
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


def all_understood(cells: Cells, rules: Sequence[Number | Word]) -> Columns:
    """The columns by name; ConfigError for the first bad row, and if there are no rows."""
    columns, faults = understood(cells, rules)
    wrong = cells.ragged | {int(cells.places[row]): why for row, why in faults.items()}
    if wrong:
        place = min(wrong)
        raise ConfigError(f"{cells.path}: {cells.at(place)}: {wrong[place]}")
    if not len(cells.frame):
        raise ConfigError(f"{cells.path}: no jobs")
    again = np.flatnonzero(repeated(columns["job_id"]))
    if len(again):
        place, number = cells.places[again[0]], columns["job_id"][again[0]]
        raise ConfigError(f"{cells.path}: {cells.at(place)}: job_id {number} stood before")
    return columns


def _not(good: pl.Series) -> Bools:
    bad: Bools = ~good.fill_null(False).to_numpy()
    return bad
