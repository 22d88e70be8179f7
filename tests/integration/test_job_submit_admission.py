"""What the submit plug-in lets in without a hold, on a real Slurm; ``admission`` is written here in omfsd's place."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, SubmitGate
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.conftest import clear
from tests.support.marked_jobs import LATER, MAX_AGE, OWNER, PLUGIN
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm

GATE = "omfs:held:0"
NODES = "nodes main 4 4 8000\nnodes urgent 4 4 8000\nnodes whole 4 4 8000\n"
OBSERVED, NOT_OBSERVED = 1000, 2
"""Seconds from now to the observation in the file: what is submitted until then has been seen; from when jobs begin to
be counted: none of them has been seen, however long submitting takes."""


@dataclass
class Site:
    """``slurm``, and the file of a daemon that seems to live. ``counting_since``: by ``begin_to_count``."""

    slurm: LocalSlurm
    counting_since: float = 0.0

    @property
    def admission(self) -> Path:
        return self.slurm.directory / "admission"

    def tell(self, body: str, ahead: float = OBSERVED) -> None:
        """The file with these lines, each time another one."""
        begin = self.counting_since if ahead == NOT_OBSERVED else time.time()
        self.counting_since += 0.001
        self.admission.write_text(f"omfs admission 1 {begin + ahead:.3f}\n{body}end\n")

    def tell_room(self, *levels: int, path: str = "0", ahead: float = OBSERVED, more: str = "threads 1\n") -> None:
        """That the account bio has this room."""
        self.tell(f"{more}{left(*levels)}{NODES}accounts\naccount bio {path}\nothers {path}\n", ahead)

    def begin_to_count(self) -> None:
        """What was submitted before the file of now counts no longer; what follows does, under ``NOT_OBSERVED``."""
        self.submit("--dependency=singleton")
        wait_for_next_second()
        self.counting_since = time.time()

    def submit(self, *arguments: str, account: str = "bio") -> Job:
        """As Slurm shows it right after."""
        return self.look(self.slurm.submit("sleep 3600", f"--account={account}", *arguments, uid=OWNER))

    def look(self, job_id: int) -> Job:
        job = self.slurm.gateway().find(job_id)
        assert job is not None
        return job

    def is_let_in(self, *arguments: str, account: str = "bio") -> bool:
        job = self.submit(*arguments, account=account)
        assert (job.hold is Hold.NONE) == (job.admin_comment == "")
        return job.hold is Hold.NONE

    def refused(self, program: str, *arguments: str) -> str:
        """What the user reads, on one line; "" if the job is taken."""
        what = ["--wrap=true"] if program == "sbatch" else ["true"]
        output = self.slurm.command(program, *arguments, *what, check=False, uid=OWNER)
        return " ".join(line for line in output.stderr.splitlines() if "error" in line) if output.code else ""


def left(*levels: int) -> str:
    return "".join(f"level {level} {cpus}\n" for level, cpus in enumerate(levels))


def wait_for_next_second() -> None:
    """The plug-in knows whole seconds only."""
    second = int(time.time())
    wait_until(lambda: int(time.time()) > second, "the next second")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    directory = Path(tempfile.mkdtemp(prefix="omfs-admission-"))
    settings = {
        "heartbeat": str(directory / "heartbeat"),
        "wake": str(directory / "wake"),
        "max_age": MAX_AGE,
        "class_1": "partition=urgent;urgent=yes",
        "class_2": "methods=requeue",
    }
    whole = "PartitionName=whole Nodes=ALL State=UP OverSubscribe=EXCLUSIVE"
    try:
        with LocalSlurm(directory, Shape(partitions=(whole,)), gate=SubmitGate(PLUGIN, settings), limit=LIMIT) as slurm:
            wait_for_next_second()
            yield slurm
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def site(cluster: LocalSlurm) -> Iterator[Site]:
    (cluster.directory / "heartbeat").write_text(f"{int(time.time())}\n")
    yield Site(cluster)
    clear(cluster)


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        ("-n1", 1),
        ("-n4 -c2", 8),
        ("-N2", 2),
        ("-N2-3", 3),
        ("-N2-4 -n2", 2),
        ("-N2 --ntasks-per-node=3", 6),
        ("-N2-3 --ntasks-per-node=2", 6),
        ("-c4", 4),
        ("--mincpus=2", 3),
        ("-n3 --exclusive", 12),
        ("-N1 --exclusive", 4),
        ("-N1 --partition=whole", 4),
        ("--array=0-3", 4),
        ("--array=1-9:4,20%1 -n2", 8),
        ("--nodelist=n1,n2 -n2", 4),
        ("--mem-per-cpu=100 -n2", 2),
        ("-O -n3", 3),
        ("--partition=main,whole -N1", 4),
    ],
)
def test_a_job_is_let_in_where_the_most_that_it_could_get_fits(site: Site, arguments: str, least: int) -> None:
    site.tell_room(least - 1)
    assert not site.is_let_in(*arguments.split()), "one CPU is missing"
    site.tell_room(least)
    job = site.submit(*arguments.split())
    assert job.hold is Hold.NONE

    def cpus() -> int:
        jobs = site.slurm.gateway().jobs()
        return sum(allocation.cpus for each in jobs for allocation in each.allocations)

    wait_until(lambda: cpus() > 0, "the job to run")
    assert cpus() <= least


@pytest.mark.parametrize(
    "arguments",
    [
        ["--exclusive=user"],
        ["--cores-per-socket=2"],
        ["--ntasks-per-socket=1"],
        [LATER],
        ["--dependency=singleton"],
    ],
    ids="".join,
)
def test_a_job_whose_size_or_start_is_not_certain_is_held(site: Site, arguments: list[str]) -> None:
    site.tell_room(16)
    assert not site.is_let_in(*arguments)
    assert site.is_let_in()


def test_heterogeneous_jobs_are_held(site: Site) -> None:
    site.tell_room(16)
    site.slurm.submit("true", "-n1", "--account=bio", ":", "-n1", "--account=bio", uid=OWNER)
    assert {job.hold for job in site.slurm.gateway().jobs()} == {Hold.USER}


@pytest.mark.parametrize(("arguments", "least"), [("-n1", 2), ("-c3", 4), ("-n2 --ntasks-per-core=1", 4)])
def test_cpus_are_rounded_up_to_cores(site: Site, arguments: str, least: int) -> None:
    site.tell_room(least - 1, more="threads 2\n")
    assert not site.is_let_in(*arguments.split())
    site.tell_room(least, more="threads 2\n")
    assert site.is_let_in(*arguments.split())


def test_no_size_is_certain_without_the_number_of_threads(site: Site) -> None:
    site.tell_room(16, more="")
    assert not site.is_let_in()


def test_what_was_let_in_counts_until_it_is_observed(site: Site) -> None:
    site.tell_room(5)
    site.begin_to_count()
    site.tell_room(5, ahead=NOT_OBSERVED)
    assert [site.is_let_in("-n2") for _ in range(3)] == [True, True, False]
    site.tell_room(5, ahead=NOT_OBSERVED)
    assert not site.is_let_in("-n2"), "a new file, but from before"
    site.tell_room(5)
    assert site.is_let_in("-n2")


@pytest.mark.parametrize(
    ("uid", "level", "second", "is_free"),
    [(0, 0, 0, True), (1, 0, 0, False), (0, 1, 0, False), (0, 0, -60, False)],
    ids=["seen", "another-user", "another-account", "older"],
)
def test_a_job_that_was_seen_counts_no_longer(site: Site, uid: int, level: int, second: int, is_free: bool) -> None:
    site.tell_room(5, 5)
    site.begin_to_count()
    site.tell_room(5, 5, ahead=NOT_OBSERVED)
    job = site.submit("-n3")
    assert job.hold is Hold.NONE
    seen = f"seen {job.id} {job.uid + uid} {int(job.submit) + second} {level}\n"
    site.tell_room(2, 5, ahead=NOT_OBSERVED, more=f"threads 1\n{seen}")
    assert site.is_let_in("-n2") == is_free


def test_a_job_that_was_seen_is_subtracted_once(site: Site) -> None:
    site.tell_room(6)
    site.begin_to_count()
    site.tell_room(6, ahead=NOT_OBSERVED)
    first, second = site.submit("-n2"), site.submit("-n2")
    assert second.hold is Hold.NONE
    more = f"threads 1\nseen {first.id} {first.uid} {int(second.submit)} 0\n"
    site.tell_room(4, ahead=NOT_OBSERVED, more=more)
    assert site.is_let_in("-n2")
    site.tell_room(3, ahead=NOT_OBSERVED, more=more)
    assert not site.is_let_in("-n1")


def test_nobody_passes_a_job_that_is_held(site: Site) -> None:
    site.tell_room(5)
    site.begin_to_count()
    site.tell_room(5, ahead=NOT_OBSERVED)
    assert not site.is_let_in("-n6")
    assert not site.is_let_in("-n1")
    site.tell_room(5)
    assert site.is_let_in("-n1")


def test_a_job_that_its_owner_has_released_at_the_gate_has_the_room(site: Site) -> None:
    site.tell_room(5)
    site.begin_to_count()
    site.tell_room(5, ahead=NOT_OBSERVED)
    job = site.submit("--hold")
    assert site.is_let_in("-n1")
    site.slurm.command("scontrol", "release", job.ref, uid=OWNER)
    assert not site.is_let_in("-n1")


def test_children_of_one_account_share_its_room(site: Site) -> None:
    lines = f"threads 1\n{left(5, 4, 4, 8)}{NODES}accounts\naccount genes 1,0\naccount cells 2,0\nothers 3\n"
    site.tell(lines)
    site.begin_to_count()
    site.tell(lines, NOT_OBSERVED)
    assert site.is_let_in("-n3", account="genes")
    assert not site.is_let_in("-n3", account="cells"), "two are left of five"
    site.tell(lines)
    assert site.is_let_in("-n3", account="cells")


def test_levels_with_new_numbers_do_not_count_before_all_is_observed(site: Site) -> None:
    site.tell_room(8, 8, path="1")
    site.begin_to_count()
    site.tell_room(8, 8, path="1", ahead=NOT_OBSERVED)
    assert site.is_let_in()
    site.tell_room(8, 8, path="0", ahead=NOT_OBSERVED)
    assert not site.is_let_in()
    site.tell_room(8, 8, path="0")
    assert site.is_let_in()


@pytest.mark.parametrize("arguments", [[], [LATER], ["--exclusive=user"], ["--dependency=singleton"], ["--array=0-99"]])
def test_an_account_that_owns_all_needs_no_hold(site: Site, arguments: list[str]) -> None:
    site.tell_room(0, path="all", more="")
    assert site.is_let_in(*arguments)


def test_an_owner_of_an_account_that_owns_all_may_change_and_release(site: Site) -> None:
    site.tell_room(0, path="all", more="")
    job = site.submit("--hold")
    site.slurm.command("scontrol", "update", f"jobid={job.id}", "numcpus=2", uid=OWNER)
    site.slurm.command("scontrol", "release", job.ref, uid=OWNER)
    wait_until(lambda: site.look(job.id).state is JobState.RUNNING, "the job to run")


def test_an_account_in_upper_case_is_not_another_account(site: Site) -> None:
    site.tell(f"threads 1\n{left(0)}{NODES}accounts\naccount bio 0\nothers all\n")
    assert not site.is_let_in(account="BIO")
    assert site.is_let_in(account="chem")


@pytest.mark.parametrize("account", ["bio 0\nothers", "bio\n", "s\naccount bio", "%a+", "bio 0"])
def test_an_account_that_is_no_name_finds_no_room(site: Site, account: str) -> None:
    site.tell(f"threads 1\n{left(0, 16)}{NODES}accounts\naccount bio 0\nothers 1\naccount last 1\n")
    assert not site.is_let_in(account=account) or account == "%a+"


def test_urgent_jobs_are_held_as_before(site: Site) -> None:
    site.tell_room(0, path="all")
    assert not site.is_let_in("--partition=urgent")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "omfs admission 1 {now}\nthreads 1\n{body}accounts\naccount bio 0\nothers all\n",
        "omfs admission 1 {now}\nthreads 1\n{body}accounts\naccount bi 0\nend\n",
        "omfs admission 1 {now}\nthreads 0\n{body}accounts\naccount bio 0\nothers all\nend\n",
        "omfs admission 1 {now}\nthreads x\n{body}accounts\naccount bio 0\nothers all\nend\n",
        "omfs admission 1 {now}\nthreads 1\n{body}accounts\naccount bio 0,1\nothers all\nend\n",
        "omfs admission 1 {now}\nthreads 1\n{body}accounts\naccount bio x\nothers all\nend\n",
        "omfs admission 1 {now}\nthreads 1\n{body}accounts\naccount bio ,\nothers all\nend\n",
        "omfs admission 2 {now}\nthreads 1\n{body}accounts\naccount bio all\nothers all\nend\n",
        "omfs admission 1 {old}\nthreads 1\n{body}accounts\naccount bio all\nothers all\nend\n",
        "omfs admission 1 {now}\n" + "nodes x 1 1 1\n" * 100_000 + "accounts\naccount bio all\nothers all\nend\n",
        "\x00\xff",
    ],
    ids=range(12),
)
def test_a_file_that_is_not_whole_and_fresh_lets_nothing_in(site: Site, text: str) -> None:
    now = time.time() + OBSERVED
    site.admission.write_text(
        text.format(now=f"{now:.3f}", old=f"{now - 5000 - OBSERVED:.3f}", body=left(16) + NODES), encoding="latin-1"
    )
    assert not site.is_let_in()
    site.tell_room(16)
    assert site.is_let_in(), "a whole one does"


def test_no_file_lets_nothing_in(site: Site) -> None:
    site.admission.unlink(missing_ok=True)
    assert not site.is_let_in()


def test_a_job_in_a_partition_that_is_not_in_the_file_is_held(site: Site) -> None:
    site.tell("threads 1\nlevel 0 16\nnodes mai 4 4 8000\naccounts\naccount bio 0\nothers 0\n")
    assert not site.is_let_in()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mem=999999"], "Memory specification can not be satisfied"),
        (["--mem-per-cpu=9000"], "Memory specification can not be satisfied"),
        (["--mincpus=5"], "CPU count per node can not be satisfied"),
        (["-c5"], "CPU count per node can not be satisfied"),
        (["-N1", "-n5"], "Requested node configuration is not available"),
    ],
    ids=lambda value: "".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("program", ["sbatch", "salloc", "srun"])
def test_what_slurm_refuses_at_submit_is_refused_in_its_words(
    site: Site, program: str, arguments: list[str], said: str
) -> None:
    site.tell_room(0)
    assert said in site.refused(program, *arguments)


@pytest.mark.parametrize("command", ["sbatch --wrap=true", "salloc --immediate true", "srun --immediate true"])
@pytest.mark.parametrize("arguments", ["-N9", "-n17", "--partition=main,whole -N9"])
def test_a_job_larger_than_its_partition_is_answered_as_without_us(site: Site, command: str, arguments: str) -> None:
    """By some releases of Slurm it is refused, by others it waits for more nodes."""
    program, *more = command.split()

    def answer() -> list[str]:
        done = site.slurm.command(program, "--account=bio", *arguments.split(), *more, check=False, uid=OWNER)
        shown = site.slurm.command("squeue", "--noheader", "--format=%t %r").stdout.split()
        # The scheduler's next pass puts PartitionNodeLimit in the place of PartitionConfig.
        waits = [word.replace("PartitionNodeLimit", "PartitionConfig") for word in shown]
        clear(site.slurm)
        return [line for line in done.stderr.splitlines() if "error" in line] + waits

    site.tell_room(0)
    ours = answer()
    (site.slurm.directory / "heartbeat").write_text("1\n")
    assert ours == answer()


@pytest.mark.parametrize("program", ["salloc", "srun"])
def test_an_immediate_job_starts_or_is_refused(site: Site, program: str) -> None:
    site.tell_room(1)
    site.begin_to_count()
    site.tell_room(1, ahead=NOT_OBSERVED)
    job = [program, "--account=bio", "--immediate", "true"]
    done = site.slurm.command(*job, uid=OWNER)
    assert "queued" not in done.stderr and "held" not in done.stderr
    assert "Requested nodes are busy" in site.refused(program, "--account=bio", "--immediate")


def test_a_start_with_room_says_nothing(site: Site) -> None:
    site.tell_room(4)
    assert site.slurm.command("srun", "--account=bio", "true", uid=OWNER).stderr == ""
