"""``omfs config job-submit``: the settings of job_submit.lua, made from the configuration so that nobody keeps the
site's classes in two places; and whether those that are there still say the same (``omfs check``).

The names and their form: the head of ``plugins/job_submit.lua``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import ceil

from omfs_daemon.config.schema import Config
from omfs_daemon.config.build import books
from omfs_daemon.config.schema import ClassSection
from omfs_daemon.config.schema import NAME
from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.rules.classes import UNMATCHED
from omfs_daemon.slurm.settings_check import Finding
from omfs_daemon.slurm.settings_check import Level

FILE = "omfs_job_submit.conf"
_HEAD = "# Written by `omfs config job-submit`; write it anew when the configuration has changed.\n"
_LEAST_AGE = 10  # seconds; the plug-in's default
_SITES_OWN = ("heartbeat", "max_age", "privileged_uids")  # looked at by findings of their own (slurm/advice.py)


def plugin_settings(config: Config, privileged_uids: Iterable[int]) -> dict[str, str]:
    """By name; ConfigError for a class whose names the plug-in could not tell apart."""
    kept = books(config).books
    return {
        "heartbeat": str(config.daemon.heartbeat),
        "wake": str(config.daemon.run_dir / NAME),
        "max_age": str(max(_LEAST_AGE, ceil(2 * config.slurm.poll_seconds) + 5)),
        "privileged_uids": ",".join(str(uid) for uid in sorted(set(privileged_uids))),
        "methods": ",".join(UNMATCHED.methods),
        "min_runtime_max": str(int(config.policy.min_runtime_max_seconds)),
        "books": ",".join(book.licence for book in kept),
        "any_licenses": ",".join(book.any for book in kept if book.any),
        **{f"class_{number}": _class(section) for number, section in enumerate(config.classes, start=1)},
    }


def as_text(settings: Mapping[str, str]) -> str:
    """The file."""
    lines = [f"{name} = {value}\n".replace(" \n", "\n") for name, value in settings.items()]
    return "".join([_HEAD, *lines])


def in_step(config: Config, found: Mapping[str, str]) -> Finding:
    """Whether the plug-in has the configuration's settings; ``found``: those of its file, else its defaults."""
    try:
        wanted = plugin_settings(config, ())
    except ConfigError as error:
        return Finding(Level.FAIL, FILE, str(error), "mend the class in the configuration")
    there = plugin_settings(Config(), ()) | dict(found)
    names = {name for name in {*wanted, *there} - {*_SITES_OWN} if name in wanted or name.startswith("class_")}
    other = sorted(name for name in names if _plain(wanted.get(name, "")) != _plain(there.get(name, "")))
    if not other:
        return Finding(Level.OK, FILE, "the plug-in has the classes and limits of the configuration")
    what = f"{', '.join(other)}: not as in the configuration; jobs are held, let in or refused by another rule"
    return Finding(Level.WARN, FILE, what, f"omfs config job-submit > {FILE} beside slurm.conf")


def _class(section: ClassSection) -> str:
    fields = {"partition": section.partition, "qos": section.qos, "account": section.account}
    for name, words in fields.items():
        for word in words:
            if re.search(r"[\s,;]", word) or not word.isprintable():
                raise ConfigError(
                    f"class.{name} = {word!r} of {section.name!r}: must be a name without blanks, commas and semicolons"
                )
    if not section.urgent:
        fields |= {"methods": section.methods, "default": section.default}
    parts = [f"{name}={','.join(words)}" for name, words in fields.items() if words]
    return ";".join([*parts, *(["urgent=yes"] if section.urgent else [])])


def _plain(value: str) -> str:
    return re.sub(r"\s", "", value)
