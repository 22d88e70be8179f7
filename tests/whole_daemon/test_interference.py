"""People interfere by hand: every state of a job, every act, by root, an Operator, and the job's owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.daemon.effects_runner import AGAIN_AFTER
from omfs_daemon.testing.fake_slurm.people import Actor
from tests.support.interference import ACTS, STATES, settle, wrongs

ADMINISTRATORS = (Actor.ROOT, Actor.OPERATOR)
LOST_WITHOUT_THE_PLUG_IN = {
    # Slurm shows a hold upon ours as it shows ours.
    *((state, actor, "hold") for state in ("held_by_us", "preempted_by_requeue") for actor in ADMINISTRATORS),
    *(("about_to_be_requeued", actor, "hold") for actor in ADMINISTRATORS),
    *((state, actor, "hold") for state in ("exited", "exited_and_held") for actor in ADMINISTRATORS),
    # The hold that comes of omfs-run's exit code looks like its owner's, and takes the place of any other.
    *((state, actor, "uhold") for state in ("exited", "exited_and_held") for actor in ADMINISTRATORS),
    *(("checkpointing", actor, act) for act in ("hold", "uhold") for actor in Actor),
    # Released before the daemon has seen it held, a job looks as if it had just been requeued.
    *(("exited", actor, "release") for actor in ADMINISTRATORS),
}


def wrong_after(directory: Path, plugin: bool, state: str, actor: Actor, act: str) -> list[str]:
    """What is not as somebody wants it, after two observations at which any order could be repeated, and at the end."""
    scene = STATES[state](directory, plugin)
    ACTS[act](scene, actor)
    for seconds in (AGAIN_AFTER, 0.5, 0.5):
        scene.site.step(seconds)
    return [*wrongs(scene), *settle(scene)]


@pytest.mark.parametrize("act", ["hold", "uhold"])
def test_a_hold_lasts_while_a_checkpoint_takes_its_time(tmp_path: Path, act: str) -> None:
    """It is not marked as ours again when an order may be repeated."""
    scene = STATES["checkpointing"](tmp_path, True)
    assert ACTS[act](scene, Actor.ROOT)
    scene.site.run(AGAIN_AFTER + 1)
    assert [*wrongs(scene), *settle(scene)] == []


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("actor", Actor)
@pytest.mark.parametrize("state", STATES)
def test_with_the_plug_in(tmp_path: Path, state: str, actor: Actor, act: str) -> None:
    assert not wrong_after(tmp_path, True, state, actor, act)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("actor", Actor)
@pytest.mark.parametrize("state", [state for state in STATES if state != "held_at_submit"])
def test_without_the_plug_in(tmp_path: Path, state: str, actor: Actor, act: str) -> None:
    """``held_at_submit``: without it, nobody holds jobs there."""
    wrong = wrong_after(tmp_path, False, state, actor, act)
    assert bool(wrong) == ((state, actor, act) in LOST_WITHOUT_THE_PLUG_IN), wrong


def test_a_mark_that_somebody_has_written_over_returns_without_a_release(tmp_path: Path) -> None:
    scene = STATES["held_by_us"](tmp_path, False)
    for _ in range(3):
        ACTS["AdminComment"](scene, Actor.ROOT)
        scene.site.run(3)
        assert scene.hold is Hold.ADMIN and scene.times_started == 0
        assert "before release" not in scene.site.fuse.kinds
    assert not settle(scene)


def test_a_hold_after_a_release_by_hand_is_not_ours(tmp_path: Path) -> None:
    """Without the plug-in, which records both."""
    scene = STATES["held_by_us"](tmp_path, False)
    ACTS["release"](scene, Actor.ROOT)
    scene.site.run(1)
    ACTS["hold"](scene, Actor.ROOT)
    scene.released.clear()
    scene.site.run(30)
    assert scene.hold is Hold.ADMIN and scene.times_started == 0
    assert not wrongs(scene)
