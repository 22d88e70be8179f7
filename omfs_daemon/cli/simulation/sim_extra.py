"""The extras ``[sim]`` and ``[optimum]``, which a head node does not need."""

from __future__ import annotations

from importlib.util import find_spec

from omfs_daemon.errors import ConfigError


def require_simulator(with_slurm: bool = False, what: str = "simulations") -> None:
    """ConfigError that says how to install it, if a needed package of the extra is missing.

    with_slurm: for simulations as an array job; ``what`` needs them.
    """
    needed = ("matplotlib", "numba", "polars", *(("submitit",) if with_slurm else ()))
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{what} need {', '.join(missing)}: pip install 'omfs-daemon[sim]'")


def require_solver() -> None:
    """ConfigError that says how to install it, if the solver of ``omfs optimum`` is missing."""
    missing = [name for name in ("numba", "ortools", "polars") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"an optimum needs {', '.join(missing)}: pip install 'omfs-daemon[optimum]'")
