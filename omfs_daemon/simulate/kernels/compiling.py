"""How kernels are compiled: once after an installation, by one process at a time, then loaded from a cache.

Where no cache can be written, each process compiles them for itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache
from numba.extending import register_jitable

from omfs_daemon.policy.rules import checkpoint_laws, laws, slowdown_laws
from omfs_daemon.predict import run_inputs, similar
from omfs_daemon.simulate.engine.preemption_delay import preemption_seconds

Function = TypeVar("Function", bound=Callable[..., Any])

Records = Any
"""A structured array: passed to a compiled function, it costs a fraction of what an array for each field does."""

Record = Any
"""One of these. Passed to a compiled function it costs nothing, while each array, also in a tuple, may cost two atomic
operations: too much for what loops call."""

_HERE = Path(__file__).parent
_njit: Any = numba.njit  # its types do not know all of its options
_typeof: Any = numba.typeof
_FunctionCache: Any = FunctionCache


def kernel(function: Function) -> Function:
    """Compile a function that only Python calls.

    The first call with arguments of new types compiles, or loads from the cache, while it holds a lock: processes that
    need the same kernel at the same time wait for the first one and then load what it has compiled.
    """
    compiled = _cached(_njit()(function))
    known: set[tuple[Any, ...]] = set()

    @wraps(function)
    def call(*arguments: Any) -> Any:
        types = tuple(_typeof(argument) for argument in arguments)
        if types not in known:
            with _compile_lock():
                compiled.compile(types)
            known.add(types)
        return compiled(*arguments)

    return cast(Function, call)


def part(function: Function) -> Function:
    """Compile a function that only compiled ones call; without a wrapper for Python this takes a third less time."""
    return cast(Function, _cached(_njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)))


def shared_part(function: Function) -> Function:
    """Compile a function that both Python and compiled functions call."""
    return cast(Function, _cached(_njit()(function)))


class _Cache(_FunctionCache):  # type: ignore[misc]
    """Of one function. What cannot be read is compiled, and what cannot be saved, on a full disk for instance, is
    compiled again by the next process."""

    def load_overload(self, *arguments: Any) -> Any:
        with suppress(OSError):
            return super().load_overload(*arguments)
        return None

    def save_overload(self, *arguments: Any) -> None:
        with suppress(OSError):
            super().save_overload(*arguments)


def _cached(compiled: Any) -> Any:
    """With a cache, if there is a directory for one."""
    with suppress(RuntimeError):
        compiled._cache = _Cache(compiled.py_func)
    return compiled


# The daemon's own rules are compiled as they stand.
for rule in (
    laws.room,
    laws.admits_non_preemptible,
    laws.reaches_at_most,
    laws.all_over,
    laws.add_cpus,
    laws.takes_fairly,
    laws.takes_from_borrowers,
    laws.latest_mature_start,
    laws.matures_at,
    laws.counts_in_hour,
    preemption_seconds,
    slowdown_laws.waiting_slowdown,
    slowdown_laws.running_slowdown,
    slowdown_laws.slowdown_factor,
    slowdown_laws.remaining_factor,
    checkpoint_laws.checkpoint_factor,
    checkpoint_laws.victim_cost,
    similar.most_accurate,
    run_inputs.describe_job,
    run_inputs.describe_latest,
    run_inputs.seconds_of,
):
    register_jitable(rule)
# It divides by estimates, which are never 0; without a check for that, several are computed at once.
register_jitable(error_model="numpy")(checkpoint_laws.wfp_score)


def _fingerprint() -> str:
    """Of all compiled sources. Numba itself checks only whether a function's own file has changed, not those of the
    functions that it calls, and would run old code after an upgrade."""
    sources = [
        *sorted(_HERE.rglob("*.py")),
        *sorted((_HERE.parent / "engine").glob("preemption_*.py")),
        *sorted((Path(str(laws.__file__)).parent.parent / "replan").glob("*.py")),
        *(Path(str(module.__file__)) for module in (laws, slowdown_laws, checkpoint_laws, similar, run_inputs)),
    ]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def _cache_directory() -> Path:
    """Beside the kernels, or in the user's cache directory if that is not writable; removes what older versions left
    there."""
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


@contextmanager
def _compile_lock() -> Iterator[None]:
    """Held by one process of all that share the cache; by each where the cache cannot be locked."""
    lock = _locked(Path(_config.CACHE_DIR) / "lock")
    try:
        yield
    finally:
        if lock is not None:
            lock.close()


def _locked(path: Path) -> IO[bytes] | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        file.close()
        return None
    return file
