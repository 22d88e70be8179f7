"""Every panel of the dashboards has data from a real Prometheus that scraped an omfsd at work on a real Slurm.

With OMFS_PICTURES=docs/dashboards it works longer, and leaves the pictures of the documentation there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from deploy.grafana.expressions import panel_expressions, usual_variables
from deploy.grafana.prometheus_api import ask, query_range
from deploy.grafana.render import render_all
from tests.conftest import clear
from tests.support.monitoring_files import ROOT, dashboards
from tests.support.omfs_node_jobs import METRICS_PORT, Counting, NodesDaemon, Site, site
from tests.support.prometheus_server import prometheus

pytestmark = pytest.mark.slurm

PICTURES = os.environ.get("OMFS_PICTURES", "")
ROUNDS = 8 if PICTURES else 2
MOST_ROUNDS = 60
OF_TWO = ("omfs_leader", "omfs_lease_epoch", "omfs_takeovers_total")
"""Metrics that one omfsd alone does not have."""
LARGEST = 150_000
"""Bytes of a picture."""


@pytest.fixture(name="site")
def _site() -> Iterator[Site]:
    with site() as made:
        yield made


@pytest.fixture
def omfsd(site: Site) -> Iterator[NodesDaemon]:
    """It swaps jobs out of engines, and requeues the others."""
    directory = Path(tempfile.mkdtemp(prefix="omfsd-"))
    installation = NodesDaemon(site, directory)
    installation.configure(methods=("ve_swap", "requeue"))
    installation.start()
    try:
        yield installation
    finally:
        installation.kill()
        clear(site.slurm)
        shutil.rmtree(directory, ignore_errors=True)


def without_data(server: str, start: float) -> list[str]:
    """The panels that have no value since then, with the expression; but for those of two omfsd."""
    variables, end = usual_variables("bio"), time.time()
    return [
        f"{name}: {panel['title']}: {expression}"
        for name, made in dashboards().items()
        for panel in made["panels"]
        for expression, _ in panel_expressions(panel, variables)
        if expression.partition("{")[0] not in OF_TWO and not query_range(server, expression, start, end, 1.0)
    ]


def borrow(omfsd: NodesDaemon) -> Counting:
    """bio fills the cluster, and has more that waits: an engine of n1, and 28 CPUs that a requeue takes off it. Nothing
    of this fits on the CPU of the job with the engine while that is preempted."""
    counting = omfsd.count(more=["--comment=omfs:method=ve_swap"])
    omfsd.wait_usable(counting)
    jobs = [omfsd.submit("bio", "-n7", method="requeue") for _ in range(5)]
    omfsd.wait_running(*jobs[:4])
    return counting


def one_round(omfsd: NodesDaemon, counting: Counting) -> None:
    """physics takes back what it owns, a real-time job is due at once, and an urgent job needs the engine; all end, and
    the engine is given back."""
    owner = omfsd.submit("physics", "-n7", method="requeue")
    urgent = omfsd.urgent(count=20)
    omfsd.wait_running(owner)
    realtime = omfsd.submit("beamline", "-n7", "--time=5")
    omfsd.wait_running(realtime)
    omfsd.wait_counting(urgent)
    omfsd.let_end(owner, realtime)
    mine = {owner, realtime, urgent.id}
    omfsd.wait_until(lambda: not mine & {job.id for job in omfsd.gateway.jobs()}, "all to end")
    omfsd.wait_counting(counting)
    # Only now does it have its licenses again; requeued jobs may wait on.
    omfsd.wait_until(lambda: str(counting.id) not in {one.get("job") for one in omfsd.under_way()}, "it to run again")


def test_every_panel_has_data_and_can_be_drawn(omfsd: NodesDaemon, tmp_path: Path) -> None:
    start = time.time()
    with prometheus(tmp_path, f"{omfsd.address}:{METRICS_PORT}") as server:
        counting = borrow(omfsd)
        for number in range(MOST_ROUNDS):
            one_round(omfsd, counting)
            missing = without_data(server, start) if number + 1 >= ROUNDS else ["not asked yet"]
            if not missing:
                break
        assert missing == []
        rules = [rule for group in ask(server, "rules")["groups"] for rule in group["rules"]]
        assert len(rules) > 20
        assert [rule for rule in rules if rule["health"] != "ok"] == []
        drawn = render_all(server, ROOT / PICTURES if PICTURES else tmp_path / "pictures", "bio", start, time.time())
    assert {path.stem for path in drawn} == set(dashboards())
    for path in drawn:
        assert 10_000 < path.stat().st_size < LARGEST
        with Image.open(path) as picture:
            assert picture.width > 1000
