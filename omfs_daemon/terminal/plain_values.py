"""Options and arguments without pydantic: typer converts values with it, and it takes longer than most commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

_PLAIN: tuple[type, ...] = (str, Path, int)
_CHECKS = ("parser", "click_type", "exists", "writable", "resolve_path", "allow_dash", "path_type")


def convert_plainly(parameters: Iterable[Any], function: Callable[..., object] | None) -> None:
    """Convert what needs no conversion by typer: missing values, defaults, and what ``function`` takes as text or path.

    ``parameters``: those of a command of typer, whose ``process_value`` does the rest.
    """
    hints = {} if function is None else get_type_hints(function, include_extras=True)
    for parameter in parameters:
        parameter.process_value = _converter(parameter, _plain_kind(hints.get(parameter.name)))


def _plain_kind(hint: Any) -> type | None:
    """Text, path or number without a check of its own, also if it may be missing; None for all else."""
    if get_origin(hint) is Annotated:
        hint, *infos = get_args(hint)
        if any(getattr(info, check, None) for info in infos for check in _CHECKS):
            return None
    return next((kind for kind in _PLAIN if hint in (kind, kind | None)), None)


def _converter(parameter: Any, kind: type | None) -> Callable[[Any, Any], Any]:
    by_typer = parameter.process_value

    def process_value(context: Any, value: Any) -> Any:
        if value is None and not parameter.required:
            return parameter.callback(context, parameter, None) if parameter.callback else None
        if parameter.callback or value is None:
            return by_typer(context, value)
        if kind in (str, Path) and isinstance(value, str):
            return kind(value)
        return value if kind is not None and value is parameter.default else by_typer(context, value)

    return process_value
