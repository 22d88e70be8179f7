"""How kernels are compiled: once after an installation, then loaded from numba's cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

Records = Any
"""A structured array: passed to a compiled function, it costs a fraction of what an array for each field does."""

_njit: Any = numba.njit  # its types do not know all of its options


def kernel(function: Function) -> Function:
    """Compile a function that Python calls."""
    compiled: Function = _njit(cache=True)(function)
    return compiled


def part(function: Function) -> Function:
    """Compile a function that only compiled ones call; without its way in from Python it takes a third less time."""
    compiled: Function = _njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    return compiled
