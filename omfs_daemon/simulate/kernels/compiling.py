"""How kernels are compiled: once after an installation, then loaded from a cache."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.extending import register_jitable

from omfs_daemon.policy.rules import laws
from omfs_daemon.simulate.engine import preemption_delay as set_costs

Function = TypeVar("Function", bound=Callable[..., Any])

Records = Any
"""A structured array: passed to a compiled function, it costs a fraction of what an array for each field does."""

_HERE = Path(__file__).parent
_njit: Any = numba.njit  # its types do not know all of its options


def kernel(function: Function) -> Function:
    """Compile a function that Python calls."""
    compiled: Function = _njit(cache=True)(function)
    return compiled


def part(function: Function) -> Function:
    """Compile a function that only compiled ones call; without its way in from Python it takes a third less time."""
    compiled: Function = _njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    return compiled


# The daemon's own rules are compiled as they stand.
for rule in (
    laws.room,
    laws.admits_fixed,
    laws.reaches_at_most,
    laws.all_over,
    laws.add,
    laws.takes_fairly,
    laws.takes_from_borrowers,
    laws.latest_mature_start,
    laws.matures_at,
    laws.counts_in_hour,
    set_costs.set_seconds,
):
    register_jitable(rule)


def _fingerprint() -> str:
    """Of all that is compiled. Numba itself asks only whether a function's own file has changed, not those of the
    functions that it calls, and would run old code after an upgrade."""
    sources = [*sorted(_HERE.rglob("*.py")), *sorted((_HERE.parent / "engine").glob("preemption_*.py")), Path(laws.__file__)]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def _cache_directory() -> Path:
    """Beside the kernels, or where the user keeps such things if that is not his to write; what older versions left
    there is taken away."""
    beside = _HERE / "__pycache__"
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "omfs"
    base = beside if os.access(beside if beside.exists() else _HERE, os.W_OK) else own
    directory = base / f"compiled-{_fingerprint()}"
    for old in base.glob("compiled-*"):
        if old != directory:
            shutil.rmtree(old, ignore_errors=True)
    return directory


_config: Any = numba.config
_config.CACHE_DIR = _config.CACHE_DIR or str(_cache_directory())
