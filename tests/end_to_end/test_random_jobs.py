"""Jobs that nobody would have thought of, on a real Slurm: omfsd sees each of them, and goes on with its work.

An ordinary user submits and changes jobs with options at random. Whatever Slurm takes, every job is explained, and a
job within the entitlement of its account starts. In a soak 20,000 jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from omfs_daemon.daemon.admission_file import ADMISSION_FILE
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.amounts import is_soak
from tests.support.daemons import Daemon
from tests.support.gated_clusters import gated_cluster, gated_daemon
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

FAULT = re.compile(r'Traceback|"level": "(error|critical)"')
BATCH = 10
BATCHES = 2_000 if is_soak() else 20
USER, OWNER = "nobody", "daemon"
SHAPE = Shape(nodes=3, gres="gpu:a100:2", options={"Licenses": "fluent:5", "DefCpuPerGPU": "2"})

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
WORDS = (
    "omfs:method=suspend",
    "omfs:methods=",
    "omfs:bound=9",
    "omfs:signal=USR1",
    "omfs:run=0:ready:times=3",
    "%A|=,",
)
NAMES = TEXTS | st.sampled_from(WORDS)
NUMBERS = st.sampled_from(["0", "1", "2", "3", "7", "12", "100", "99999", "4294967294", "-1", "x"])
GPUS = st.sampled_from(["1", "2", "3", "5", "0", "a100:1", "a100:3", "a100:+1", "1,", "0k", "00002", "99999999999"])
TIMES = st.sampled_from(["0", "1", "2", "1:30", "1-0", "UNLIMITED", "now", "now+1hour", "00:00:59", "2010-01-01"])
NODES = st.sampled_from(["n1", "n[1-2]", "n3,n1", "n9", "n[1-4000]", "ALL", ""])
OTHERS = st.sampled_from(["singleton", "afterany:{last}", "afterok:{last}", "after:{last}+5", "afterok:999999", ""])
TASKS = st.sampled_from(["0", "0-3", "1,3,7", "0-9%2", "0-20:5%1", "5-4", "0-5%0"])


def options(values: dict[str, st.SearchStrategy[str]]) -> st.SearchStrategy[str]:
    return st.one_of([value.map(f"{name}{{}}".format) for name, value in values.items()])


SWITCHES = st.sampled_from([
    "exclusive", "exclusive=user", "hold", "no-requeue", "requeue", "contiguous", "spread-job", "use-min-nodes",
    "overcommit", "signal=USR1@10", "signal=B:TERM", "nodes=1-3", "nodes=2-2", "switches=1", "hint=nomultithread",
    "kill-on-invalid-dep=yes",
])  # fmt: skip
OPTION = options(
    {
        **dict.fromkeys(("--ntasks=", "--nodes=", "--cpus-per-task=", "--mem=", "--mem-per-cpu=", "--nice="), NUMBERS),
        **dict.fromkeys(("--mincpus=", "--ntasks-per-node=", "--licenses=fluent:"), NUMBERS),
        **dict.fromkeys(("--gpus=", "--gpus-per-node=", "--gpus-per-task=", "--gpus-per-socket=", "--gres=gpu:"), GPUS),
        **dict.fromkeys(("--cpus-per-gpu=", "--mem-per-gpu=", "--ntasks-per-gpu="), NUMBERS),
        **dict.fromkeys(("--time=", "--time-min=", "--begin=", "--deadline="), TIMES),
        **dict.fromkeys(("--nodelist=", "--exclude="), NODES),
        **dict.fromkeys(("--job-name=", "--comment=", "--wckey=", "--constraint=", "--mail-user="), NAMES),
        "--dependency=": OTHERS,
        "--array=": TASKS,
        "--": SWITCHES,
    }
)
CHANGE = options(
    {
        **dict.fromkeys(("NumNodes=", "NumCPUs=", "NumTasks=", "MinMemoryNode=", "MinCPUsNode=", "Nice="), NUMBERS),
        **dict.fromkeys(("ArrayTaskThrottle=", "Priority=", "Requeue=", "Licenses=fluent:", "Gres=gpu:"), NUMBERS),
        **dict.fromkeys(("TimeLimit=", "StartTime=", "Deadline=", "EndTime="), TIMES),
        **dict.fromkeys(("ReqNodeList=", "ExcNodeList="), NODES),
        **dict.fromkeys(("Comment=", "JobName=", "Features=", "AdminComment=", "WCKey=", "Account=", "QOS="), NAMES),
        "Dependency=": OTHERS,
    }
)
ACTS = st.sampled_from(["hold", "release", "uhold", "requeue", "requeuehold", "suspend", "resume", "top"])
JOBS = st.tuples(st.lists(OPTION, max_size=5), st.lists(CHANGE | ACTS, max_size=3))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    with gated_cluster(
        "random", {"class_1": "partition=urgent;urgent=yes", "class_2": "methods=requeue"}, SHAPE
    ) as slurm:
        yield slurm


def test_every_job_that_slurm_takes_is_explained_and_harms_nobody(cluster: LocalSlurm) -> None:
    taken = 0
    with gated_daemon(cluster) as daemon:
        daemon.config.write_text(daemon.config.read_text().replace('["requeue", "suspend"]', '["requeue"]'))
        daemon.start()
        wait_until((daemon.directory / "run" / ADMISSION_FILE).exists, "the room of accounts")

        @settings(max_examples=BATCHES, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(JOBS, min_size=BATCH, max_size=BATCH))
        def submit_and_look(jobs: list[tuple[list[str], list[str]]]) -> None:
            nonlocal taken
            ids: list[int] = []
            for given_options, changes in jobs:
                if (number := submitted(daemon, given_options, ids[-1:])) is not None:
                    ids.append(number)
                    for change in changes:
                        changed(daemon, number, change, ids[:1])
            taken += len(ids)
            assert_explained(daemon, jobs)
            assert_owner_starts(daemon, jobs)
            daemon.slurm.command("scancel", f"--user={USER}", check=False)
            wait_until(lambda: not daemon.gateway.jobs(), lambda: f"all to be gone: {daemon.observation()}")

        submit_and_look()
        assert not [line for line in daemon.log.read_text().splitlines() if FAULT.search(line)]
    assert taken > BATCHES, "Slurm has taken hardly any"


def submitted(daemon: Daemon, given_options: list[str], last: list[int]) -> int | None:
    """The job's number; None if Slurm refuses it."""
    words = [option.replace("{last}", str(last[0] if last else 1)) for option in given_options]
    done = daemon.slurm.command(
        "sbatch", "--parsable", "-A", "guests", "-o", "/dev/null", *words, "--wrap", "sleep 3600", uid=USER, check=False
    )
    return int(done.stdout.split()[0].partition(";")[0]) if done.code == 0 else None


def changed(daemon: Daemon, number: int, change: str, last: list[int]) -> None:
    """As root where only root may; Slurm refuses much of it."""
    change = change.replace("{last}", str(last[0]))
    user = None if change in ("suspend", "resume") else USER
    words = ["update", f"job={number}", change] if "=" in change else [change, str(number)]
    daemon.slurm.command("scontrol", *words, uid=user, check=False)


def assert_explained(daemon: Daemon, jobs: object) -> None:
    """After two more polls there is an answer about every job, and no error."""
    for _ in range(2):
        before = daemon.ask("status")["last_poll"]
        wait_until(lambda before=before: daemon.ask("status")["last_poll"] > before, f"a poll; {daemon.tail()}; {jobs}")
    assert daemon.ask("status")["last_error"] is None, jobs
    daemon.ask("plan")
    for job in daemon.gateway.jobs():
        why = daemon.ask("why", str(job.id), check=False)
        assert why.get("now") or daemon.gateway.find(job.id) is None, (job, jobs)


def assert_owner_starts(daemon: Daemon, jobs: object) -> None:
    owners = daemon.slurm.submit("sleep 3600", "-A", "physics", "-n2", "-o", "/dev/null", uid=OWNER)
    wait_until(lambda: daemon.runs(owners), lambda: f"{daemon.why_text(owners)} {daemon.observation()} {jobs}")
    daemon.slurm.command("scancel", str(owners))
