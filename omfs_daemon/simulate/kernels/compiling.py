"""How kernels are compiled: once after an installation, then loaded from numba's cache."""

from __future__ import annotations

from numba import njit

kernel = njit(cache=True)
"""A function that Python calls."""

part = njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""A function that only compiled functions call; without its way in from Python it compiles a third faster."""
