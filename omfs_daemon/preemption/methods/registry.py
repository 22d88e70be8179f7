"""The installed methods by name: those of this package, and a site's own by entry point.

A site's package names a :class:`~omfs_daemon.preemption.methods.base.PreemptMethod` object under the entry point group
``omfs.methods``. One that cannot be loaded is logged and left out: a broken plug-in must not keep the daemon from
releasing jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

import structlog

from omfs_daemon.cluster.preempt_methods import MethodSpeed, MethodTraits
from omfs_daemon.preemption.methods.base import PreemptMethod
from omfs_daemon.preemption.methods.checkpoint import APPLICATION, CRIU, DMTCP
from omfs_daemon.preemption.methods.requeue import RequeueMethod
from omfs_daemon.preemption.methods.suspend import SuspendMethod
from omfs_daemon.preemption.methods.swap_out import PAGEOUT, VE_SWAP

GROUP = "omfs.methods"
_REQUIRED = ("prepare", "preempt", "finish", "progress", "why_failed", "keep_preempted", "resume")

# Their speeds are as measured on small machines; a site measures its own (`omfs methods fit`) and writes them into its
# configuration.
BUILT_IN: tuple[PreemptMethod, ...] = (RequeueMethod(), SuspendMethod(), DMTCP, CRIU, APPLICATION, PAGEOUT, VE_SWAP)

BUILT_IN_TRAITS: Mapping[str, MethodTraits] = {method.traits.name: method.traits for method in BUILT_IN}


@cache
def installed() -> Mapping[str, PreemptMethod]:
    """By name. What is installed does not change while the process runs."""
    return load_methods(entry_points(group=GROUP))


def load_methods(found: Iterable[EntryPoint]) -> Mapping[str, PreemptMethod]:
    """The built-in methods, and those of the entry points that can be used."""
    log = structlog.get_logger("methods")
    methods = {method.traits.name: method for method in BUILT_IN}
    for entry in found:
        try:
            method = _checked(entry, methods)
        except (Exception, SystemExit) as error:  # whatever a site's code does, sys.exit() included
            log.error("method_not_loaded", entry_point=entry.name, package=_package(entry), error=str(error))
        else:
            methods[method.traits.name] = method
    return methods


def _checked(entry: EntryPoint, known: Mapping[str, PreemptMethod]) -> PreemptMethod:
    method = entry.load()
    missing = [name for name in _REQUIRED if not callable(getattr(method, name, None))]
    if missing:
        raise TypeError(f"it has no {', '.join(missing)}")
    if not isinstance(getattr(method, "traits", None), MethodTraits) or not isinstance(
        getattr(method, "speed", None), MethodSpeed
    ):
        raise TypeError("its traits must be a MethodTraits and its speed a MethodSpeed")
    name = method.traits.name
    if name != entry.name:
        raise ValueError(f"its name is {name!r}, but the entry point's is {entry.name!r}")
    if name in known:
        raise ValueError(f"there is a method {name!r} already")
    if not name.isidentifier() or not name.islower():
        raise ValueError(f"{name!r}: a name is made of a-z, 0-9 and _")
    checked: PreemptMethod = method
    return checked


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "?"
