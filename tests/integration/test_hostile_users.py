"""What an ordinary user tries against the gate and the node licenses of a real Slurm."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.slurm.commands import values
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, SubmitGate
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.conftest import clear
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm

PLUGIN = Path(__file__).parents[2] / "plugins" / "job_submit.lua"
USER = "nobody"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    directory = Path(tempfile.mkdtemp(prefix="omfs-hostile-"))
    settings = {"heartbeat": str(directory / "heartbeat"), "node_licenses": "ve_{node}", "any_licenses": "ve"}
    settings["max_age"] = "3600"  # the heartbeat does not grow old within a test
    shape = Shape(nodes=2, options={"Licenses": "ve_n1:2,ve_n2:2,ve:9999,fluent:5", "RequeueExitHold": "101-109"})
    try:
        with LocalSlurm(directory, shape, gate=SubmitGate(PLUGIN, settings), limit=LIMIT) as slurm:
            yield slurm
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def gate(cluster: LocalSlurm) -> Iterator[LocalSlurm]:
    """The cluster, while the daemon seems to live."""
    (cluster.directory / "heartbeat").write_text(f"{int(time.time())}\n")
    yield cluster
    clear(cluster)


def look(cluster: LocalSlurm, job_id: int) -> Job:
    job = cluster.gateway().find(job_id)
    assert job is not None
    return job


LICENSES = [
    "ve_n1:2",
    "ve_n1:+1",
    "ve_n1:",
    "ve_n1:\t1",
    "ve_n1:\n1",
    "ve_n1:01",
    "ve_n1:4294967297",
    "ve_n1:-4294967295",
]
LICENSES += [
    "ve_n1:42949672961",
    "ve_n1:00000000000000000000000002",
    "ve_n1:0",
    "ve_n1:1,ve_n1:+1",
    "fluent:\n1;ve_n1:2",
]
LICENSES += [
    "ve_n1:1x",
    "ve_n1:0x1",
    "ve_n1:-1",
    "ve_n1*2",
    "ve_n1=2",
    " ve_n1:1",
    "VE_N1:1",
    "ve_n1::1",
    "ve_n1:18446744073709551617",
]


def test_however_licenses_are_written_they_are_counted_as_slurm_counts_them(gate: LocalSlurm) -> None:
    """Else a user has devices that nobody counts, or a count that cannot be put into an order."""
    taken = []
    for licenses in LICENSES:
        arguments = (f"--licenses={licenses}", "--nodelist=n1", "--comment=omfs:method=requeue", "--wrap=sleep 3600")
        done = gate.command("sbatch", "--parsable", *arguments, check=False, uid=USER)
        if done.code:
            assert "Invalid license" in done.stderr
            continue
        job = int(done.stdout.strip().partition(";")[0])
        wait_until(lambda job=job: look(gate, job).state is JobState.RUNNING, f"{licenses!r} to run")
        counted = {row.name: row.used for row in gate.gateway().licenses() if row.used}
        assert dict(look(gate, job).licenses) == counted, repr(licenses)
        values.licenses_text(look(gate, job).licenses)
        taken.append(licenses)
        clear(gate)
    assert {"ve_n1:2", "ve_n1:+1", "ve_n1:\n1", "ve_n1:4294967297"} <= set(taken), "Slurm takes more than one writes"


@pytest.mark.parametrize(
    "licenses", ["ve", "ve:1", "fluent;ve:1", "fluent,,ve", "ve:+1", "ve:\n1", "ve:", "ve:4294967297"]
)
def test_a_device_on_any_node_is_never_had_without_the_gate(gate: LocalSlurm, licenses: str) -> None:
    job = look(gate, gate.submit("sleep 3600", f"--licenses={licenses}", "--comment=omfs:method=requeue", uid=USER))
    assert (job.hold, job.admin_comment) == (Hold.USER, "omfs:gate")


def test_nobody_takes_the_devices_of_a_node_on_which_they_do_not_run(gate: LocalSlurm) -> None:
    """One CPU elsewhere would keep everybody from the devices of all nodes, out of sight of whoever makes room."""
    words = ("--licenses=ve_n1:2", "--comment=omfs:method=requeue")
    for place in ("--nodelist=n2", "--exclude=n1", "--nodes=1"):
        job = look(gate, gate.submit("sleep 3600", *words, place, uid=USER))
        assert (job.hold, job.admin_comment) == (Hold.USER, "omfs:gate"), place
    later = gate.submit("sleep 3600", *words, "--nodelist=n1", "--begin=now+1hour", uid=USER)
    moved = gate.command("scontrol", "update", f"jobid={later}", "nodelist=n2", check=False, uid=USER)
    assert "denied" in moved.stderr
    held = gate.submit("sleep 3600", *words, "--nodelist=n2", "--hold", uid=USER)
    gate.command("scontrol", "release", str(held), check=False, uid=USER)
    assert look(gate, held).hold is not Hold.NONE
    mine = gate.submit("sleep 3600", *words, "--nodelist=n1", uid=USER)
    wait_until(lambda: look(gate, mine).state is JobState.RUNNING, "the job to run on its node")
