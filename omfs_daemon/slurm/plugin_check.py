"""Check the settings of job_submit.lua against those that the configuration asks for; each finding has a fix. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from omfs_daemon.slurm.settings_check import Finding, Level
from omfs_daemon.slurm.submit_plugin import SETTINGS_FILE

# Checked in settings_check.py.
_SITES_OWN = ("heartbeat", "max_age", "daemon_uid", "privileged_uids", "operator_uids")
_WITHOUT_CLASSES = ("let_in_accounts", "let_in_partitions", "let_in_qos")
_CLASS = re.compile(r"class_[1-9]\d*")


def misread_class(error: Exception) -> Finding:
    """The configuration has a class that the plug-in would misread."""
    return Finding(Level.FAIL, SETTINGS_FILE, str(error), "fix the class in the configuration")


def plugin_settings_findings(
    wanted: Mapping[str, str], default: Mapping[str, str], found: Mapping[str, str]
) -> list[Finding]:
    """Whether the plug-in has the settings ``wanted``; ``found`` are those in its file, ``default`` those without."""
    allowed = {*default, *_WITHOUT_CLASSES}
    unknown = sorted(name for name in found if name not in allowed and not _CLASS.fullmatch(name))
    current = {**default, **found}
    names = {*wanted, *current} - {*_SITES_OWN, *_WITHOUT_CLASSES, *unknown}
    different = sorted(name for name in names if _compact(wanted.get(name, "")) != _compact(current.get(name, "")))
    findings = [_comparison(different)]
    if unknown:
        what = f"{', '.join(unknown)}: unknown, and ignored by the plug-in"
        fix = f"remove it from {SETTINGS_FILE}; allowed: {', '.join(sorted(allowed))}, class_1, class_2, ..."
        findings.append(Finding(Level.WARN, SETTINGS_FILE, what, fix))
    return findings


def _comparison(different: list[str]) -> Finding:
    if not different:
        return Finding(Level.OK, SETTINGS_FILE, "the plug-in has the classes and limits of the configuration")
    what = f"{', '.join(different)}: not as in the configuration; jobs are held, let in or refused by other rules"
    return Finding(Level.WARN, SETTINGS_FILE, what, f"omfs config job-submit > {SETTINGS_FILE} beside slurm.conf")


def _compact(value: str) -> str:
    return re.sub(r"\s", "", value)
