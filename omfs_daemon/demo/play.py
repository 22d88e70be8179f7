"""``omfs demo``: plays the story on a stage, takes everything down, and says whether it came true."""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Iterable
from pathlib import Path

from omfs_daemon.terminal.output import clean
from omfs_daemon.terminal.output import show
from omfs_daemon.demo.cleanup import Interrupted
from omfs_daemon.demo.cleanup import Interrupts
from omfs_daemon.demo.cleanup import end_left
from omfs_daemon.demo.cleanup import make_directory
from omfs_daemon.demo.fake_cluster import FakeStage
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurmError
from omfs_daemon.demo.real_cluster import RealStage
from omfs_daemon.demo.script import Play
from omfs_daemon.demo.demo_cluster import Stage
from omfs_daemon.demo.summary import summary
from omfs_daemon.demo.screen import view
from omfs_daemon.errors import OmfsError


def main(fake: bool) -> int:
    """Play the story, on the fake Slurm if ``fake`` or if there can be no real one; 0 if it came true, else 1.

    The last line is ``demo: N jobs, N stopped, N lost``.
    """
    shown = view()
    play = Play(shown)
    with Interrupts() as interrupts:
        directory = make_directory()
        stages: list[Stage] = [FakeStage(directory)] if fake else [RealStage(directory), FakeStage(directory)]
        bug: Exception | None = None
        try:
            with interrupts.heard():
                stage = _first_that_starts(stages, directory)
                with shown:
                    play.perform(stage)
        except (Interrupted, OmfsError) as error:
            play.broken.append(f"the story broke off: {error}")
        except Exception as error:
            play.broken.append(f"the story broke off: {error!r}")
            bug = error
        finally:
            failed = _take_down(stages, directory)  # before anything is printed, which may fail, too
    if not failed:
        print("Everything is taken down, nothing is left running.", flush=True)
    if bug is not None:
        traceback.print_exception(bug)
    play.broken += failed
    _tell(play)
    print(f"demo: {len(play.parts)} jobs, {len(play.stopped)} stopped, {play.lost} lost", flush=True)
    return 1 if play.broken else 0


def _first_that_starts(stages: Iterable[Stage], directory: Path) -> Stage:
    """Bring a stage up; where there can be no real Slurm, the fake one instead."""
    for stage in stages:
        print(f"Bringing up {stage.name}, in {directory}", flush=True)
        try:
            stage.start()
            return stage
        except LocalSlurmError as error:
            if os.geteuid() == 0 and shutil.which("slurmctld"):
                raise  # a Slurm that should have come up
            print(f"No real Slurm here, so the fake one: {clean(str(error))}", flush=True)
    raise AssertionError("the fake can always be brought up")


def _take_down(stages: Iterable[Stage], directory: Path) -> list[str]:
    """End everything and remove the directory; what did not go."""
    failed = []
    for stage in stages:
        try:
            stage.close()
        except Exception as error:
            failed.append(f"{stage.name} cannot be taken down: {error}")
    if left := end_left(directory):
        failed.append(f"processes left running: {', '.join(left)}")
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        failed.append(f"{directory} cannot be removed")
    return failed


def _tell(play: Play) -> None:
    """The summary, then whether it came true; if not, a line for each expectation that was broken."""
    show("", *summary(play), "")
    if play.broken:
        print("The story did not come true:")
        for text in play.broken:
            print(f"  {clean(text)}")
    else:
        print("The story came true.")
