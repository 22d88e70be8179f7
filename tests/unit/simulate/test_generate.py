"""Workloads from the model: the published shapes, the load that was asked for, the same from the same seed."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.workload.generate import Model, day_weights, generated, offered_load, typed_limits
from omfs_daemon.simulate.workload.workload import COLUMNS, PreemptMode

MANY = generated(Model(jobs=40_000, cpus=128), seed=1)


@given(st.integers(100, 3000), st.integers(4, 100_000), st.floats(0.05, 3), st.integers(0, 2**32))
def test_what_holds_for_every_model(jobs: int, cpus: int, load: float, seed: int) -> None:
    made = generated(Model(jobs, cpus, load), seed)
    assert len(made) == jobs
    assert offered_load(made, cpus) == pytest.approx(load, rel=0.1)
    assert made.submit[0] == 0
    assert (np.diff(made.submit) >= 0).all()
    assert (made.submit == np.floor(made.submit)).all()
    assert made.cpus.min() >= 1
    assert made.cpus.max() <= cpus
    assert made.run.min() >= 1
    assert (made.limit >= made.run).all()
    assert (made.memory >= 0.5e9 * made.cpus).all()
    assert (made.memory <= 1.25e9 * made.cpus).all()
    assert len(np.unique(made.job_id)) == jobs


def test_the_same_seed_makes_the_same() -> None:
    model = Model(
        500, 240, accounts={"bio": 1, "physics": 2}, urgent=0.1, modes={PreemptMode.KILL: 1, PreemptMode.CHECKPOINT: 1}
    )
    once, again, other = generated(model, 7), generated(model, 7), generated(model, 8)
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(once, name), getattr(again, name))
    assert once.run.tolist() != other.run.tolist()


def test_other_owners_and_classes_leave_sizes_and_times_alone() -> None:
    plain, mixed = generated(Model(500, 240), 7), generated(Model(500, 240, accounts={"a": 1, "b": 1}, urgent=0.5), 7)
    for name in ("submit", "cpus", "run", "limit", "memory"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(mixed, name))


def test_sizes_are_those_of_the_model() -> None:
    powers = 2 ** np.arange(8)
    assert (MANY.cpus == 1).mean() == pytest.approx(0.2927, abs=0.01)
    # A size that is not meant to be a power of two can be one by rounding, so a little more than the published shares.
    assert np.isin(MANY.cpus, powers).mean() == pytest.approx(0.2927 + 0.6686, abs=0.015)
    # Uniform on log2 between 1.2 and 5 for 7 of 8 parallel jobs: few are wider than 2 to the 5.5.
    wide = (MANY.cpus > 2**5.5).mean()
    assert wide == pytest.approx((1 - 0.2927) * 0.125 * 0.75, abs=0.01)


def test_run_times_are_those_of_the_model() -> None:
    serial, wide = MANY.run[MANY.cpus == 1], MANY.run[MANY.cpus == 128]
    # The long kind (shape 639.1, scale 0.0156) lies about exp(9.97) seconds, the short one mostly far below.
    long = 10_000.0
    # Shares of both gamma distributions, cut at 12, above log(10,000): by numerical integration.
    short_above, long_above = 0.046, 0.975
    for runs, short in ((serial, 0.6986 - 0.003), (wide, 0.6986 - 0.003 * 128)):
        expected = short * short_above + (1 - short) * long_above
        assert (runs > long).mean() == pytest.approx(expected, abs=0.03)
    assert MANY.run.max() <= np.exp(12)


def test_few_jobs_come_at_night() -> None:
    weights = day_weights()
    assert weights.mean() == pytest.approx(1)
    assert 24 <= np.argmax(weights) <= 28  # about 13:00
    assert np.argmin(weights) == 9  # before 05:00
    came = np.bincount((MANY.submit % 86400 // 1800).astype(int), minlength=48)
    assert np.corrcoef(came, weights)[0, 1] > 0.97


def test_accounts_urgent_jobs_and_modes_by_their_weights() -> None:
    modes = {PreemptMode.KILL: 3.0, PreemptMode.CHECKPOINT: 1.0}
    made = generated(Model(20_000, 64, accounts={"bio": 1, "physics": 3}, urgent=0.2, modes=modes), seed=3)
    assert made.accounts == ("bio", "physics")
    assert (made.account == 1).mean() == pytest.approx(0.75, abs=0.015)
    assert made.urgent.mean() == pytest.approx(0.2, abs=0.015)
    assert (made.mode[made.urgent] == PreemptMode.NEVER).all()
    assert (made.mode[~made.urgent] == PreemptMode.KILL).mean() == pytest.approx(0.75, abs=0.015)
    assert set(made.mode[~made.urgent].tolist()) == {PreemptMode.KILL, PreemptMode.CHECKPOINT}


def test_limits_are_what_users_type() -> None:
    hour = 3600.0
    asked = np.array([1, 300, 301, hour, hour + 1, 47 * hour, 48 * hour, 48 * hour + 1, 100 * hour])
    typed = [300, 300, 600, hour, 2 * hour, 48 * hour, 48 * hour, 72 * hour, 120 * hour]
    assert typed_limits(asked).tolist() == typed
    assert 1.5 < np.median(MANY.limit / MANY.run) < 10


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"jobs": 1}, "jobs of a generated workload: 1 is not allowed, only from 2 to 10,000,000"),
        ({"cpus": 3}, "cpus of a generated workload: 3 is not allowed, only from 4 to 20,000,000"),
        ({"load": 0.0}, "load of .* 0.0 is not allowed, only from 0.001 to 1000"),
        ({"load": nan}, "load of .* nan is not allowed"),
        ({"urgent": 1.5}, "urgent of .* only a share from 0 to 1"),
        ({"urgent": nan}, "urgent of .* only a share from 0 to 1"),
        ({"accounts": {}}, "accounts of .* only names with weights above 0"),
        ({"accounts": {"a": 0.0}}, "accounts of .* only names with weights above 0"),
        ({"modes": {PreemptMode.KILL: -1.0}}, "modes of .* only modes with weights above 0"),
    ],
)
def test_what_is_wrong_with_a_model_is_reported(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Model(**({"jobs": 10, "cpus": 8} | wrong))  # type: ignore[arg-type]


def test_a_load_that_so_few_jobs_cannot_reach_is_refused() -> None:
    with pytest.raises(ConfigError, match="2 are too few for a load of 1000"):
        generated(Model(2, 1024, load=1000), seed=1)
