"""omfs.toml(5), from the configuration's models."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from deploy.manual.roff import Section, example, item, page, paragraphs, see_also, subsection
from omfs_daemon.config.sample import toml_value
from omfs_daemon.config.schema import Config
from omfs_daemon.config.socket_path import DEFAULT_PATH


def configuration_page(day: date) -> str:
    tables = [line for name, field in Config.model_fields.items() for line in _table(name, field)]
    sections = [
        Section("SYNOPSIS", [str(DEFAULT_PATH)]),
        Section(
            "DESCRIPTION",
            [
                *paragraphs("The configuration of omfsd, in TOML. Every table and every option may be left out."),
                *paragraphs("Check a changed file before a reload:"),
                *example("omfs config check FILE", "systemctl reload omfsd"),
            ],
        ),
        Section("TABLES", tables),
        see_also("omfsd(8)", "omfs(1)", "omfs-config(1)"),
    ]
    return page("omfs.toml", 5, day, "configuration of omfsd", sections)


def _table(name: str, field: FieldInfo) -> list[str]:
    model, title = _model(field.alias or name, field)
    options = [line for key, own in model.model_fields.items() for line in _option(key, own)]
    return [subsection(title), *paragraphs(model.__doc__ or ""), *options]


def _model(name: str, field: FieldInfo) -> tuple[type[BaseModel], str]:
    """The table's model and its head: ``[name]``, ``[name.NAME]``, or ``[[name]]``."""
    kind = field.annotation
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind, f"[{name}]"
    model = next(own for own in get_args(kind) if isinstance(own, type) and issubclass(own, BaseModel))
    return model, f"[{name}.NAME]" if issubclass(getattr(kind, "__origin__", list), Mapping) else f"[[{name}]]"


def _option(key: str, field: FieldInfo) -> list[str]:
    remarks = []
    if field.is_required():
        remarks.append("Required.")
    elif field.default is not None and field.default_factory is None:
        remarks.append(f"Default: `{toml_value(field.default)}`.")
    if field.examples:
        remarks.append(f"Example: `{key} = {toml_value(field.examples[0])}`.")
    return item(key, field.description or "", " ".join(remarks))
