"""The places of a machine on which jobs run alone: partitions of a torus, or any CPUs."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.arrays import Ints
from omfs_daemon.errors import ConfigError

MIRA_CPUS = 49152
MIRA_SIZES = (512, 1024, 2048, 4096, 8192, 12288, 16384, 24576, 32768, 49152)
"""Nodes of the partitions of Mira (Nickolay et al. 2021, section 5.2)."""
FLAT = "flat"

_COLUMNS = ("place", "size", "units")
_MOST_PLACES = 20_000


class Place(NamedTuple):
    """``size``: CPUs; ``units``: what it shares with other places; two that have one in common cannot both be held."""

    size: int
    units: tuple[int, ...]


class Layout(NamedTuple):
    """All places, the smallest first; none: a job runs on any CPUs."""

    name: str
    places: tuple[Place, ...] = ()

    @property
    def widest(self) -> int | None:
        """CPUs of the largest place; None: the machine."""
        return self.places[-1].size if self.places else None


FLAT_LAYOUT = Layout(FLAT)


class PlaceArrays(NamedTuple):
    """The places as a kernel sees them. Lists of lists are one list, and where each part begins.

    size      CPUs by place, ascending
    kind      the number of its size by place
    first_of  the first place of each size, and the number of places at the end
    units     of place i: ``units[units_from[i]:units_from[i + 1]]``
    places    that have unit i, likewise
    larger    places larger than place i that have a unit of it, likewise
    """

    size: Ints
    kind: Ints
    first_of: Ints
    units_from: Ints
    units: Ints
    places_from: Ints
    places: Ints
    larger_from: Ints
    larger: Ints


def place_arrays(layout: Layout) -> PlaceArrays:
    """For a kernel; all are empty if there are no places."""
    places = layout.places
    size = _ints(place.size for place in places)
    _, first, kind = np.unique(size, return_index=True, return_inverse=True)
    having: list[list[int]] = [[] for _ in range(1 + max((max(place.units) for place in places), default=-1))]
    for index, place in enumerate(places):
        for unit in place.units:
            having[unit].append(index)
    larger = [
        sorted({other for unit in place.units for other in having[unit] if places[other].size > place.size})
        for place in places
    ]
    return PlaceArrays(
        size,
        kind.astype(np.int64),
        np.append(first, len(places)).astype(np.int64),
        *_in_one([place.units for place in places]),
        *_in_one(having),
        *_in_one(larger),
    )


def layout_named(text: str, cpus: int) -> Layout:
    """``flat``, ``aligned:UNIT`` or ``mira`` on a machine of so many CPUs; ConfigError for anything else."""
    kind, _, unit_text = text.partition(":")
    if text == FLAT:
        return FLAT_LAYOUT
    if text == "mira":
        if cpus != MIRA_CPUS:
            raise ConfigError(f"--layout mira: Mira has {MIRA_CPUS:,} CPUs (nodes), this machine {cpus:,}")
        return _aligned(text, cpus, MIRA_SIZES[0], MIRA_SIZES)
    if kind != "aligned" or not unit_text.isascii() or not unit_text.isdigit() or int(unit_text) < 1:
        raise ConfigError(f"--layout {text!r}: must be flat, aligned:UNIT with a number of CPUs, or mira")
    unit = int(unit_text)
    if cpus % unit:
        raise ConfigError(f"--layout {text}: {cpus:,} CPUs are no multiple of {unit:,}")
    if 2 * (cpus // unit) > _MOST_PLACES:
        raise ConfigError(f"--layout {text}: {cpus // unit:,} units, at most {_MOST_PLACES // 2:,} are allowed")
    sizes = [unit]
    while sizes[-1] * 2 <= cpus:
        sizes.append(sizes[-1] * 2)
    return _aligned(text, cpus, unit, sizes)


def read_places(path: Path, cpus: int) -> Layout:
    """The places in a CSV file with the columns place, size and units (such as ``0-3 8``); ConfigError."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--places {path}: cannot be read ({error})") from None
    if not rows or tuple(rows[0]) != _COLUMNS:
        raise ConfigError(f"--places {path}: the first line must be {','.join(_COLUMNS)}")
    if not 1 < len(rows) <= _MOST_PLACES + 1:
        raise ConfigError(f"--places {path}: {len(rows) - 1:,} places: must be from 1 to {_MOST_PLACES:,}")
    places, names = [], set()
    for number, row in enumerate(rows[1:], 2):
        try:
            name, size, units = row
            place = Place(_number(size, cpus), _units(units))
            if name in names:
                raise ValueError(f"{name!r} is there twice")
        except ValueError as error:
            raise ConfigError(f"--places {path}, line {number}: {error}") from None
        names.add(name)
        places.append(place)
    return Layout(path.name, tuple(sorted(places, key=lambda place: place.size)))


def _aligned(name: str, cpus: int, unit: int, sizes: Iterable[int]) -> Layout:
    """Block i of a size begins at i times the size."""
    places = [
        Place(size, tuple(range(begin // unit, (begin + size) // unit)))
        for size in sizes
        for begin in range(0, cpus - size + 1, size)
    ]
    return Layout(name, tuple(places))


def _number(text: str, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise ValueError(f"size {text!r} must be CPUs, from 1 to {most:,}")
    return int(text)


def _units(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split():
        first, _, last = part.partition("-")
        if not all(one.isascii() and one.isdigit() and int(one) < bounds.NODES for one in (first, last or first)):
            raise ValueError(f"units {text!r} must be numbers or ranges, such as 0-3 8")
        found.update(range(int(first), int(last or first) + 1))
    if not found:
        raise ValueError("no units")
    return tuple(sorted(found))


def _in_one(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    begins = np.concatenate(((0,), np.cumsum([len(one) for one in lists], dtype=np.int64))).astype(np.int64)
    return begins, _ints(item for one in lists for item in one)


def _ints(numbers: Iterable[int]) -> Ints:
    return np.fromiter(numbers, dtype=np.int64)
