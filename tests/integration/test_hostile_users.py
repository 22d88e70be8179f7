"""What an ordinary user tries against the gate, the node licenses, and the daemon of a real Slurm."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omfs_daemon.cluster.holds import is_held_by_us
from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.slurm.commands import values
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, SubmitGate
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.conftest import clear
from tests.support.amounts import is_soak
from tests.support.comments import HELD
from tests.support.daemons import Daemon
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
    assert (job.hold, job.admin_comment) == (Hold.USER, "omfs:held:0")


def test_nobody_takes_the_devices_of_a_node_on_which_they_do_not_run(gate: LocalSlurm) -> None:
    """One CPU elsewhere would keep everybody from the devices of all nodes, out of sight of whoever makes room."""
    words = ("--licenses=ve_n1:2", "--comment=omfs:method=requeue")
    for place in ("--nodelist=n2", "--exclude=n1", "--nodes=1"):
        job = look(gate, gate.submit("sleep 3600", *words, place, uid=USER))
        assert (job.hold, job.admin_comment) == (Hold.USER, "omfs:held:0"), place
    later = gate.submit("sleep 3600", *words, "--nodelist=n1", "--begin=now+1hour", uid=USER)
    moved = gate.command("scontrol", "update", f"jobid={later}", "nodelist=n2", check=False, uid=USER)
    assert "denied" in moved.stderr
    held = gate.submit("sleep 3600", *words, "--nodelist=n2", "--hold", uid=USER)
    gate.command("scontrol", "release", str(held), check=False, uid=USER)
    assert look(gate, held).hold is not Hold.NONE
    mine = gate.submit("sleep 3600", *words, "--nodelist=n1", uid=USER)
    wait_until(lambda: look(gate, mine).state is JobState.RUNNING, "the job to run on its node")


# -- one user's odd job, and the daemon for all others ----------------------------------------------------------------

LARGE = {"MaxArraySize": "100001", "MaxJobCount": "200000"}
REGULAR = ("-n1", "-o", "/dev/null")


@pytest.fixture(scope="module")
def large() -> Iterator[LocalSlurm]:
    """A cluster that takes large arrays, without a gate: as if the gate slept."""
    directory = Path(tempfile.mkdtemp(prefix="omfs-odd-"))
    try:
        with LocalSlurm(directory, Shape(nodes=2, gres={"n1": "gpu:2", "n2": "gpu:2"}, options=LARGE)) as slurm:
            yield slurm
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def daemon(large: LocalSlurm) -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="omfsd-") as directory:
        found = Daemon(large, Path(directory))
        yield found
        found.kill()
        clear(large)


def odd_job(cluster: LocalSlurm, *options: str) -> int:
    return cluster.submit("sleep 600", "--hold", *REGULAR, *options, uid=USER)


def updated(*words: str) -> Callable[[LocalSlurm], int]:
    """A held job that its owner then changes as far as Slurm lets them."""

    def make(cluster: LocalSlurm) -> int:
        job = odd_job(cluster, *(["--gres=gpu:1"] if words[0].startswith("gres") else []))
        for word in words:
            cluster.command("scontrol", "update", f"jobid={job}", word, check=False, uid=USER)
        return job

    return make


ODD: dict[str, Callable[[LocalSlurm], int]] = {
    "one EiB": lambda cluster: odd_job(cluster, "-N3", "-n3", "--mem=1048576T"),
    "60,000 EiB": lambda cluster: odd_job(cluster, "-n60000", "--mem-per-cpu=1048576T"),
    "an empty gres": updated("gres=gpu:1,"),
    "two empty gres": updated("gres=,gpu:1,"),
    "gres of the job": updated("TresPerJob=gres:gpu:1"),
    "gres of the tasks": updated("TresPerTask=gres:gpu:1"),
    "gres of the sockets": updated("gres=gpu:1", "TresPerSocket=gpu:1,"),
    "4294967290 tasks": updated("gres=gpu:18446744073709551610", "numtasks=4294967290"),
    "two parts": lambda cluster: odd_job(cluster, ":", "-n2"),
    "steps": lambda cluster: odd_job(cluster, "--array=0-20:2"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_job_is_seen_with_all_others(large: LocalSlurm, name: str) -> None:
    first = odd_job(large)
    odd = ODD[name](large)
    seen = {job.id: job for job in large.gateway().jobs()}
    assert {first, odd} <= set(seen)
    assert not seen[first].set_aside
    # What Slurm itself can read is read as Slurm does: such a job stays preemptible.
    assert bool(seen[odd].set_aside) is (name in ("one EiB", "60,000 EiB"))
    clear(large)


def test_a_list_of_tasks_that_no_argument_takes_is_ordered_in_parts(own_slurm: Callable[..., LocalSlurm]) -> None:
    cluster = own_slurm(Shape(nodes=1, options=LARGE))
    last = 36_000 if is_soak() else 3_000  # Slurm makes a record of each task that is named: minutes of its time
    array, other = odd_job(cluster, f"--array=1-{last}:3,2-{last}:3"), odd_job(cluster)
    (job,) = [job for job in cluster.gateway().jobs() if job.array_id == array]
    assert len(job.ref) > 128 * 1024 or not is_soak()
    assert cluster.gateway().hold([job.ref, str(other)], HELD) == []
    held = [job for job in cluster.gateway().jobs() if job.hold is Hold.ADMIN]
    assert sum(len(job.task_ids) for job in held) == last * 2 // 3
    assert look(cluster, other).hold is Hold.ADMIN


def test_odd_jobs_stop_neither_the_daemon_nor_its_failsafe(daemon: Daemon) -> None:
    """A1 to A5: whatever one user submits, others are held, started, and released, and the heart goes on beating."""
    cluster = daemon.slurm
    odd = [make(cluster) for make in ODD.values()]
    stepped = cluster.submit("sleep 600", "-A", "bio", *REGULAR, "--array=0-60:2", uid=USER)
    irregular = cluster.submit("sleep 600", "-A", "bio", *REGULAR, "--array=1-3000:3,2-3000:3", uid=USER)
    full = [cluster.submit("sleep 600", "-A", "physics", *REGULAR, "-n4") for _ in range(3)]
    daemon.start()
    wait_until(lambda: any(ref.startswith(f"{stepped}_") for ref in held_by_us(daemon)), "the stepped array held")
    wait_until(lambda: any(ref.startswith(f"{irregular}_") for ref in held_by_us(daemon)), "the irregular array held")
    wait_until(lambda: str(full[2]) in held_by_us(daemon), "the job beyond the entitlement held")
    assert daemon.ask("status")["last_error"] is None
    assert daemon.ask("status")["set_aside"] == 2, "those that cannot be read"
    assert "set aside" in daemon.why(odd[0])["now"]
    assert {daemon.job(job).hold for job in odd[:8]} == {Hold.USER}, "no order for them"
    log = daemon.log.read_text()
    assert len(log) < 200_000, "task lists are brief"
    daemon.kill()
    wait_until(
        lambda: daemon.omfs("failsafe", check=False).returncode == 0 and not held_by_us(daemon),
        "the failsafe to release all, once its grace time is over",
    )


def held_by_us(daemon: Daemon) -> list[str]:
    return [job.ref for job in daemon.gateway.jobs() if is_held_by_us(job)]
