"""What a daemon does about a lease that it sees; each answer with its reason."""

from __future__ import annotations

import pytest

from omfs_daemon.daemon.leadership.lease import (
    CONTROLLER_AWAY,
    EXPIRY,
    FRESH,
    Controller,
    Lease,
    LeaseView,
    LeaseWatch,
    Stand,
    is_fresh,
    judge_lease,
    may_keep,
    read_names,
)

HERE, THERE, NOWHERE = Controller("ctl1", True), Controller("ctl2"), Controller()
SEEN = LeaseView(Lease(7, 12), 7)
COPIED = LeaseView(Lease(9, None), 9, others=(Lease(7, 12),))


@pytest.mark.parametrize(
    ("view", "age", "controller", "unfit", "stand", "why"),
    [
        (LeaseView(None, 0), 0.0, HERE, "", Stand.TAKE, "epoch 1"),
        (SEEN, EXPIRY - 0.1, HERE, "", Stand.STAND_BY, "omfsd on ctl9 is active"),
        (SEEN, EXPIRY, HERE, "", Stand.TAKE, "epoch 8"),
        (SEEN, EXPIRY, THERE, "", Stand.STAND_BY, "no omfsd is active, and the active slurmctld is on ctl2"),
        (SEEN, EXPIRY, NOWHERE, "", Stand.STAND_BY, "no omfsd is active, and no slurmctld answers"),
        (SEEN, EXPIRY, HERE, "too old", Stand.REFUSE, "too old"),
        (LeaseView(Lease(7, None), 7), 0.0, HERE, "", Stand.TAKE, "epoch 8"),
        (LeaseView(Lease(7, None), 9), 0.0, HERE, "", Stand.TAKE, "epoch 10"),
        (COPIED, 0.0, HERE, "", Stand.STAND_BY, "omfsd on ctl9 is active"),
        (COPIED, EXPIRY, HERE, "", Stand.TAKE, "epoch 10"),
        (LeaseView(None, 7), 1.0, HERE, "", Stand.STAND_BY, "the lease is missing: waiting whether its holder lives"),
        (LeaseView(None, 7), EXPIRY, HERE, "", Stand.TAKE, "epoch 8"),
        (SEEN._replace(odd="lease.x"), EXPIRY, HERE, "", Stand.REFUSE, "lease.x: is no lease of omfsd's: remove it"),
    ],
)
def test_what_a_daemon_does_about_a_lease(
    view: LeaseView, age: float, controller: Controller, unfit: str, stand: Stand, why: str
) -> None:
    assert judge_lease(LeaseWatch(view, 1000.0), 1000.0 + age, controller, "omfsd on ctl9 is active", unfit) == (
        stand,
        why,
    )


def test_a_renewal_begins_the_wait_anew() -> None:
    watch = LeaseWatch(SEEN, 1000.0)
    assert watch.after(SEEN, 1009.0).since == 1000.0
    assert watch.after(LeaseView(Lease(7, 13), 7), 1009.0).since == 1009.0
    copied = LeaseWatch(LeaseView(Lease(7, 99), 7, others=(Lease(7, 12),)), 1000.0)
    assert copied.after(LeaseView(Lease(7, 99), 7, others=(Lease(7, 13),)), 1009.0).since == 1009.0


def test_a_lease_is_fresh_for_less_than_others_wait() -> None:
    assert is_fresh(1000.0, 1000.0) and is_fresh(1000.0, 999.99 + FRESH)
    assert not is_fresh(1000.0, 1000.0 + FRESH) and not is_fresh(1000.0, 999.9)
    assert FRESH < EXPIRY


def test_a_holder_goes_on_while_slurmctld_restarts() -> None:
    assert may_keep(1000.0, 999.9 + CONTROLLER_AWAY)
    assert not may_keep(1000.0, 1000.0 + CONTROLLER_AWAY)


@pytest.mark.parametrize(
    ("names", "view"),
    [
        ([], LeaseView(None, 0)),
        (["lease.7.12", "holder.7", "state.7", ".holder.aa"], LeaseView(Lease(7, 12), 7)),
        (["lease.7.12", "lease.7.13"], LeaseView(Lease(7, 13), 7, others=(Lease(7, 12),))),
        (["lease.7.free", "lease.7.3"], LeaseView(Lease(7, 3), 7, others=(Lease(7, None),))),
        (["lease.10.0", "lease.9.99"], LeaseView(Lease(10, 0), 10, others=(Lease(9, 99),))),
        (["lease.7.free", "holder.9"], LeaseView(Lease(7, None), 9)),
        (["state.4"], LeaseView(None, 4)),
        (["lease.7.12", "lease.7.12~"], LeaseView(Lease(7, 12), 7, "lease.7.12~")),
        (["lease.07.1"], LeaseView(None, 0, "lease.07.1")),
        (["lease.7.-1", "lease"], LeaseView(None, 0, "lease.7.-1")),
        (["holder.1234567", "something"], LeaseView(None, 0)),
    ],
)
def test_names_of_files_are_read(names: list[str], view: LeaseView) -> None:
    assert read_names(names) == view


def test_a_name_is_read_as_it_is_written() -> None:
    for lease in (Lease(1), Lease(999_999, 10), Lease(3).renewed, Lease(3).given_up):
        assert read_names([lease.name]).lease == lease
