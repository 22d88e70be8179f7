"""How long predictions of run times take: 100,000 jobs are learned, then 10,000 others predicted, no two of them alike.

Prints a table and writes ``build/bench/predictors.json``: a list with, for each predictor, its ``name``, and processor
seconds: ``learn_s``, ``first_s`` (10,000 predictions with nothing worked out yet), ``again_s`` (the same, median of
rounds), ``one_s`` (one alone, mean of 500); and ``ratio``, of ``again_s`` to that of ``last2``, the simplest rule that
is used in practice (Tsafrir et al. 2007), in the same process. ``gbm`` is trained on 5,000 of the jobs.

    python -m benchmarks.predictors
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.plan import timed
from omfs_daemon.daemon.garbage import collect_garbage_seldom
from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.gbm import GbmPredictor
from omfs_daemon.predict.gbm_training import trained
from omfs_daemon.predict.prediction import HowEnded, RunTimePredictor
from omfs_daemon.predict.predictor_table import new_predictor
from omfs_daemon.predict.run_inputs import target_of

LEARNED, PREDICTED, TRAINED, ALONE, ROUNDS = 100_000, 10_000, 5_000, 500, 5
NAMES = ("last2", "ladder", "similar", "gbm")
OUTPUT = Path("build/bench/predictors.json")


def some_jobs(count: int, seed: int) -> list[JobFeatures]:
    """Of 200 users, each with jobs of 50 names, in 7 sizes, and with 3 limits."""
    draw = np.random.default_rng(seed)
    sizes, limits = draw.choice([1, 2, 4, 8, 16, 32, 64], count), draw.choice([600, 3600, 86400], count)
    return [
        JobFeatures(
            user=f"u{user}",
            account=f"a{user % 20}",
            partition="main",
            command=str(number),
            name=f"n{name}",
            cpus=int(cpus),
            limit=float(limit),
        )
        for number, (user, name, cpus, limit) in enumerate(
            zip(draw.integers(200, size=count), draw.integers(50, size=count), sizes, limits, strict=True)
        )
    ]


def measure(name: str, ended: Sequence[JobFeatures], runs: Sequence[float]) -> dict[str, Any]:
    predictor, asked = new_predictor(name), some_jobs(PREDICTED, 2)
    learn, _ = timed(lambda: _learn(predictor, ended, runs))
    if isinstance(predictor, GbmPredictor):
        known = [predictor.inputs(job) for job in ended[:TRAINED]]
        targets = [target_of(one.guess, run) for one, run in zip(known, runs, strict=False)]
        predictor.use(trained(np.array([one.values for one in known]), np.array(targets)))
        _learn(predictor, ended[:2000], runs)  # so that not all is worked out already
    first, _ = timed(lambda: predictor.predict_all(asked))
    again = median(timed(lambda: predictor.predict_all(asked))[0] for _ in range(ROUNDS))
    alone, _ = timed(lambda: [predictor.predict(job) for job in asked[:ALONE]])
    return {"name": name, "learn_s": learn, "first_s": first, "again_s": again, "one_s": alone / ALONE}


def _learn(predictor: RunTimePredictor, ended: Sequence[JobFeatures], runs: Sequence[float]) -> None:
    for job, run in zip(ended, runs, strict=False):
        predictor.ended(job, run, HowEnded.BY_ITSELF)


def main() -> int:
    collect_garbage_seldom()
    ended = some_jobs(LEARNED, 1)
    lengths = np.random.default_rng(3).lognormal(7, 1.5, LEARNED).tolist()
    runs = [min(run, job.limit) for run, job in zip(lengths, ended, strict=True)]
    rows = [measure(name, ended, runs) for name in NAMES]
    print(f"{'':8} {'learn':>8} {'first':>8} {'again':>8} {'alone':>8} {'ratio':>8}")
    for row in rows:
        row["ratio"] = round(row["again_s"] / rows[0]["again_s"], 2)
        each = [f"{row[key] / PREDICTED * 1e6:5.1f} us" for key in ("first_s", "again_s")]
        alone = f"{row['one_s'] * 1e6:5.0f} us"
        print(f"{row['name']:8} {row['learn_s']:6.2f} s {' '.join(each)} {alone} {row['ratio']:7.1f}x")
    print("first, again, alone: processor time of one prediction; ratio: again to that of last2")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written to {OUTPUT}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
