"""All manual pages."""

from __future__ import annotations

from datetime import date

from deploy.manual.commands import command_names, command_page, omfs_page, omfsd_page
from deploy.manual.configuration import configuration_page
from deploy.manual.omfs_run import omfs_run_page


def all_pages(day: date) -> dict[str, str]:
    """By file name, such as ``omfs-status.1``."""
    pages = {f"omfs-{name}.1": command_page(name, day) for name in command_names()}
    return pages | {
        "omfs.1": omfs_page(day),
        "omfs-run.1": omfs_run_page(day),
        "omfs.toml.5": configuration_page(day),
        "omfsd.8": omfsd_page(day),
    }
