"""The methods that are installed, by name: those of this package, and a site's own by entry point.

A site's package names an instance of :class:`~omfs_daemon.preemption.methods.base.StopMethod` under the entry point group
``omfs.methods``. One that cannot be loaded is logged and left out: a broken plug-in must not keep the daemon from
letting jobs go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

import structlog

from omfs_daemon.cluster.preempt_methods import APPLICATION
from omfs_daemon.cluster.preempt_methods import CRIU
from omfs_daemon.cluster.preempt_methods import DMTCP
from omfs_daemon.cluster.preempt_methods import PAGEOUT
from omfs_daemon.cluster.preempt_methods import VE_SWAP
from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.preempt_methods import Pace
from omfs_daemon.preemption.methods.base import StopMethod
from omfs_daemon.preemption.methods.checkpoint import Launched
from omfs_daemon.preemption.methods.swap_out import OnJobsNodes
from omfs_daemon.preemption.methods.requeue import Requeue
from omfs_daemon.preemption.methods.suspend import Suspend

GROUP = "omfs.methods"
_GIVES = ("prepare", "stop", "finish", "progress", "why_failed", "keep_stopped", "bring_back")
_MB, _GB = 1e6, 1e9

# Seconds and bytes per second as measured on small machines (docs/methods.md); a site measures its own
# (`omfs methods fit`) and writes them into its configuration.
BUILT_IN: tuple[StopMethod, ...] = (
    Requeue(),
    Suspend(),
    Launched(DMTCP, Pace(1.0, 400 * _MB, 7.0, 400 * _MB)),
    Launched(CRIU, Pace(0.5, 400 * _MB, 7.0, 600 * _MB)),
    Launched(APPLICATION, Pace(5.0, 400 * _MB, 10.0, 400 * _MB)),
    OnJobsNodes(PAGEOUT, Pace(0.3, 1.0 * _GB, 0.3, 0.3 * _GB)),
    OnJobsNodes(VE_SWAP, Pace(0.3, 6.0 * _GB, 0.3, 6.0 * _GB)),
)


@cache
def installed() -> Mapping[str, StopMethod]:
    """By name. What is installed does not change while we run."""
    return load(entry_points(group=GROUP))


def load(found: Iterable[EntryPoint]) -> Mapping[str, StopMethod]:
    """The built-in ones, and those of the entry points that can be used."""
    log = structlog.get_logger("methods")
    methods = {method.traits.name: method for method in BUILT_IN}
    for entry in found:
        try:
            method = _checked(entry, methods)
        except (Exception, SystemExit) as error:  # whatever a site's code does wrong, sys.exit() included
            log.error("method left out", entry_point=entry.name, package=_package(entry), error=str(error))
        else:
            methods[method.traits.name] = method
    return methods


def _checked(entry: EntryPoint, known: Mapping[str, StopMethod]) -> StopMethod:
    method = entry.load()
    missing = [name for name in _GIVES if not callable(getattr(method, name, None))]
    if missing:
        raise TypeError(f"it has no {', '.join(missing)}")
    if not isinstance(getattr(method, "traits", None), Method) or not isinstance(getattr(method, "pace", None), Pace):
        raise TypeError("its traits must be a Method and its pace a Pace")
    name = method.traits.name
    if name != entry.name:
        raise ValueError(f"its name is {name!r}, but the entry point's is {entry.name!r}")
    if name in known:
        raise ValueError(f"there is a method {name!r} already")
    if not name.isidentifier() or not name.islower():
        raise ValueError(f"{name!r}: a name is made of a-z, 0-9 and _")
    checked: StopMethod = method
    return checked


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "?"
