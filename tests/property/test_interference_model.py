"""Random people, failures, and crashes on random sites: whatever happens, each job is as somebody wants it to be."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from omfs_daemon.testing.fake_slurm.people import Actor
from tests.support.amounts import is_soak
from tests.support.fake_site import FAULTY
from tests.support.model_checks import check_always, end_all, let_go, settle
from tests.support.model_site import ACCOUNTS, ACTS, METHODS, TREES, Cluster, Event, ModelSite, play

SEQUENCES = 2_500 if is_soak() else 60

CLUSTERS = st.builds(
    Cluster,
    nodes=st.lists(st.sampled_from([(4, 0), (4, 0), (2, 0), (4, 2), (8, 1)]), min_size=2, max_size=3).map(tuple),
    tree=st.sampled_from(sorted(TREES)),
    plugin=st.sampled_from([True, True, True, False]),
    quantum=st.sampled_from([0.0, 3.0]),
    devices=st.booleans(),
    last_resort=st.sampled_from(["", "", "requeue"]),
)
SUBMIT = st.tuples(
    st.just("submit"),
    st.sampled_from(ACCOUNTS),
    st.sampled_from([*METHODS, "requeue", "suspend", "", "urgent", "urgent"]),
    st.sampled_from(
        ["", "", "", "two nodes", "exclusive", "gpu", "array", "device", "after", "begin", "ignores TERM", "no requeue"]
    ),
    st.sampled_from([1, 2, 4, 4]),
    st.integers(1, 40),
)
CROWD = st.tuples(
    st.just("submit"), st.sampled_from(["chem", "bio", "dna"]), st.sampled_from(METHODS), st.just(""),
    st.sampled_from([2, 4]), st.integers(20, 40),
)  # fmt: skip
BY_HAND = st.tuples(st.just("by hand"), st.sampled_from(Actor), st.sampled_from(ACTS), st.integers(0, 20))
WAIT = st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 2.0, 3.0, 9.0]))
NODE = st.tuples(st.sampled_from(["node down", "node up", "drain"]), st.integers(0, 3))
FAULT = st.tuples(
    st.just("fault"),
    st.sampled_from([Fault.DEAD, Fault.HANG, Fault.LATE, Fault.IGNORE, Fault.REFUSE]),
    st.sampled_from([*FAULTY, "jobs", "nodes"]),
    st.integers(1, 3),
)
KILL_OMFSD = st.tuples(st.just("kill omfsd"), st.integers(1, 12))
KILL_SLURMCTLD = st.tuples(
    st.just("kill slurmctld"), st.sampled_from([0.1, 1.0, 3.0, 5.0]), st.lists(st.booleans(), min_size=1, max_size=3)
)
AT = st.tuples(st.just("at"), st.integers(1, 8), st.one_of(BY_HAND, KILL_SLURMCTLD, NODE, SUBMIT))
AWAY = st.tuples(st.just("away"), st.integers(1, 8))
SETTLE = st.just(("settle",))

KINDS = {
    "people": st.one_of(SUBMIT, SUBMIT, SUBMIT, BY_HAND, BY_HAND, AT, WAIT, WAIT, SETTLE),
    "failures": st.one_of(SUBMIT, SUBMIT, SUBMIT, WAIT, WAIT, FAULT, KILL_OMFSD, NODE, AWAY, SETTLE),
    "slurmctld": st.one_of(SUBMIT, SUBMIT, SUBMIT, WAIT, WAIT, KILL_SLURMCTLD, AT, SETTLE),
    "everything": st.one_of(
        SUBMIT, SUBMIT, SUBMIT, SUBMIT, BY_HAND, BY_HAND, AT, WAIT, WAIT, WAIT, FAULT, KILL_OMFSD, NODE, AWAY,
        KILL_SLURMCTLD, SETTLE,
    ),
}  # fmt: skip


def sequences(kind: str) -> st.SearchStrategy[list[Event]]:
    """Jobs that borrow the whole machine, and what comes then."""
    crowd = st.lists(CROWD, min_size=2, max_size=6)
    return st.builds(
        lambda first, then: [*first, ("wait", 2.0), *then], crowd, st.lists(KINDS[kind], min_size=8, max_size=35)
    )


def violations_of(cluster: Cluster, events: Sequence[Event], is_let_go: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        site = ModelSite(Path(directory), cluster)
        play(site, events, lambda: check_always(site), lambda: settle(site))
        if is_let_go:
            let_go(site)
        else:
            end_all(site)
            site.die()


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine does not die, and nobody reads the log."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    monkeypatch.setattr("os.fdatasync", lambda _: None)
    monkeypatch.setattr("os.fsync", lambda _: None)


CROWDED: tuple[Event, ...] = tuple(("submit", "bio", "requeue", "", 4, 40) for _ in range(2))
REGRESSIONS: dict[str, tuple[Cluster, list[Event], bool]] = {
    "an administrator holds a running job that then writes its checkpoint for us": (
        Cluster(),
        [
            *(("submit", "bio", "dmtcp", "", 4, 23) for _ in range(2)),
            ("by hand", Actor.ROOT, "hold", 0),
            ("submit", "chem", "urgent", "two nodes", 4, 12),
            ("wait", 9.0),
        ],
        False,
    ),
    "slurmctld forgets the mark of a job that writes its checkpoint": (
        Cluster(),
        [
            *(("submit", "bio", "dmtcp", "", 4, 30) for _ in range(2)),
            ("submit", "physics", "suspend", "", 1, 36),
            ("wait", 1.0),
            ("kill slurmctld", 3.0, [False]),
        ],
        False,
    ),
    "omfsd dies before it repeats an order that slurmctld has forgotten": (
        Cluster(),
        [
            *CROWDED,
            ("wait", 2.0),
            ("submit", "chem", "urgent", "", 4, 40),
            ("wait", 0.5),
            ("kill slurmctld", 1.0, [True]),
            ("kill omfsd", 2),
            ("wait", 1.0),
        ],
        False,
    ),
    "slurmctld forgets that a job has written its checkpoint and left": (
        Cluster(),
        [
            *(("submit", "bio", "dmtcp", "", 4, 40) for _ in range(2)),
            ("wait", 2.0),
            ("submit", "chem", "urgent", "", 4, 20),
            ("wait", 2.5),
            ("kill slurmctld", 1.1, [True]),
        ],
        False,
    ),
    "slurmctld forgets that a job was resumed, and omfsd has told its owner": (
        Cluster(),
        [
            *(("submit", "bio", "suspend", "", 4, 26) for _ in range(2)),
            ("submit", "physics", "dmtcp", "", 1, 12),
            ("settle",),
            ("settle",),
            ("at", 6, ("kill slurmctld", 0.1, [True])),
            ("wait", 2.0),
        ],
        False,
    ),
    "a job is preempted by a checkpoint whose mark tells of a hold that Slurm has forgotten": (
        Cluster(),
        [
            *(("submit", "bio", "dmtcp", "", 4, 60) for _ in range(2)),
            ("wait", 2.0),
            ("submit", "chem", "urgent", "two nodes", 4, 3),
            ("wait", 18.0),
            *(("by hand", Actor.ROOT, act, 0) for act in ("suspend", "hold")),
            ("wait", 1.0),
            ("by hand", Actor.ROOT, "resume", 0),
            ("wait", 1.0),
            ("submit", "chem", "urgent", "two nodes", 4, 3),
            ("wait", 9.0),
        ],
        False,
    ),
    "slurmctld forgets a checkpointed job, whose release is then refused": (
        Cluster(((2, 0), (4, 2)), plugin=False),
        [
            ("submit", "chem", "dmtcp", "", 4, 20),
            ("submit", "rna", "urgent", "gpu", 2, 10),
            ("wait", 0.5),
            ("at", 6, ("kill slurmctld", 5.0, [False, True, True])),
            ("wait", 2.0),
        ],
        False,
    ),
    "a release is repeated, and fails again before it is sent": (
        Cluster(),
        [
            *(("submit", "chem", "requeue", "", 2, 20) for _ in range(4)),
            ("wait", 2.0),
            ("by hand", Actor.ROOT, "hold", 0),
            *(("submit", "bio", "requeue", "", cpus, 1) for cpus in (1, 1, 4)),
            ("fault", Fault.DEAD, "end_hold", 2),
            ("submit", "bio", "requeue", "", 1, 1),
            ("wait", 0.5),
            ("wait", 9.0),
        ],
        False,
    ),
    "slurmctld forgets that a job was unpinned, which it needed long ago": (
        Cluster(),
        [
            ("submit", "chem", "dmtcp", "", 4, 20),
            ("submit", "chem", "requeue", "", 2, 20),
            ("submit", "bio", "requeue", "", 2, 20),
            ("wait", 2.0),
            *(
                ("submit", "bio", method, "", cpus, 1)
                for method, cpus in [
                    *[("requeue", 1)] * 2,
                    *[("suspend", 1)] * 3,
                    ("suspend", 2),
                    *[("requeue", 1)] * 3,
                ]
            ),
            ("submit", "physics", "requeue", "", 4, 34),
            ("settle",),
            ("submit", "bio", "urgent", "", 4, 25),
            ("submit", "bio", "requeue", "", 1, 1),
            ("settle",),
            *(event for wait in (3.0, 3.0, 9.0) for event in (("wait", wait), ("submit", "bio", "requeue", "", 1, 1))),
            ("settle",),
            ("submit", "bio", "requeue", "", 1, 1),
            ("kill slurmctld", 0.1, [False]),
            ("submit", "bio", "requeue", "", 1, 1),
            ("settle",),
            ("submit", "bio", "urgent", "", 4, 1),
            ("kill slurmctld", 0.1, [False]),
            ("submit", "bio", "requeue", "", 1, 1),
            ("settle",),
            ("kill slurmctld", 3.0, [False]),
            ("submit", "bio", "requeue", "", 1, 1),
        ],
        True,
    ),
    "slurmctld forgets a suspension after omfsd has died": (
        Cluster(((4, 0), (2, 0), (2, 0)), devices=True),
        [
            ("submit", "bio", "suspend", "", 4, 29),
            ("submit", "chem", "suspend", "", 2, 33),
            ("submit", "chem", "requeue", "", 2, 20),
            ("submit", "chem", "suspend", "", 4, 23),
            ("submit", "bio", "requeue", "", 2, 32),
            ("submit", "chem", "requeue", "", 2, 32),
            ("wait", 2.5),
            ("submit", "bio", "requeue", "", 1, 26),
            ("submit", "physics", "requeue", "", 4, 7),
            ("settle",),
            ("submit", "bio", "requeue", "", 1, 33),
            *[("settle",)] * 3,
            ("wait", 0.5),
            ("settle",),
            ("at", 1, ("submit", "bio", "requeue", "", 1, 4)),
            ("submit", "chem", "urgent", "array", 2, 9),
            ("wait", 2.0),
            ("kill slurmctld", 5.0, [True, True, True]),
            ("at", 7, ("submit", "rna", "suspend", "array", 4, 21)),
            ("kill slurmctld", 5.0, [False, True, True]),
            ("wait", 3.0),
            ("kill slurmctld", 5.0, [True]),
        ],
        True,
    ),
    "an administrator holds a running job right before omfsd marks it": (
        Cluster(((8, 1), (2, 0)), "uneven"),
        [
            ("submit", "bio", "dmtcp", "", 4, 23),
            ("at", 4, ("by hand", Actor.ROOT, "uhold", 0)),
            ("submit", "rna", "suspend", "", 4, 30),
            ("submit", "bio", "urgent", "two nodes", 4, 20),
            ("wait", 3.0),
        ],
        False,
    ),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_what_was_found(name: str) -> None:
    violations_of(*REGRESSIONS[name])


@pytest.mark.parametrize("kind", KINDS)
def test_each_job_is_as_somebody_wants_it(kind: str) -> None:
    @settings(max_examples=SEQUENCES)
    @given(CLUSTERS, sequences(kind), st.booleans())
    def play_one(cluster: Cluster, events: list[Event], is_let_go: bool) -> None:
        violations_of(cluster, events, is_let_go)

    play_one()
