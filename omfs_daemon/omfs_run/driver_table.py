"""Checkpoint drivers by name. Loaded when used: most jobs need one or none."""

import importlib
from typing import Optional, Sequence

from omfs_daemon.omfs_run.drivers.application import Application
from omfs_daemon.omfs_run.drivers.driver import CannotStart, Driver

_TABLE = {
    "dmtcp": ("omfs_daemon.omfs_run.drivers.dmtcp.dmtcp_driver", "Dmtcp"),
    "criu": ("omfs_daemon.omfs_run.drivers.criu.criu_driver", "Criu"),
}
NAMES = (*_TABLE, Application.name)
ONE_NODE = frozenset(_TABLE)  # tools that see only the processes of their own node


def load_driver(name: str) -> Driver:
    """Any driver but ``application``, which needs arguments; CannotStart if it cannot be loaded."""
    module, attribute = _TABLE[name]
    try:
        driver = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise CannotStart("tool_missing", "method {}: {}".format(name, error)) from None
    assert isinstance(driver, Driver)  # noqa: S101
    return driver


def first_known(names: Sequence[str], nodes: int = 1) -> Optional[str]:
    """The first method that has a driver, if there is one that works on so many nodes; requeue, suspend need none."""
    known = [name for name in names if name in NAMES]
    suitable = [name for name in known if nodes == 1 or name not in ONE_NODE]
    return next(iter(suitable or known), None)
