"""The settings of job_submit.lua: made from the configuration (``omfs config job-submit``) and compared with it
(``omfs check``). Names and values: the head of ``plugins/job_submit.lua``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import ceil

from omfs_daemon.config.build import UNMATCHED, class_methods, node_licenses
from omfs_daemon.config.schema import WAKE_FILE, ClassSection, Config
from omfs_daemon.errors import ConfigError
from omfs_daemon.slurm.settings_check import Finding, Level

FILE = "omfs_job_submit.conf"
_HEAD = "# Written by `omfs config job-submit`; rewrite it when the configuration has changed.\n"
_MIN_AGE = 10  # seconds; the plug-in's default
_SITES_OWN = ("heartbeat", "max_age", "privileged_uids")  # checked in slurm/settings_check.py
_WITHOUT_CLASSES = ("let_in_partitions", "let_in_accounts", "let_in_qos")


def plugin_settings(config: Config, privileged_uids: Iterable[int]) -> dict[str, str]:
    """By name; ConfigError for a name in a class that the plug-in would misread."""
    kept = node_licenses(config).node_licenses
    return {
        "heartbeat": str(config.daemon.heartbeat),
        "wake": str(config.daemon.run_dir / WAKE_FILE),
        "max_age": str(max(_MIN_AGE, ceil(2 * config.slurm.poll_seconds) + 5)),
        "privileged_uids": ",".join(str(uid) for uid in sorted(set(privileged_uids))),
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


def in_step(config: Config, found: Mapping[str, str]) -> Finding:
    """Whether the plug-in has the configuration's settings; ``found``: the settings in its file."""
    try:
        wanted = plugin_settings(config, ())
    except ConfigError as error:
        return Finding(Level.FAIL, FILE, str(error), "fix the class in the configuration")
    current = plugin_settings(Config(), ()) | dict(found)
    names = {*wanted, *current} - {*_SITES_OWN, *_WITHOUT_CLASSES}
    different = sorted(name for name in names if _compact(wanted.get(name, "")) != _compact(current.get(name, "")))
    if not different:
        return Finding(Level.OK, FILE, "the plug-in has the classes and limits of the configuration")
    what = f"{', '.join(different)}: not as in the configuration; jobs are held, let in or refused by other rules"
    return Finding(Level.WARN, FILE, what, f"omfs config job-submit > {FILE} beside slurm.conf")


def _class(section: ClassSection) -> str:
    fields = {"partition": section.partition, "qos": section.qos, "account": section.account}
    for name, values in fields.items():
        for value in values:
            if re.search(r"[\s,;]", value) or not value.isprintable():
                text = f"class.{name} = {value!r} of {section.name!r}: must be a name"
                raise ConfigError(f"{text} without blanks, commas or semicolons")
    if not section.urgent:
        fields |= {"methods": class_methods(section), "default": section.default}
    parts = [f"{name}={','.join(values)}" for name, values in fields.items() if values]
    return ";".join([*parts, *(["urgent=yes"] if section.urgent else [])])


def _compact(value: str) -> str:
    return re.sub(r"\s", "", value)
