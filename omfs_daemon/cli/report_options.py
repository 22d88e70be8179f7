"""Options of ``omfs report`` that do not go together, or cannot have an effect."""

from __future__ import annotations

import typer

from omfs_daemon.cli.typed_options import typed_names
from omfs_daemon.errors import ConfigError

_BARE = ("profile", "queue", "start")
_WITH_BARE = frozenset((*_BARE, "figure", "out", "as_json"))
_OF_A_LOG = ("kind", "separator")


def is_bare_hole(context: typer.Context) -> bool:
    """Whether a bare profile and queue were given instead of a log; ConfigError for options that do not go together."""
    typed = set(typed_names(context))
    if typed.intersection(_BARE):
        if not typed.issuperset(_BARE) or context.params["figure"] != "holes" or typed & {"log", "since"}:
            raise ConfigError("--profile, --queue, and --start go together, with holes and without --log and --since")
        if others := typed - _WITH_BARE:
            raise ConfigError(f"{_first_option(context, others)} does not go with --profile")
        return True
    is_all = "everything" in typed
    if (is_all and context.params["figure"] != "holes") or ("scheduler" in typed and not is_all):
        raise ConfigError("--all goes with holes, and --scheduler with --all")
    if "nodes" in typed and "exclusive" not in typed:
        raise ConfigError("--nodes goes with --exclusive")
    if {"strict", "lenient"} <= typed:
        raise ConfigError("--strict and --lenient do not go together")
    if "log" not in typed and (alone := typed.intersection(_OF_A_LOG)):
        raise ConfigError(f"{_first_option(context, alone)} goes with --log")
    return False


def _first_option(context: typer.Context, names: set[str]) -> str:
    """The first of these parameters, as it is typed."""
    return next(parameter.opts[0] for parameter in context.command.params if parameter.name in names)
