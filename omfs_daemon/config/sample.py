"""The commented sample configuration, made from the models: ``omfs config default`` and docs/omfs.toml."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import Any

import tomlkit
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from omfs_daemon.config.schema import Config
from omfs_daemon.config.schema import BookSection
from omfs_daemon.config.schema import ClassSection
from omfs_daemon.config.schema import EntitlementSection
from omfs_daemon.config.schema import MethodSection
from omfs_daemon.config.percent import percent_text

_WIDTH = 100
_HEAD = """\
# The configuration of omfsd. All lines are comments: what stands here is what holds without the file.
# Take the # away from what you change; `omfs config check FILE` tells whether the file is right,
# and `systemctl reload omfsd` puts it into force.
"""


_EXAMPLES = """\
#[entitlements.science]
#percent = 50
#
#[entitlements.bio]
#percent = 60
#parent = "science"
"""
_CLASS_EXAMPLES = """\
#[[class]]
#name = "urgent"
#qos = ["urgent"]
#urgent = true
#
#[[class]]
#name = "scratch"
#partition = ["scratch"]
#default = ["requeue"]
"""
_METHOD_EXAMPLE = """\
#[methods.dmtcp]
#stop_timeout_seconds = 900
"""
_BOOK_EXAMPLE = """\
#[[book]]
#licence = "ve_{node}"
#kind = "devices"
#anywhere = "ve"
"""


def sample() -> str:
    """The sample as TOML; it loads to the defaults."""
    parts = [_HEAD]
    for name, field in Config.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            parts.append(_section(name, field.annotation))
    parts.append(_table("[entitlements.NAME]", EntitlementSection) + _EXAMPLES)
    parts.append(_table("[[class]]", ClassSection) + _CLASS_EXAMPLES)
    parts.append(_table("[methods.NAME]", MethodSection) + _METHOD_EXAMPLE)
    parts.append(_table("[[book]]", BookSection) + _BOOK_EXAMPLE)
    return "\n".join(parts)


def as_toml(config: Config) -> str:
    """A configuration with every option that has a value, as TOML that loads to the same."""
    document = config.model_dump(mode="python", by_alias=True, exclude_none=True)
    for name, own in config.entitlements.items():
        document["entitlements"][name]["percent"] = tomlkit.value(percent_text(own.percent))
    for section in document["class"]:
        for key in ("methods", "default", "when_stop_fails") if section["urgent"] else ():
            del section[key]
    return tomlkit.dumps(_plain({key: value for key, value in document.items() if value}))


def _plain(value: Any) -> Any:
    """Paths as text and tuples as lists, as tomlkit wants them."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, Path) else value


def _section(name: str, model: type[BaseModel]) -> str:
    options = [_option(key, field) for key, field in model.model_fields.items()]
    return "\n".join([*_comment(_doc(model)), f"[{name}]", "", *options])


def _option(key: str, field: FieldInfo) -> str:
    """An option with its default; one without a default (left out) shows its example only."""
    examples = [f"Example: {key} = {toml_value(value)}" for value in (field.examples or [])[:1]]
    lines = _comment(*([field.description] if field.description else []), *examples)
    if field.default is not None:
        lines.append(f"#{key} = {toml_value(field.default)}")
    return "\n".join(lines) + "\n"


def _table(head: str, model: type[BaseModel]) -> str:
    """A table that a site gives as often as it likes: its keys, each with an example."""
    lines = _comment(f"{head}: {_doc(model)}")
    for key, field in model.model_fields.items():
        example = f"(Example: {key} = {toml_value((field.examples or [None])[0])})"
        lines += [f"#   {line}" for line in wrap(f"{key}: {field.description} {example}", _WIDTH)]
    return "\n".join([*lines, "#"]) + "\n"


def _doc(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip()


def _comment(*texts: str) -> list[str]:
    return [f"# {line}" for text in texts for line in wrap(text, _WIDTH)]


def toml_value(value: Any) -> str:
    """A default or an example as TOML text."""
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        table.update(_plain(value))
        return str(table.as_string())
    return str(tomlkit.item(_plain(value)).as_string())
