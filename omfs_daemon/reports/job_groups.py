"""The groups by which figures are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from omfs_daemon.errors import ConfigError
from omfs_daemon.reports.log_report import CLASSES, LogReport

GROUPS = ("account", "partition", "qos", "user", "name", "array", "size", "length")
USUAL_GROUPS = ("size", "length", "account", "partition", "qos")


def groups_named(text: str | None) -> tuple[str, ...]:
    """``account,size``, each once; ConfigError for a group that is not known."""
    if text is None:
        return USUAL_GROUPS
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in GROUPS:
            raise ConfigError(f"--by = {text!r}: {name!r} is no group: must be of {', '.join(GROUPS)}")
    return names


def in_group(report: LogReport, frame: pl.DataFrame, group: str) -> pl.DataFrame:
    """The rows of which the group is known, and in it users other than the one who may be named as one."""
    found = frame.filter(pl.col(group) != "")
    if group != "user" or report.named_user is None:
        return found
    others = found["user"].filter(found["user"] != report.named_user).n_unique()
    shown = pl.when(pl.col("user") == report.named_user).then("user").otherwise(pl.lit(f"other users ({others:,})"))
    return found.with_columns(shown.alias("user"))


def figures_by_group(
    report: LogReport, frame: pl.DataFrame, groups: tuple[str, ...], figures: tuple[pl.Expr, ...]
) -> Iterator[tuple[Any, ...]]:
    """Group, value, and figures, of which one is ``jobs``: of all rows, then of each value, most jobs first; classes of
    size and length in their order."""
    for row in frame.select(figures).iter_rows():
        yield ("all", "", *row)
    for group in groups:
        found = in_group(report, frame, group).group_by(group).agg(figures)
        rows = list(found.sort(["jobs", group], descending=[True, False]).iter_rows())
        if group in CLASSES:
            rows.sort(key=lambda row: CLASSES[group].index(row[0]))
        yield from ((group, *row) for row in rows)
