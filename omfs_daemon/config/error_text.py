"""Errors in a configuration, one line each: ``key = VALUE: what is allowed``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_LONGEST_VALUE = 60
_MESSAGES = {
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "string_type": "must be text in quotes",
    "string_too_short": "must not be empty",
    "path_type": "must be a path in quotes",
    "tuple_type": "must be a list: [...], or [[...]] for tables",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "missing": "is missing and must be given",
}

RENAMED = {
    "book": "node_license",
    "licence": "license",
    "max_stops_per_hour": "max_preemptions_per_hour",
    "max_stops_per_cycle": "max_preemptions_per_cycle",
    "stop_timeout_seconds": "preempt_timeout_seconds",
    "when_stop_fails": "when_preemption_fails",
    "stop_seconds": "preempt_seconds",
    "stop_bytes_per_second": "preempt_bytes_per_second",
    "back_seconds": "resume_seconds",
    "back_bytes_per_second": "resume_bytes_per_second",
}
"""Keys of older releases and what they are called now."""


def error_line(error: ValidationError, model: type[BaseModel]) -> str:
    """The first fault that pydantic found in ``model``, and how many more there are."""
    # An unknown key comes first: a misspelled key is why the right one is missing.
    faults = sorted(error.errors(include_url=False), key=lambda fault: fault["type"] != "extra_forbidden")
    text = _one(faults[0], model)
    return text if len(faults) == 1 else f"{text} (and {len(faults) - 1} more)"


def _one(fault: ErrorDetails, model: type[BaseModel]) -> str:
    place = tuple(part for part in fault["loc"] if part != "[key]")  # what pydantic adds for a key that is wrong itself
    kind = fault["type"]
    key = key_text(place)
    if kind == "missing":
        return f"{key}: {_MESSAGES[kind]}"
    if kind == "extra_forbidden":
        near = _nearest(str(place[-1]), place[:-1], model)
        return f"{key} = {value_text(fault['input'])}: unknown key; {near}"
    if kind == "value_error" and isinstance(fault["input"], Mapping):
        return f"{key}: {_allowed(fault)}"
    return f"{key} = {value_text(fault['input'])}: {_allowed(fault)}"


def _allowed(fault: ErrorDetails) -> str:
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"])
    text = _MESSAGES.get(fault["type"], fault["msg"])
    return text.replace("Input should be ", "must be ").replace("Input should ", "must ")


def key_text(place: Sequence[int | str]) -> str:
    """``("class", 0, "urgent")`` as ``class[0].urgent``."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{_clean(part)}"
    return text.lstrip(".") or "the file"


def value_text(value: object) -> str:
    """A value roughly as TOML writes it, on one line and not too long."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, int | float | Decimal):
        text = str(value)
    else:
        text = repr(value)
    text = _clean(text)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _nearest(key: str, above: Sequence[int | str], model: type[BaseModel]) -> str:
    if key in RENAMED:
        return f"it is now {RENAMED[key]!r}"
    known = sorted(field.alias or name for name, field in _model_at(above, model).model_fields.items())
    close = get_close_matches(key, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"


def _model_at(place: Sequence[int | str], model: type[BaseModel]) -> type[BaseModel]:
    """The model of the table at ``place``; names of accounts and numbers of list entries are stepped over."""
    for part in place:
        for name, field in model.model_fields.items():
            if part == (field.alias or name):
                model = next(iter(_models_in(field.annotation)), model)
                break
    return model


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]
