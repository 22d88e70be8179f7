"""Types of arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Cores = NDArray[np.int32]
"""Of a machine: at most ``bounds.CPUS``; half the memory of ``Ints``."""
SmallInts = NDArray[np.int8]
Bools = NDArray[np.bool_]
