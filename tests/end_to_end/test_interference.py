"""People interfere by hand on a real Slurm with the submit plug-in, as in ``tests/whole_daemon/test_interference.py``:
a sample of the cells, all at once on one cluster. Slurm must make of each act what the fake makes of it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from omfs_daemon.cluster.holds import admin_comment_of, is_held
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.testing.fake_slurm.people import Actor
from tests.support.amounts import is_soak
from tests.support.interference import ACTS, STATES, wrongs
from tests.support.marked_jobs import GONE
from tests.support.real_interference import REAL_STATES, RealScene, SharedCluster, shared_cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

AT_ONCE, TOGETHER = 60, 10
DIFFERS_AFTER = 15.0
"""Seconds after which Slurm has made of an act what it will: whatever is not as on the fake then, differs."""


class Cell(NamedTuple):
    state: str
    actor: Actor
    act: str


def cells() -> list[Cell]:
    """All in a soak; else one by one through the states, the acts, and, shifted with each turn, the actors."""
    states, acts, actors = list(STATES), list(ACTS), list(Actor)
    if is_soak():
        return [Cell(state, actor, act) for act in acts for actor in actors for state in states]
    turns = [(number, number + number // len(acts)) for number in range(AT_ONCE)]
    return [
        Cell(states[number % len(states)], actors[shifted % len(actors)], acts[number % len(acts)])
        for number, shifted in turns
    ]


ROUNDS = [cells()[begin : begin + AT_ONCE] for begin in range(0, len(cells()), AT_ONCE)]


def test_the_sample_has_every_state_act_and_actor() -> None:
    assert list(STATES) == list(REAL_STATES)
    for number, everything in enumerate((STATES, Actor, ACTS)):
        assert {cell[number] for cell in cells()} == set(everything)


@pytest.mark.parametrize("number", range(len(ROUNDS)))
def test_people_interfere_on_a_real_slurm(tmp_path: Path, number: int) -> None:
    chosen = ROUNDS[number]
    with shared_cluster(len(chosen)) as cluster:
        found = play(cluster, chosen, tmp_path)
    assert {" ".join(cell): wrong for cell, wrong in zip(chosen, found, strict=True) if wrong} == {}


def play(cluster: SharedCluster, chosen: list[Cell], directory: Path) -> list[list[str]]:
    """What is wrong in each cell."""
    scenes = [RealScene(site) for site in cluster.sites]
    steps = [REAL_STATES[cell.state](scene) for cell, scene in zip(chosen, scenes, strict=True)]
    cluster.on.beat(GONE)
    cluster.advance(steps, "jobs to run")
    cluster.continue_daemon()
    cluster.advance(steps, "the daemon")
    cluster.stop_daemon()
    cluster.on.beat()
    cluster.advance(steps, "the states")
    expected = [as_the_fake(directory / str(number), cell) for number, cell in enumerate(chosen)]
    found = act_and_compare(cluster, chosen, scenes, expected)
    for scene in scenes:
        scene.site.unflag("loses", *scene.site.submitted)
        scene.site.flag("written", *scene.writes)
    cluster.continue_daemon()
    cluster.wait_two_observations()
    cluster.look()
    for wrong, scene in zip(found, scenes, strict=True):
        wrong += wrongs(scene)
    cluster.advance([scene.settle(wrong) for wrong, scene in zip(found, scenes, strict=True)], "all jobs to end")
    return found


# -- real and fake ----------------------------------------------------------------------------------------------------


def as_the_fake(directory: Path, cell: Cell) -> dict[str, Any]:
    """What the fake makes of the act, a second later, in which Slurm has gone on and the daemon has not."""
    directory.mkdir()
    scene = STATES[cell.state](directory, True)
    taken = ACTS[cell.act](scene, cell.actor)
    scene.site.now += 1
    return seen(taken, scene.site.job(scene.job))


def seen(taken: bool, job: Job) -> dict[str, Any]:
    return {
        "taken": taken,
        "state": job.state,
        "held": is_held(job),
        "hold": job.hold,
        "word": admin_comment_of(job).word,
        "account": job.account,
        "QOS": "low" if job.qos == "low" else "",
        "partitions": job.request.partitions,
        "nodes": len(job.request.required_nodes),
        "licenses": job.licenses,
        "comment": [word for word in job.comment.split() if not word.startswith("omfs:run=")],
    }


def act_and_compare(
    cluster: SharedCluster, chosen: list[Cell], scenes: list[RealScene], expected: list[dict[str, Any]]
) -> list[list[str]]:
    """What Slurm makes of each act otherwise than the fake; it may take its time, and go on once it was the same."""
    taken: list[bool] = []
    found: list[list[str]] = []

    def is_same() -> bool:
        cluster.look()
        for number, (was_taken, scene) in enumerate(zip(taken, scenes, strict=False)):
            if number == len(found) or found[number]:
                real, wanted = seen(was_taken, scene.site.job(scene.job)), expected[number]
                differs = [name for name in wanted if real[name] != wanted[name]]
                found[number : number + 1] = [[f"{name}: {real[name]}, on the fake {wanted[name]}" for name in differs]]
        return not any(found)

    for cell, scene in zip(chosen, scenes, strict=True):
        taken.append(ACTS[cell.act](scene, cell.actor))
        if len(taken) % TOGETHER == 0:
            is_same()  # before a job that was requeued starts again
    with suppress(AssertionError):
        wait_until(is_same, "Slurm to be as the fake", DIFFERS_AFTER)
    return found
