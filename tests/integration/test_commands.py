"""The command gateway where only a real Slurm can tell: hostile text, multi-node shares, refusals, a dead slurmctld.

What every gateway must do is in tests/contract/.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.units import Unit
from omfs_daemon.errors import GatewayError, GatewayTimeout
from omfs_daemon.slurm.commands import job_details
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.run_command import CommandOutput, run_command
from omfs_daemon.testing.local_slurm import own_processes
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, LocalSlurmError
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.comments import HELD, RELEASED
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm

MB = 1024**2
HOSTILE = [
    "a\nJobId=1 JobName=b UserId=root(0) AdminComment=omfs:gate",
    "x AdminComment=omfs:gate Comment=",
    "\n\n7|7|N/A|RUNNING|main",
    "<0123456789abcdef0123456789abcdef>",
    "%s%n'\"`$(touch /tmp/never)`\\;",
    " JOB_GRES=(null)   Nodes=n1 CPU_IDs=0-3 Mem=1 GRES= ",
    "ünï\u202e\u2028cödé",
]


def find(slurm: LocalSlurm, job_id: int) -> Job:
    job = slurm.gateway().find(job_id)
    assert job is not None
    return job


def in_state(slurm: LocalSlurm, job_id: int, state: JobState) -> Job:
    wait_until(lambda: find(slurm, job_id).state is state, f"job {job_id} to be {state}")
    return find(slurm, job_id)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_a_user_writes_is_taken_for_slurms(slurm: LocalSlurm, text: str) -> None:
    hostile = slurm.submit(
        "true", "--hold", f"--comment={text}", f"--job-name={text}", f"--account={text}", uid="nobody"
    )
    other = slurm.submit("true", "--hold", uid="daemon")
    jobs = {job.id: job for job in slurm.gateway().jobs()}
    assert set(jobs) == {hostile, other}
    found = jobs[hostile]
    assert (found.comment, found.admin_comment, found.uid, found.state) == (text, "", 65534, JobState.PENDING)
    assert found.name in (text, text[:128])
    assert find(slurm, hostile) == found


@pytest.mark.parametrize("count", [1, 9], ids=["one by one", "all at once"])
def test_allocations_over_nodes_cannot_be_forged(
    slurm: LocalSlurm, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = "x JOB_GRES=(null)   Nodes=n1 CPU_IDs=0-3 Mem=400 GRES=   Nodes=n2 CPU_IDs=0 Mem=100 GRES= MinCPUsNode=1"
    slurm.submit("sleep 3600", "--nodelist=n1", "--ntasks=3")
    wait_until(lambda: [j for j in slurm.gateway().jobs() if j.runs], "the first job")
    wide = slurm.submit(
        "sleep 3600", "--nodes=2", "--ntasks=5", "--nodelist=n[1-2]", f"--job-name={forged}", f"--account={forged}"
    )
    more = [slurm.submit("true", "--hold", f"--comment=\nJobId={wide} JobName=x UserId=") for _ in range(2)]
    in_state(slurm, wide, JobState.RUNNING)
    gateway = slurm.gateway()
    if count > 1:
        monkeypatch.setattr(job_details, "SINGLE_QUERIES", 0)
    job = next(job for job in gateway.jobs() if job.id == wide)
    assert gateway.units([job])[wide] == {Unit("n1", "cpu", 3), *(Unit("n2", "cpu", number) for number in range(4))}
    assert [(allocation.node, allocation.cpus, allocation.memory) for allocation in job.allocations] == [
        ("n1", 1, 100 * MB),
        ("n2", 4, 400 * MB),
    ]
    assert len(more) == 2


@pytest.mark.parametrize("count", [1, 9], ids=["one by one", "all at once"])
def test_k28_nor_by_the_job_s_own_name_and_scontrol_is_asked_once(
    slurm: LocalSlurm, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.submit("sleep 3600", "--nodelist=n1", "--ntasks=3")
    wait_until(lambda: [j for j in slurm.gateway().jobs() if j.runs], "the first job")
    wide = slurm.submit("sleep 3600", "--nodes=2", "--ntasks=5", "--nodelist=n[1-2]", uid="nobody")
    in_state(slurm, wide, JobState.RUNNING)
    forged = f"x\nJobId={wide} JobName=x UserId=nobody(65534) GroupId=nogroup(65534) MCS_label=N/A Account= QOS="
    slurm.command("scontrol", "update", f"jobid={wide}", f"jobname={forged}", f"comment={forged}", uid="nobody")
    asked: list[list[str]] = []

    def run(arguments: Sequence[str], **options: Any) -> CommandOutput:
        asked.append(list(arguments))
        return run_command(arguments, **options)

    gateway = CommandGateway(slurm.conf, runner=run)
    if count > 1:
        monkeypatch.setattr(job_details, "SINGLE_QUERIES", 0)
    for _ in range(3):
        job = next(job for job in gateway.jobs() if job.id == wide)
        assert [(allocation.node, allocation.cpus) for allocation in job.allocations] == [("n1", 1), ("n2", 4)]
    assert len([each for each in asked if "--details" in each]) == count // 9 + 1


def test_allocations_stay_while_suspended(slurm: LocalSlurm) -> None:
    wide = slurm.submit("sleep 3600", "--nodes=2", "--ntasks=6", "--nodelist=n[1-2]")
    job = in_state(slurm, wide, JobState.RUNNING)
    assert slurm.gateway().suspend([job.ref]) == []
    assert in_state(slurm, wide, JobState.SUSPENDED).allocations == job.allocations


def test_unchanged_jobs_are_the_same_objects(slurm: LocalSlurm) -> None:
    slurm.submit("true", "--hold")
    gateway = slurm.gateway()
    assert gateway.jobs()[0] is gateway.jobs()[0]


def test_requests_as_asked_for(slurm: LocalSlurm) -> None:
    job = find(
        slurm,
        slurm.submit(
            *("true", "--hold", "--nodes=2-3", "--ntasks=6", "--mem=700", "--gres=gpu:a100:2", "--exclude=n[3-4]"),
            *("--constraint=fast", "--partition=main,urgent", "--exclusive", "--time=10"),
        ),
    )
    request = job.request
    assert (request.cpus, request.nodes, request.max_nodes, request.exclusive) == (6, 2, 3, True)
    assert (request.memory_per_node, request.memory_per_cpu) == (700 * MB, 0)
    assert request.gres == (("gpu", 2), ("gpu:a100", 2))
    assert (request.features, request.excluded_nodes) == ("fast", {"n3", "n4"})
    assert (request.partitions, job.time_limit) == (("main", "urgent"), 600.0)


def test_a_held_job_shows_what_else_it_waits_for(slurm: LocalSlurm) -> None:
    first = slurm.submit("false", "--begin=now+1hour")
    held = find(slurm, slurm.submit("true", "--hold"))
    begun = time.time()
    later = find(slurm, slurm.submit("true", "--hold", "--begin=now+1hour"))
    assert held.eligible is None
    assert later.eligible is not None
    assert begun - 1 <= later.eligible - 3600 <= time.time() + 1
    depends = [
        find(slurm, slurm.submit("true", *options, f"--dependency=afterok:{first}"))
        for options in ([], ["--hold"], ["--hold", "--begin=now+1hour"])
    ]
    assert {job.eligible for job in depends} == {inf}
    shown = {job.id: job.eligible for job in slurm.gateway().jobs()}
    assert [shown[job.id] for job in depends] == [inf, inf, inf]

    slurm.command("scancel", str(first))
    wait_until(lambda: find(slurm, depends[0].id).reason == "DependencyNeverSatisfied", "Slurm to give it up")
    assert find(slurm, depends[0].id).eligible == inf


def test_a_dependency_that_names_no_job_is_not_believed_while_held(slurm: LocalSlurm) -> None:
    held = find(slurm, slurm.submit("true", "--hold", "--dependency=singleton"))
    assert held.eligible is None


def test_a_fulfilled_dependency_is_none(slurm: LocalSlurm) -> None:
    first = slurm.submit("true", "--hold")
    held = slurm.submit("true", "--hold", f"--dependency=afterany:{first}")
    assert find(slurm, held).eligible == inf
    assert slurm.gateway().release([str(first)], RELEASED) == []
    in_state(slurm, first, JobState.ENDED)
    assert find(slurm, held).eligible is None
    assert {job.id: job.eligible for job in slurm.gateway().jobs()}[held] is None


def test_held_tasks_wait_for_the_tasks_of_their_numbers(slurm: LocalSlurm) -> None:
    first = slurm.submit("true", "--hold", "--array=1-2")
    held = slurm.submit("true", "--hold", "--array=1-2", f"--dependency=aftercorr:{first}")

    def eligible() -> dict[int, float | None]:
        return {task: job.eligible for job in slurm.gateway().jobs() if job.array_id == held for task in job.task_ids}

    assert eligible() == {1: inf, 2: inf}
    assert slurm.gateway().release([f"{first}_1"], RELEASED) == []
    wait_until(lambda: eligible() == {1: None, 2: inf}, "the first task to end")


# What Slurm takes from a user, held or not, on nodes of 4 CPUs; what it does not take is no danger.
UNUSUAL = [
    *("--mem=0", "--mem=1", "--mem-per-cpu=3T", "--mem=999999999999", "--mem-per-cpu=0"),
    *("--time=UNLIMITED", "--time=0", "--time=0:01", "--time=999999999", "--time=4294967290", "--time-min=1"),
    *("--nice=2147483645", "--nice=-2147483645", "--begin=2099-01-01", "--begin=1970-01-01", "--deadline=now+1hour"),
    *("--array=1-3%0", "--array=0-1000%1", "--array=1,5,7-9%2", "--array=1-10:3", "--array=5"),
    *("--ntasks=0", "--ntasks=1024", "--ntasks=2147483647", "--cpus-per-task=65533", "--ntasks-per-node=70000"),
    *("--nodes=1024", "--nodes=1-1000000", "--nodes=2147483647", "--nodes=0", "--mincpus=1024", "--mincpus=70000"),
    *("--constraint=fast|ve", "--constraint=[fast*2&ve*1]", "--constraint=fast*1", "--constraint=(null)"),
    *("--gres=ve", "--gres=ve:0", "--gres=ve:-1", "--gres=ve:1K", "--gres=ve:18446744073709551610", "--gres=none"),
    *("--gres=ve:2,ve:1", "--gres=ve:x:1", "--gpus=1", "--gpus-per-task=1", "--gpus-per-node=a100:1"),
    *("--dependency=singleton", "--dependency=afterok:999999", "--dependency=afterany:999998+5?afterok:999999"),
    *("--nodelist=n1,n1", "--exclude=n[1-4]", "--exclusive", "--exclusive=user", "--exclusive=mcs", "--oversubscribe"),
    *("--account=N/A", "--account=(null)", "--account=a,b|c", "--qos=x", "--licenses=x", "--job-name=", "--comment="),
    *("--extra-node-info=2:2:2", "--core-spec=1", "--thread-spec=1", "--spread-job", "--use-min-nodes", "--overcommit"),
    *("--partition=main,urgent", "--partition=main,main", "--signal=USR1@5", "--tmp=99999999", "--switches=3"),
]


def test_nothing_that_a_user_may_ask_for_blinds_us(slurm: LocalSlurm) -> None:
    taken = 0
    for hold in (["--hold"], []):
        for option in UNUSUAL:
            arguments = ("sbatch", "--parsable", *hold, option, "--wrap=true")
            taken += slurm.command(*arguments, check=False, uid="nobody").code == 0
    assert taken > len(UNUSUAL)
    slurm.submit("true", "--hold", "--mincpus=1024")
    found = slurm.gateway().jobs()
    assert max(job.request.min_cpus_per_node for job in found) >= 1024
    assert all(count < 2**31 for job in found for _, count in job.request.gres)


@pytest.mark.parametrize("option", ["--mincpus=1024", "--ntasks=1024", "--nodes=1024"])
def test_large_numbers_are_numbers(slurm: LocalSlurm, option: str) -> None:
    request = find(slurm, slurm.submit("true", "--hold", option)).request
    assert 1024 in (request.min_cpus_per_node, request.cpus, request.nodes)


def test_memory_is_none_where_slurm_does_not_allocate_it(own_slurm: Callable[..., LocalSlurm]) -> None:
    slurm = own_slurm(Shape(nodes=1, options={"SelectTypeParameters": "CR_Core", "DefMemPerCPU": ""}))
    job = in_state(slurm, slurm.submit("sleep 3600", "--mem=500"), JobState.RUNNING)
    assert (job.request.memory_per_node, job.request.memory_per_cpu, job.allocations[0].memory) == (0, 0, 0)


def test_memory_not_asked_for_is_all_of_the_node(own_slurm: Callable[..., LocalSlurm]) -> None:
    slurm = own_slurm(Shape(nodes=1, memory_mb=3000, options={"DefMemPerCPU": ""}))
    job = in_state(slurm, slurm.submit("sleep 3600"), JobState.RUNNING)
    assert (job.request.memory_per_node, job.allocations[0].memory) == (3000 * MB, 3000 * MB)


class TestOrders:
    def test_one_wrong_job_does_not_stop_the_others(self, slurm: LocalSlurm) -> None:
        gateway = slurm.gateway()
        job, array = slurm.submit("true", "--hold"), slurm.submit("true", "--hold", "--array=1-5")
        refs = ["99999", str(job), f"{array}_77", f"{array}_[2,4]"]
        assert {refusal.ref for refusal in gateway.set_nice(refs, -3)} == {"99999", f"{array}_77"}
        nices = {found.ref: found.nice for found in gateway.jobs()}
        assert nices == {f"{job}": -3, f"{array}_2": -3, f"{array}_4": -3, f"{array}_[1,3,5]": 0}

    def test_a_long_list_is_given_in_parts(self, slurm: LocalSlurm) -> None:
        array = slurm.submit("true", "--hold", "--array=1-150")
        refs = [f"{array}_{task}" for task in range(1, 152)]
        assert [refusal.ref for refusal in slurm.gateway().set_nice(refs, 5)] == [f"{array}_151"]
        assert {job.nice for job in slurm.gateway().jobs()} == {5}

    def test_a_job_that_has_just_ended_is_not_run_again(self, slurm: LocalSlurm) -> None:
        job = in_state(slurm, slurm.submit("true"), JobState.ENDED)
        slurm.gateway().requeue([job.ref])
        assert find(slurm, job.id).state is JobState.ENDED

    def test_no_requeue_is_a_refusal(self, slurm: LocalSlurm) -> None:
        job = in_state(slurm, slurm.submit("sleep 3600", "--no-requeue"), JobState.RUNNING)
        assert [refusal.ref for refusal in slurm.gateway().requeue([job.ref])] == [job.ref]
        assert find(slurm, job.id).state is JobState.RUNNING

    def test_nice_of_a_held_a_waiting_and_a_running_job(self, slurm: LocalSlurm) -> None:
        """Slurm takes all three; the priority of a held one stays 0 until its release."""
        gateway = slurm.gateway()
        held = find(slurm, slurm.submit("true", "--hold"))
        waiting = find(slurm, slurm.submit("true", "--begin=now+1hour"))
        running = in_state(slurm, slurm.submit("sleep 3600"), JobState.RUNNING)
        assert gateway.set_nice([held.ref, waiting.ref, running.ref], -2_000_000_000) == []
        ranks = {job.id: (job.nice, job.priority) for job in gateway.jobs()}
        assert ranks[held.id] == (-2_000_000_000, 0)
        assert ranks[waiting.id][0] == ranks[running.id][0] == -2_000_000_000
        assert ranks[waiting.id][1] >= 2_000_000_000

    @pytest.mark.parametrize("text", [*HOSTILE, "say \"so\" 'or' so", "x" * 5000])
    def test_an_admin_comment_is_one_line(self, slurm: LocalSlurm, text: str) -> None:
        job, other = (find(slurm, slurm.submit("true", "--hold")) for _ in range(2))
        assert slurm.gateway().set_admin_comment([job.ref], f"omfs:{text} jobid={other.ref}") == []
        written = find(slurm, job.id).admin_comment
        assert written.startswith(f"omfs:{text[:1].strip()}")
        assert written.isprintable()
        assert find(slurm, other.id) == other

    @pytest.mark.parametrize("ref", ["", "all", "1,2", "--user=root", "1 2", "3_*", "3_[1]x"])
    def test_only_references_are_passed_on(self, slurm: LocalSlurm, ref: str) -> None:
        with pytest.raises(ValueError, match="not references"):
            slurm.gateway().hold([ref], HELD)

    def test_a_name_that_is_no_node_or_signal(self, slurm: LocalSlurm) -> None:
        with pytest.raises(ValueError, match="not names of nodes"):
            slurm.gateway().pin("1", ["n1 nice=-5"])
        with pytest.raises(ValueError, match="not a signal"):
            slurm.gateway().signal("1", "USR1 --user=root")

    def test_the_owner_cannot_release_our_hold(self, slurm: LocalSlurm) -> None:
        job = find(slurm, slurm.submit("true", "--hold", uid="nobody"))
        slurm.gateway().hold([job.ref], HELD)
        said = slurm.command("scontrol", "release", job.ref, check=False, uid="nobody")
        assert said.code != 0
        assert find(slurm, job.id).hold is Hold.ADMIN


class TestSlurmAway:
    def test_queries_and_orders_fail_within_the_time_out(self, own_slurm: Callable[..., LocalSlurm]) -> None:
        slurm = own_slurm(Shape(nodes=1))
        job = slurm.submit("true", "--hold")
        slurm.kill_controller(signal.SIGTERM)
        hasty = slurm.gateway(timeout=1)
        orders = [hasty.jobs, hasty.nodes, lambda: hasty.find(job), lambda: hasty.hold([str(job)], HELD)]
        for order in orders:
            with pytest.raises(GatewayTimeout, match="within 1 s"):
                order()
        with pytest.raises(GatewayError):
            slurm.gateway(timeout=30).suspend([str(job)])

        slurm.start_controller()
        assert [found.id for found in slurm.gateway().jobs()] == [job]

    def test_no_slurm_at_all(self, tmp_path: Path) -> None:
        # Slurm's commands wait for a file that may come, or tell that there is none.
        with pytest.raises(GatewayError, match=r"within 2 s|none\.conf"):
            CommandGateway(tmp_path / "none.conf", timeout=2).jobs()
        with pytest.raises(GatewayError, match="cannot run no-such-program"):
            run_command(["no-such-program"], timeout=LIMIT)


class TestLocalSlurm:
    def test_a_node_that_dies_and_comes_back(self, own_slurm: Callable[..., LocalSlurm]) -> None:
        slurm = own_slurm(Shape(nodes=2, options={"SlurmdTimeout": "2"}))

        def up() -> set[str]:
            return {node.name for node in slurm.gateway().nodes() if node.up}

        slurm.stop_node("n2", signal.SIGKILL)
        wait_until(lambda: up() == {"n1"}, "Slurm to miss n2")
        slurm.start_node("n2")
        wait_until(lambda: up() == {"n1", "n2"}, "both nodes")

    def test_nothing_is_left_running(self, own_slurm: Callable[..., LocalSlurm]) -> None:
        slurm = own_slurm(Shape(nodes=1))
        stubborn = "trap '' TERM HUP INT; setsid sleep 3600 & while true; do sleep 300; done"
        in_state(slurm, slurm.submit(stubborn, uid="nobody"), JobState.RUNNING)
        assert any(process.name() == "slurmstepd" for process in own_processes.find_in(slurm.directory))
        slurm.stop()
        assert own_processes.find_in(slurm.directory) == []

    def test_a_wrong_option_is_one_clear_line(self, own_slurm: Callable[..., LocalSlurm]) -> None:
        with pytest.raises(LocalSlurmError, match="slurmctld ended") as caught:
            own_slurm(Shape(nodes=1, options={"SelectType": "select/nonsense"}))
        assert "\n" not in str(caught.value)

    def test_a_munged_of_its_own(self, own_slurm: Callable[..., LocalSlurm], monkeypatch: pytest.MonkeyPatch) -> None:
        from omfs_daemon.testing.local_slurm import munge

        works = munge.works
        monkeypatch.setattr(munge, "works", lambda socket=None: socket is not None and works(socket))
        slurm = own_slurm(Shape(nodes=1))
        assert in_state(slurm, slurm.submit("true", uid="nobody"), JobState.ENDED).user == "nobody"
