"""Training of ``gbm``: quantiles of the logarithm of the run time, by LightGBM (extra ``[predict]``).

Never in the daemon's own process: it takes seconds. The same rows give the same trees.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.errors import ConfigError
from omfs_daemon.predict.boosted_trees import BoostedTrees, trees_of_dumps

Floats = NDArray[np.float64]

SHARES = (0.1, 0.5, 0.9)
LEAST_JOBS, MOST_JOBS = 200, 20_000
"""Ended jobs: of fewer nothing is trained, and of more the latest are taken."""
_ROUNDS = 60
_SETTINGS = {
    "objective": "quantile",
    "learning_rate": 0.1,
    "num_leaves": 15,
    "max_depth": 6,
    "max_bin": 63,
    "min_data_in_leaf": 20,
    "use_missing": False,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "seed": 1,
    "verbose": -1,
}


def lightgbm_is_installed() -> bool:
    return find_spec("lightgbm") is not None


def require_lightgbm() -> None:
    """ConfigError if it is not installed."""
    if not lightgbm_is_installed():
        raise ConfigError("predictor gbm: needs LightGBM, which is not installed: pip install 'omfs-daemon[predict]'")


def trained(values: Floats, targets: Floats, shares: tuple[float, ...] = SHARES) -> BoostedTrees:
    """Trees for each share, from the inputs of jobs (a row each) and their targets (``run_inputs``); ConfigError if
    LightGBM is not installed, or cannot be loaded."""
    require_lightgbm()
    try:
        import lightgbm
    except (ImportError, OSError) as error:
        raise ConfigError(f"predictor gbm: LightGBM cannot be loaded: {error}") from None
    found = []
    for share in shares:
        rows = lightgbm.Dataset(values, targets, params=_SETTINGS, free_raw_data=False)
        booster = lightgbm.train({**_SETTINGS, "alpha": share}, rows, num_boost_round=_ROUNDS)
        trees = [one["tree_structure"] for one in booster.dump_model()["tree_info"]]
        found.append(
            [*trees, *[{"leaf_value": 0.0}] * (_ROUNDS - len(trees))]
        )  # it stops where nothing is left to learn
    return trees_of_dumps(found, len(values))


def training_rows(ended: Floats, until: float) -> NDArray[np.int64]:
    """Which jobs are trained on: the latest of those that ended before then, by their ends (nan: not), in that order;
    none if they are too few."""
    before = np.flatnonzero(ended < until)
    if len(before) < LEAST_JOBS:
        return before[:0]
    return before[np.argsort(ended[before], kind="stable")][-MOST_JOBS:]
