"""The extra ``[sim]``, which a head node does not need and so does not install."""

from __future__ import annotations

from importlib.util import find_spec

from omfs_daemon.errors import ConfigError


def require_simulator() -> None:
    """ConfigError that says how to install it, if anything of the extra is missing."""
    missing = [name for name in ("matplotlib", "numba", "polars") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"simulations need {', '.join(missing)}: pip install 'omfs-daemon[sim]'")
