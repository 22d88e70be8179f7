"""The commented sample configuration, made from the models: ``omfs config default`` and docs/omfs.toml."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import Any

import tomlkit
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from omfs_daemon.config.build import class_methods
from omfs_daemon.config.class_section import REALTIME_KEYS, ClassSection
from omfs_daemon.config.cluster_section import ClusterSection
from omfs_daemon.config.percent import percent_text
from omfs_daemon.config.schema import Config, EntitlementSection, MethodSection, NodeLicenseSection

_WIDTH = 100
_HEAD = """\
# The configuration of omfsd. All lines are comments and show the defaults.
# Uncomment what you change, check the file with `omfs config check FILE`,
# and apply it with `systemctl reload omfsd`.
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
#name = "beamline"
#qos = ["beamline"]
#realtime = true
#slowdown_bound = 1.5
#act_at = 1.2
#
#[[class]]
#name = "scratch"
#partition = ["scratch"]
#default = ["requeue"]
"""
_METHOD_EXAMPLE = """\
#[methods.dmtcp]
#preempt_timeout_seconds = 900
"""
_NODE_LICENSE_EXAMPLE = """\
#[[node_license]]
#license = "ve_{node}"
#kind = "devices"
#anywhere = "ve"
"""
_CLUSTER_EXAMPLE = """\
#[[cluster]]
#name = "vector"
#conf = "/etc/slurm/vector/slurm.conf"
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
    parts.append(_table("[[node_license]]", NodeLicenseSection) + _NODE_LICENSE_EXAMPLE)
    parts.append(_table("[[cluster]]", ClusterSection) + _CLUSTER_EXAMPLE)
    return "\n".join(parts)


def effective(config: Config) -> Config:
    """The configuration with the methods that each class allows, those of a default included."""
    classes = [section.model_copy(update={"methods": class_methods(section)}) for section in config.classes]
    return config.model_copy(update={"classes": tuple(classes)})


def as_toml(config: Config) -> str:
    """The effective configuration with every option that has a value, as TOML that loads to the same."""
    document = effective(config).model_dump(mode="python", by_alias=True, exclude_none=True)
    for name, own in config.entitlements.items():
        if own.percent is not None:
            document["entitlements"][name]["percent"] = tomlkit.value(percent_text(own.percent))
    for section in document["class"]:
        is_first = section["urgent"] or section["realtime"]
        not_its_own = () if section["realtime"] else tuple(REALTIME_KEYS)
        for key in (*(("methods", "default", "when_preemption_fails", "signal") if is_first else ()), *not_its_own):
            section.pop(key, None)
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
    """A table that may be given several times: its keys, each with an example."""
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
