"""Which options of a command were typed."""

from __future__ import annotations

import typer


def typed_names(context: typer.Context) -> list[str]:
    """Names of parameters, as in the command's function."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
