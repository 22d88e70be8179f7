"""Runs the demo on a cluster, takes everything down, and reports whether all expectations were met."""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Iterable
from pathlib import Path

from omfs_daemon.demo.cleanup import Interrupted, Interrupts, end_left, make_directory
from omfs_daemon.demo.demo_cluster import DemoCluster
from omfs_daemon.demo.fake_cluster import FakeDemoCluster
from omfs_daemon.demo.real_cluster import RealDemoCluster
from omfs_daemon.demo.screen import open_screen
from omfs_daemon.demo.script import DemoScript
from omfs_daemon.demo.summary import summary_tables
from omfs_daemon.errors import OmfsError
from omfs_daemon.terminal.output import clean, show
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurmError


def play_demo(fake: bool) -> int:
    """Run the demo, on the fake Slurm if ``fake`` or if no real one can run; 0 if all expectations were met, else 1.

    The last line is ``demo: N jobs, N preempted, N lost``.
    """
    screen = open_screen()
    script = DemoScript(screen)
    with Interrupts() as interrupts:
        directory = make_directory()
        clusters: list[DemoCluster] = (
            [FakeDemoCluster(directory)] if fake else [RealDemoCluster(directory), FakeDemoCluster(directory)]
        )
        bug: Exception | None = None
        try:
            with interrupts.enabled():
                cluster = _first_that_starts(clusters, directory)
                with screen:
                    script.run(cluster)
        except (Interrupted, OmfsError) as error:
            script.failures.append(f"the demo was aborted: {error}")
        except Exception as error:
            script.failures.append(f"the demo was aborted: {error!r}")
            bug = error
        finally:
            failed = _take_down(clusters, directory)  # before anything is printed, which may fail, too
    if not failed:
        print("Everything is taken down; nothing is left running.", flush=True)
    if bug is not None:
        traceback.print_exception(bug)
    script.failures += failed
    _print_summary(script)
    print(f"demo: {len(script.submitted)} jobs, {len(script.preempted)} preempted, {script.lost} lost", flush=True)
    return 1 if script.failures else 0


def _first_that_starts(clusters: Iterable[DemoCluster], directory: Path) -> DemoCluster:
    """Start a cluster; where no real Slurm can run, the fake one."""
    for cluster in clusters:
        print(f"Starting {cluster.name}, in {directory}", flush=True)
        try:
            cluster.start()
            return cluster
        except LocalSlurmError as error:
            if os.geteuid() == 0 and shutil.which("slurmctld"):
                raise  # a Slurm that should have come up
            print(f"No real Slurm here, using the fake one: {clean(str(error))}", flush=True)
    raise AssertionError("the fake always starts")


def _take_down(clusters: Iterable[DemoCluster], directory: Path) -> list[str]:
    """End everything and remove the directory; what could not be."""
    failed = []
    for cluster in clusters:
        try:
            cluster.close()
        except Exception as error:
            failed.append(f"{cluster.name} could not be taken down: {error}")
    if left := end_left(directory):
        failed.append(f"processes left running: {', '.join(left)}")
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        failed.append(f"{directory} cannot be removed")
    return failed


def _print_summary(script: DemoScript) -> None:
    """The summary, then whether all expectations were met; if not, a line for each that was not."""
    show("", *summary_tables(script), "")
    if script.failures:
        print("The demo failed:")
        for text in script.failures:
            print(f"  {clean(text)}")
    else:
        print("The demo succeeded.")
