"""The methods that exist, by name."""

from __future__ import annotations

from omfs_daemon.methods.base import StopMethod
from omfs_daemon.methods.requeue import Requeue
from omfs_daemon.methods.suspend import Suspend

STOP_METHODS: dict[str, StopMethod] = {method.traits.name: method for method in (Requeue(), Suspend())}
