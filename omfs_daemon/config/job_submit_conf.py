"""The settings of job_submit.lua, made from the configuration (``omfs config job-submit``).

Names and values: the head of ``plugins/job_submit.lua``. ``slurm/plugin_check.py`` compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import ceil

from omfs_daemon.config.build import UNMATCHED, class_methods, node_licenses, scope_of
from omfs_daemon.config.class_section import ClassSection
from omfs_daemon.config.schema import WAKE_FILE, Config
from omfs_daemon.errors import ConfigError

_HEAD = "# Written by `omfs config job-submit`; rewrite it when the configuration has changed.\n"
_MIN_AGE = 10  # seconds; the plug-in's default


def plugin_settings(
    config: Config, privileged_uids: Iterable[int], daemon_uid: int = 0, operator_uids: Iterable[int] = ()
) -> dict[str, str]:
    """By name; ConfigError for a name in a class that the plug-in would misread. ``daemon_uid``: of omfsd's user."""
    kept, scope = node_licenses(config).node_licenses, scope_of(config)
    return {
        "heartbeat": str(config.daemon.heartbeat),
        "wake": str(config.daemon.run_dir / WAKE_FILE),
        "max_age": str(max(_MIN_AGE, ceil(2 * config.slurm.poll_seconds) + 5)),
        "daemon_uid": str(daemon_uid),
        "privileged_uids": _uids(privileged_uids),
        "operator_uids": _uids(operator_uids),
        "scope_partitions": ",".join(sorted(scope.partitions)),
        "scope_accounts": ",".join(sorted(scope.accounts)),
        "methods": ",".join(UNMATCHED.methods),
        "min_runtime_max": str(int(config.policy.min_runtime_max_seconds)),
        "node_licenses": ",".join(node_license.license for node_license in kept),
        "any_licenses": ",".join(node_license.any for node_license in kept if node_license.any),
        **{f"class_{number}": _class(section) for number, section in enumerate(config.classes, start=1)},
    }


def as_text(settings: Mapping[str, str]) -> str:
    """The text of the file."""
    lines = [f"{name} = {value}\n".replace(" \n", "\n") for name, value in settings.items()]
    return "".join([_HEAD, *lines])


def _class(section: ClassSection) -> str:
    fields = {"partition": section.partition, "qos": section.qos, "account": section.account}
    for name, values in fields.items():
        for value in values:
            if re.search(r"[\s,;]", value) or not value.isprintable():
                text = f"class.{name} = {value!r} of {section.name!r}: must be a name"
                raise ConfigError(f"{text} without blanks, commas or semicolons")
    if not section.is_first:
        fields |= {"methods": class_methods(section), "default": section.default}
    parts = [f"{name}={','.join(values)}" for name, values in fields.items() if values]
    bound = [f"bound={section.slowdown_bound:g}"] if section.realtime else []
    return ";".join([*parts, *(["urgent=yes"] if section.is_first else []), *bound])


def _uids(uids: Iterable[int]) -> str:
    return ",".join(str(uid) for uid in sorted(set(uids)))
