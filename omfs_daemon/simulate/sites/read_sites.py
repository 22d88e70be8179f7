"""The sites of a simulation, from a TOML file: one table ``[[site]]`` each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, isfinite
from pathlib import Path
from typing import Any

from omfs_daemon.accounting.cells import csv_fields
from omfs_daemon.accounting.lines import lines
from omfs_daemon.config.text_file import read_input
from omfs_daemon.config.toml_text import read_toml
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.sites.choose_site import Booking, Site

KINDS = ("queue", "reservation")
_KEYS = ("name", "procs", "kind", "limit", "map")
_COLUMNS = ["begin", "end", "processors"]
_MOST_PROCS = 2**31 - 1
_MOST_SITES = 1000
_MOST_SECONDS = 1e12


def read_sites(path: Path) -> tuple[Site, ...]:
    """The sites in the order of the file; ConfigError with one line: file, site, key, value, and what is allowed.

    name   unique; procs: how many processors
    kind   ``queue`` (the default): first come, first served; ``reservation``: the first gap that holds a job's limit
    limit  seconds: jobs with a longer limit are not sent there; default: any
    map    of a reservation site: a CSV file beside this one, of what is reserved for others: begin,end,processors
    """
    text = read_input(path)
    try:
        content = read_toml(text, float)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if unknown := sorted(content.keys() - {"site"}):
        raise ConfigError(f"{path}: {unknown[0][:40]!r}: must be tables [[site]] alone")
    tables = content.get("site")
    if not isinstance(tables, list) or not tables or not all(isinstance(one, dict) for one in tables):
        raise ConfigError(f"{path}: has no site: there must be a table [[site]] for each")
    if len(tables) > _MOST_SITES:
        raise ConfigError(f"{path}: {len(tables):,} sites: must be at most {_MOST_SITES:,}")
    sites = tuple(_site(path, number, one) for number, one in enumerate(tables, start=1))
    names = [site.name for site in sites]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"{path}: name = {twice[0]!r}: must be unique, but {names.count(twice[0])} sites have it")
    return sites


def _site(path: Path, number: int, table: dict[str, Any]) -> Site:
    name = table.get("name")
    where = f"{path}: site {number}"
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > 100:
        raise ConfigError(f"{where}: name = {_shown(name)}: must be a text of 1 to 100 printable characters")
    where += f" ({name})"
    if unknown := sorted(table.keys() - set(_KEYS)):
        raise ConfigError(f"{where}: {unknown[0][:40]!r}: must be one of {', '.join(_KEYS)}")
    procs, kind, limit = table.get("procs"), table.get("kind", "queue"), table.get("limit", inf)
    if isinstance(procs, bool) or not isinstance(procs, int) or not 1 <= procs <= _MOST_PROCS:
        raise ConfigError(f"{where}: procs = {_shown(procs)}: must be a whole number of at least 1")
    if kind not in KINDS:
        raise ConfigError(f"{where}: kind = {_shown(kind)}: must be one of {', '.join(KINDS)}")
    if (
        isinstance(limit, bool)
        or not isinstance(limit, int | float)
        or not (0 < limit <= _MOST_SECONDS or limit == inf)
    ):
        raise ConfigError(f"{where}: limit = {_shown(limit)}: must be seconds, above 0, {_MOST_SECONDS:,.0f} at most")
    reserved = table.get("map")
    if reserved is None:
        return Site(name, procs, kind == "reservation", (), float(limit))
    if kind != "reservation" or not isinstance(reserved, str) or not reserved:
        raise ConfigError(
            f"{where}: map = {_shown(reserved)}: must be the name of a file, of a site of kind reservation"
        )
    return Site(name, procs, True, tuple(_bookings(path.parent / reserved, procs)), float(limit))


def _shown(value: object) -> str:
    """For people: the begin of what may be very long."""
    return repr(value)[:40]


def _bookings(path: Path, procs: int) -> list[Booking]:
    """ConfigError names the line of what is no booking, or does not fit beside those that overlap it."""
    found = [(number, _booking(path, number, cells, procs)) for number, cells in _rows(path)]
    changes = [(one.begin, 1, number, one.processors) for number, one in found]
    changes += [(one.end, 0, number, -one.processors) for number, one in found]
    taken = 0
    for _, _, number, processors in sorted(changes):
        taken += processors
        if taken > procs:
            text = f"with those that it overlaps {taken:,} processors are reserved: must be at most {procs:,}"
            raise ConfigError(f"{path}, line {number}: {text}")
    return [one for _, one in found]


def _rows(path: Path) -> Iterator[tuple[int, Sequence[str]]]:
    for number, line in enumerate(lines(path, None), start=1):
        try:
            cells = [cell.strip() for cell in csv_fields(line)]
        except ValueError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
        if any(cells) and not (number == 1 and cells == _COLUMNS):
            yield number, cells


def _booking(path: Path, number: int, cells: Sequence[str], procs: int) -> Booking:
    try:
        begin, end, processors = float(cells[0]), float(cells[1]), int(cells[2])
    except (ValueError, IndexError):
        begin, end, processors = inf, inf, 0
    is_time = isfinite(begin) and isfinite(end) and 0 <= begin < end <= _MOST_SECONDS
    if len(cells) != len(_COLUMNS) or not is_time or processors < 1:
        text = "must be begin,end,processors: seconds from the first submission, begin before end, at least 1 processor"
        raise ConfigError(f"{path}, line {number}: {text}")
    if processors > procs:
        raise ConfigError(f"{path}, line {number}: {processors:,} processors: must be at most the site's {procs:,}")
    return Booking(begin, end, processors)
