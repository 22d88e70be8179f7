"""``omfs where`` on two real clusters under one slurmdbd; in a soak also the eight jobs of Murata et al., Table III."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from omfs_daemon.simulate.experiments.murata.published import SIZES, SUBMITTED
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape, cluster_name
from omfs_daemon.testing.local_slurm.slurmdbd import Accounting
from tests.support.amounts import is_soak
from tests.support.daemons import Daemon
from tests.support.waiting import LIMIT, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("two clusters")]

ONE = Shape(nodes=1, cpus=1)
ACCOUNTS = Accounting(["bio", "physics"], ["root"])
BRIEF = """\
#!/bin/sh
#SBATCH --account=bio --time=5 --output=/dev/null --job-name={name}
#SBATCH --comment=omfs:method=requeue
sleep {seconds}
"""
DIVIDED = 2
"""Times of the paper are divided by it: more, and the second or two that Slurm takes from the end of a job to the next
start would decide."""


class TwoClusters(NamedTuple):
    """``daemon``: beside the first."""

    first: LocalSlurm
    second: LocalSlurm
    daemon: Daemon
    directory: Path

    def script(self, name: str, seconds: float) -> str:
        path = self.directory / f"{name}.sh"
        path.write_text(BRIEF.format(name=name, seconds=seconds))
        return str(path)

    def where(self, script: str) -> dict[str, Any]:
        printed = self.daemon.omfs("where", "--json", "--", "--partition=main", script).stdout
        found = json.loads(printed)
        return {row["cluster"]: row for row in found["rows"]} | {"first": found["rows"][0], "read": found["read"]}

    def where_now(self, script: str) -> dict[str, Any]:
        """By what both clusters are like after this call."""
        now = time.time()
        return wait_until(
            lambda: min((found := self.where(script))["read"].values()) > now and found, "both clusters to be read"
        )

    def submit(self, command: str) -> str:
        """The line that ``omfs where`` prints; on which cluster it went, with its number."""
        words = command.split()
        assert words[0] == "sbatch"
        printed = self.first.command("sbatch", "--parsable", *words[1:]).stdout.strip()
        return printed if ";" in printed else f"{printed};{cluster_name(self.first.directory)}"


@pytest.fixture
def two() -> Iterator[TwoClusters]:
    with tempfile.TemporaryDirectory(prefix="omfs-where-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "omfs").mkdir()
        with (
            LocalSlurm(directory / "a", ONE, accounting=ACCOUNTS, limit=LIMIT) as first,
            LocalSlurm(directory / "b", ONE, accounting=ACCOUNTS, beside=first, limit=LIMIT) as second,
        ):
            daemon = Daemon(first, directory / "omfs")
            # Two CPUs cannot be divided by halves: all of the cluster is bio's.
            daemon.config.write_text(daemon.config.read_text().replace("percent = 50", "percent = 100", 1))
            daemon.config.write_text(daemon.config.read_text().replace("percent = 50", "percent = 0", 1))
            with daemon.config.open("a") as file:
                file.write('[predict]\npredictor = "murata"\n')
            daemon.start()
            try:
                yield TwoClusters(first, second, daemon, directory)
            finally:
                daemon.stop()


def test_a_job_is_sent_to_the_cluster_that_starts_it_first(two: TwoClusters) -> None:
    own, other = (cluster_name(slurm.directory) for slurm in (two.first, two.second))
    script = two.script("train", 600)
    found = two.where(script)
    assert found["first"]["cluster"] == own, "both are idle: the first in order"
    assert found[other]["feasible"]
    one, _, cluster = two.submit(found["first"]["command"]).partition(";")
    assert cluster == own
    two.daemon.wait_running(int(one))
    found = two.where_now(script)
    assert found["first"]["cluster"] == other
    assert found[own]["p50"] > found[other]["p50"], "nothing has ended: it is taken to run on"
    number, _, cluster = two.submit(found["first"]["command"]).partition(";")
    assert cluster == other
    wait_until(
        lambda: two.second.command("squeue", "-h", "-o", "%A %T").stdout.split() == [number, "RUNNING"],
        "the job to run where it was sent",
    )
    two.first.command("scancel", one)
    two.second.command("scancel", number)
    if is_soak():
        two.daemon.wait_rest()
        table_iii(two, own, other)


def table_iii(two: TwoClusters, own: str, other: str) -> None:
    """Eight jobs, of sizes of which one each has ended; the first and the third go to the first cluster."""
    scripts = {size: two.script(size, seconds / DIVIDED) for size, seconds in SIZES.items()}
    known = two.daemon.ask("predict", "score")["learning"]["jobs"]
    for script in scripts.values():
        two.first.command("sbatch", script)
    two.daemon.wait_rest()
    wait_until(lambda: two.daemon.ask("predict", "score")["learning"]["jobs"] == known + 3, "three jobs to be learned")
    wait_until(lambda: not two.second.command("squeue", "-h").stdout, "the other cluster to be idle")
    sent: list[tuple[str, str]] = []
    for size in SUBMITTED:
        first = two.where_now(scripts[size])["first"]
        number, _, cluster = two.submit(first["command"]).partition(";")
        sent.append((number, cluster))
        print(size, cluster == own)
    assert [cluster == own for _, cluster in sent] == [True, False, True, False, False, False, False, False], sent
    two.daemon.wait_rest()
    wait_until(lambda: not two.second.command("squeue", "-h").stdout, "the other cluster to be done")
    for cluster in (own, other):
        mine = [number for number, where in sent if where == cluster]
        printed = two.first.command(
            "sacct", "-X", "-P", "-n", "-M", cluster, "--format=JobIDRaw,Start", "-j", ",".join(mine)
        ).stdout
        starts = dict(line.split("|") for line in printed.splitlines())
        assert sorted(mine, key=lambda number: float(starts[number])) == mine, "they started in order of submission"
