"""Small workloads that are full of corner cases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from omfs_daemon.simulate.engine.conventions import Conventions, UserLimits
from omfs_daemon.simulate.workload.workload import Workload, workload

ACCOUNTS = ("bio", "physics", "maths")


@dataclass(frozen=True)
class Case:
    """A workload, the CPUs of the machine that it is for, and the conventions to replay it under."""

    workload: Workload
    cpus: int
    conventions: Conventions


def random_case(seed: int) -> Case:
    """Up to 40 jobs on 1 to 16 CPUs: ties in time, bursts, jobs of no length, limits above, at and below the run time
    (below by days, too), none at all, one-CPU jobs, jobs of the whole machine and wider; times whole or not."""
    draw = np.random.default_rng(seed)
    count, cpus = int(draw.integers(1, 41)), int(draw.integers(1, 17))
    gaps = draw.choice([0, 0, 1, 2, 5, 20], count) * draw.choice([1, 1, 1, 10])
    run = draw.choice([0, 1, 2, 3, 5, 8, 20, 50], count) * draw.choice([1.0, 7.0, 100.0, 40_000.0])
    factor = draw.choice([0.1, 0.5, 1.0, 1.0, 1.5, 4.0, np.inf], count)
    limit = np.where(run > 0, run * np.where(np.isinf(factor), 1, factor), draw.choice([0.0, 1.0, 30.0], count))
    limit[np.isinf(factor)] = np.inf
    submit = np.cumsum(gaps).astype(np.float64)
    if draw.random() < 0.3:
        submit, run = submit + draw.random(count).round(2), run * 1.1
    wide = draw.choice([1, 1, 2, 3, max(cpus // 2, 1), cpus - 1 or 1, cpus, cpus + 1], count)
    kill = bool(draw.random() < 0.5)
    return Case(
        workload(
            f"random {seed}",
            submit,
            wide,
            run,
            accounts=ACCOUNTS,
            limit=limit,
            account=draw.integers(0, len(ACCOUNTS), count),
            urgent=draw.random(count) < draw.choice([0.0, 0.2, 0.6]),
        ),
        cpus,
        Conventions(estimates=UserLimits() if draw.random() < 0.7 else None, kill=kill),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """The same corners, put together by Hypothesis, which makes a failing workload small."""
    cpus = draw(st.integers(1, 12))
    seconds = st.integers(0, 30).map(float)
    jobs = draw(
        st.lists(
            st.tuples(
                seconds,
                st.integers(1, cpus + 1),
                seconds,
                st.one_of(seconds, st.just(np.inf)),
                st.integers(0, len(ACCOUNTS) - 1),
                st.booleans(),
            ),
            min_size=1,
            max_size=25,
        )
    )
    submit, wide, run, limit, account, urgent = (np.array(column) for column in zip(*jobs, strict=True))
    return Case(
        workload("drawn", submit, wide, run, accounts=ACCOUNTS, limit=limit, account=account, urgent=urgent),
        cpus,
        Conventions(estimates=draw(st.sampled_from([None, UserLimits()])), kill=draw(st.booleans())),
    )
