"""Lines of text as columns, many at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import polars as pl

_CHUNK = 100_000


class NumberedLines(NamedTuple):
    """Lines that are not blank, without their ends; ``place``: their numbers from 1."""

    place: pl.Series
    text: pl.Series


def numbered_lines(text: Iterable[str]) -> Iterator[NumberedLines]:
    """Many lines at a time, so that memory does not grow with the file."""
    numbered = iter(text)
    done = 0
    while chunk := list(islice(numbered, _CHUNK)):
        lines = pl.Series("text", chunk, dtype=pl.String).str.strip_chars_end("\r\n")
        places = pl.int_range(done + 1, done + len(chunk) + 1, eager=True).alias("place")
        filled = lines.str.strip_chars() != ""
        done += len(chunk)
        if filled.any():
            yield NumberedLines(places.filter(filled), lines.filter(filled))


def split_columns(lines: pl.Series, separator: str, names: list[str]) -> pl.DataFrame:
    """One column a name; the last one has all that is left. null where a line has fewer fields."""
    return lines.str.splitn(separator, len(names)).struct.rename_fields(names).struct.unnest()


def digits(texts: pl.Series, most: int) -> pl.Series:
    """Whole numbers of at most 15 digits and up to ``most``; null for anything else."""
    numbers = texts.set(~texts.str.contains(r"^[0-9]{1,15}$"), None).cast(pl.Int64, strict=False)
    return numbers.set(numbers > most, None)
