"""Limits that Slurm enforces and the plan does not see: nobody is preempted in vain twice, and nobody starves."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.amounts import is_soak
from tests.support.limited_site import ACCOUNTS, LENDER, USERS, LimitedCluster, LimitedSite, Sight, end, play
from tests.support.model_site import Event

SEQUENCES = 2_500 if is_soak() else 40

CLUSTERS = st.builds(
    LimitedCluster,
    nodes=st.sampled_from([1, 2, 3]),
    sight=st.sampled_from(Sight),
    tier=st.sampled_from([1, 1, 2]),
    may_ask=st.booleans(),
)
LIMITS = ("qos cpus", "qos jobs", "user cpus", "user jobs", "account cpus", "account jobs", "own jobs", "time",
          "reservation", "licenses", "resources", "resources", "resources", "node", "node")  # fmt: skip
SUBMIT = st.tuples(
    st.just("submit"),
    st.sampled_from(ACCOUNTS),
    st.sampled_from(["requeue", "requeue", "", "urgent"]),
    st.sampled_from(["", "high", "high", "array", "license"]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(USERS),
    st.integers(5, 40),
)
CROWD = st.sampled_from([1, 2, 4]).map(
    lambda cpus: [("submit", LENDER, "requeue", "", cpus, USERS[0], 3000) for _ in range(12 // cpus)]
)
"""They fill all nodes."""

LIMIT = st.tuples(st.just("limit"), st.sampled_from(LIMITS), st.sampled_from([0, 1, 2, 3]))
LIFT = st.tuples(st.just("lift"), st.sampled_from(LIMITS))
KILL_OMFSD = st.tuples(st.just("kill omfsd"), st.integers(1, 30))
WAIT = st.tuples(st.just("wait"), st.sampled_from([1.0, 3.0, 10.0, 40.0]))
EVENTS = st.builds(
    lambda first, limits, then: [*first, *limits, ("wait", 2.0), *then],
    CROWD,
    st.lists(LIMIT, min_size=1, max_size=3),
    st.lists(st.one_of(SUBMIT, SUBMIT, SUBMIT, LIMIT, LIFT, KILL_OMFSD, WAIT, WAIT), min_size=3, max_size=20),
)


def violations_of(cluster: LimitedCluster, events: list[Event]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        site = LimitedSite(Path(directory), cluster)
        play(site, events)
        end(site)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine does not die, and nobody reads the log."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    monkeypatch.setattr("os.fdatasync", lambda _: None)
    monkeypatch.setattr("os.fsync", lambda _: None)


REGRESSIONS: dict[str, tuple[LimitedCluster, list[Event]]] = {
    "nodes are reserved after a preemption in vain": (
        LimitedCluster(2, Sight.ALL),
        [
            *(("submit", LENDER, "requeue", "", 4, "bob", 3000) for _ in range(2)),
            ("wait", 2.0),
            ("limit", "resources", 0),
            ("submit", "bio", "requeue", "", 2, "ann", 5),
            ("wait", 40.0),
            ("limit", "reservation", 1),
            ("wait", 40.0),
        ],
    ),
    "a non-preemptible job that was tried in vain fills its account's share": (
        LimitedCluster(1, Sight.ALL, may_ask=False),
        [
            *(("submit", LENDER, "requeue", "", cpus, "bob", 3000) for cpus in (1, 1, 2)),
            ("wait", 2.0),
            ("submit", "bio", "", "", 2, "ann", 5),
            ("limit", "resources", 1),
            ("wait", 10.0),
            ("submit", "bio", "", "license", 1, "ann", 21),
            ("lift", "resources"),
        ],
    ),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_what_was_found(name: str) -> None:
    violations_of(*REGRESSIONS[name])


@settings(max_examples=SEQUENCES)
@given(CLUSTERS, EVENTS)
def test_nobody_is_preempted_in_vain_twice_and_nobody_starves(cluster: LimitedCluster, events: list[Event]) -> None:
    violations_of(cluster, events)
