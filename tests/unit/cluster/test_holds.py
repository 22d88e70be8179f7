"""Who holds a waiting job, and whether it could start."""

from __future__ import annotations

from math import inf

import pytest

from omfs_daemon.cluster.holds import GATE_MARK, HOLD_MARK, PREEMPTED_MARK, could_start, is_held_by_us, ready_from
from omfs_daemon.cluster.jobs import Hold
from tests.support.policy_builders import waiting


@pytest.mark.parametrize("mark", [HOLD_MARK, GATE_MARK, PREEMPTED_MARK])
@pytest.mark.parametrize("hold", [Hold.USER, Hold.ADMIN])
def test_a_hold_with_our_mark_is_ours_and_another_is_not(mark: str, hold: Hold) -> None:
    assert is_held_by_us(waiting(1, hold=hold, admin_comment=f"{mark} since"))
    assert not is_held_by_us(waiting(1, hold=hold, admin_comment="site: ask the desk"))
    assert not is_held_by_us(waiting(1, hold=Hold.NONE, admin_comment=mark))


def test_an_owner_may_hold_a_preempted_job() -> None:
    owners = waiting(1, hold=Hold.USER, reason="JobHeldUser", admin_comment=PREEMPTED_MARK)
    assert not is_held_by_us(owners)
    by_requeue = waiting(1, hold=Hold.USER, reason="job_requeued_in_held_state", admin_comment=PREEMPTED_MARK)
    assert is_held_by_us(by_requeue)


def test_what_omfs_run_could_not_restart_is_held_for_its_owner() -> None:
    report = {"comment": "omfs:run=0:held:why=bad_image", "restarts": 1, "special_exit": True}
    assert not is_held_by_us(waiting(1, hold=Hold.USER, admin_comment=PREEMPTED_MARK, **report))
    stopped = report | {"comment": "omfs:run=0:stopped:bytes=1"}
    assert is_held_by_us(waiting(1, hold=Hold.USER, admin_comment=PREEMPTED_MARK, **stopped))


@pytest.mark.parametrize(
    ("fields", "moment"),
    [
        ({}, -inf),
        ({"reason": "Resources"}, -inf),
        ({"reason": "Dependency"}, inf),
        ({"reason": "QOSMaxCpuPerUserLimit"}, inf),
        ({"eligible": 50.0}, 50.0),
        ({"hold": Hold.USER}, inf),
        ({"hold": Hold.ADMIN, "admin_comment": HOLD_MARK, "reason": "JobHeldAdmin"}, -inf),
        ({"hold": Hold.ADMIN, "admin_comment": HOLD_MARK, "eligible": 50.0}, 50.0),
    ],
)
def test_from_when_only_nodes_or_a_hold_of_ours_keep_it_waiting(fields: dict[str, object], moment: float) -> None:
    job = waiting(1, **fields)
    assert ready_from(job) == moment
    assert could_start(job, 50.0) is (moment <= 50.0)
    assert could_start(job, 49.0) is (moment <= 49.0)
