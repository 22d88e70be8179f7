"""Arrays that we have held or released whole, and that Slurm divides afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fake_site import Killed, Site


def held_array(directory: Path, plugin: bool = True) -> tuple[Site, int]:
    """It is beyond what its account is entitled to until the jobs on all nodes end."""
    site = Site(directory, plugin=plugin)
    for _ in range(4):
        site.submit("physics", method="", run_time=40)
    site.run(1)
    array = site.submit("physics", method="", run_time=20, array=(0, 1, 2, 3))
    site.run(2)
    assert site.held() == [f"{array}_[0-3]"]
    return site, array


def cancel_first(site: Site, array: int) -> None:
    divide(site, array)
    (first,) = [record for record in site.slurm.records_of(array) if record.tasks == (0,)]
    site.slurm.cancel(first.id)


def divide(site: Site, array: int) -> None:
    """As an owner does who changes one of the tasks."""
    site.slurm.split(site.slurm.records[array], 0)


@pytest.mark.parametrize("change", [cancel_first, divide])
def test_a_divided_array_whose_mark_is_lost_is_still_ours(tmp_path: Path, change: Callable[[Site, int], None]) -> None:
    site, array = held_array(tmp_path, plugin=False)
    change(site, array)
    site.run(2)
    for record in site.slurm.records_of(array):
        record.admin_comment, record.shown = "statistics", None
    site.rest(400)


@pytest.mark.parametrize("change", [cancel_first, divide])
def test_a_release_that_was_cut_short_is_finished_for_all_tasks(
    tmp_path: Path, change: Callable[[Site, int], None]
) -> None:
    site, array = held_array(tmp_path)
    site.slurm.set_comment(array, "omfs:method=requeue")
    site.gateway.between = _die
    with pytest.raises(Killed):
        site.step()
    site.die()
    assert site.held() == [f"{array}_[0-3]"]
    change(site, array)
    site.gateway.between = lambda: None
    site.start_daemon()
    site.rest(400)


def _die() -> None:
    raise Killed
