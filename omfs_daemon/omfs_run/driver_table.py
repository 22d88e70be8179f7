"""The ways of checkpointing that omfs-run knows, by name. Loaded when used: most jobs need one or none."""

import importlib
from typing import Optional, Sequence

from omfs_daemon.omfs_run.drivers.application import Application
from omfs_daemon.omfs_run.drivers.driver import CannotStart
from omfs_daemon.omfs_run.drivers.driver import Driver

_TABLE = {
    "dmtcp": ("omfs_daemon.omfs_run.drivers.dmtcp.dmtcp_driver", "Dmtcp"),
    "criu": ("omfs_daemon.omfs_run.drivers.criu.criu_driver", "Criu"),
}
NAMES = (*_TABLE, Application.name)


def load(name: str) -> Driver:
    """The driver of that name, except ``application``, which needs arguments; CannotStart if it is not there."""
    module, attribute = _TABLE[name]
    try:
        driver = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise CannotStart("tool_missing", "method {}: {}".format(name, error)) from None
    assert isinstance(driver, Driver)  # noqa: S101
    return driver


def first_known(names: Sequence[str]) -> Optional[str]:
    """The first method that is one of ours; others (requeue, suspend) need no launcher."""
    return next((name for name in names if name in NAMES), None)
