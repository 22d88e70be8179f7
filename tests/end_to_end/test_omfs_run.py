"""omfs-run in real jobs: stopped by a signal to the batch shell, held, released, and nothing missing or done twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.zipapps import build
from omfs_daemon.protocol import job_comment
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

USER = "nobody"

# Counts; on request, saves how far it came, creates its mark, and ends. USR2 makes it end with exit code 7.
COUNTING = """
import os, signal, sys, time
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(7))
state = "state-" + os.environ["SLURM_JOB_ID"]
number = int(open(state).read()) if os.environ.get("OMFS_RESTARTED") else 0
while True:
    number += 1
    with open("count-" + os.environ["SLURM_JOB_ID"], "a") as count:
        count.write("%d\\n" % number)
    if asked:
        with open(state, "w") as kept:
            kept.write(str(number))
        open(os.environ["OMFS_MARK"], "w").close()
        sys.exit(0)
    time.sleep(0.02)
"""

# Two real MPI ranks, which count together. On request, both save how far they came; rank 0 creates the mark.
TOGETHER = """
import ctypes, os, signal, socket, sys
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
signal.signal(signal.SIGUSR2, lambda *_: asked.append(2))
mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
def given(name):
    return ctypes.byref(ctypes.c_char.in_dll(mpi, "ompi_mpi_" + name))
def agreed(number):
    mine, most = ctypes.c_int(number), ctypes.c_int()
    failed = mpi.MPI_Allreduce(*map(ctypes.byref, (mine, most)), 1, given("int"), given("op_max"), given("comm_world"))
    return sys.exit(9) if failed else most.value
mpi.MPI_Init(None, None)
rank = os.environ["OMPI_COMM_WORLD_RANK"]
name = "-%s-%s" % (os.environ["SLURM_JOB_ID"], rank)
print("rank", rank, "on", os.environ["SLURMD_NODENAME"], flush=True)
number = int(open("state" + name).read()) if os.environ.get("OMFS_RESTARTED") else 0
while True:
    number += 1
    with open("count" + name, "a") as count:
        count.write("%d\\n" % number)
    wanted = agreed(max(asked, default=0))
    if wanted == 1:
        with open("state" + name, "w") as kept:
            kept.write(str(number))
    if wanted and agreed(number) == number:
        if wanted == 1 and rank == "0":
            open(os.environ["OMFS_MARK"], "w").close()
        mpi.MPI_Finalize()
        os._exit(7 if wanted == 2 else 0)
"""

EXEC = "#!/bin/bash\nexec {run} --method application python3 counting.py\n"
# By loopback: what other interfaces a machine has, and whether they work, is not the subject.
BY_MPIRUN = """#!/bin/bash
export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo HWLOC_COMPONENTS=-linuxio
export OMPI_MCA_orte_tmpdir_base=$(mktemp -d)
exec {run} mpirun -np 2 --map-by node python3 together.py
"""
FROM_COMMENT = "#!/bin/bash\nexec {run} python3 counting.py\n"
TRAPPED = """#!/bin/bash
trap 'kill -USR1 $child' USR1
trap 'kill -TERM $child' TERM
{run} --method application python3 counting.py &
child=$!
while kill -0 $child 2>/dev/null; do wait $child; code=$?; done
exit $code
"""
UNTRAPPED = "#!/bin/bash\n{run} --method application python3 counting.py\nexit $?\n"


class Jobs:
    """Submits and observes jobs on one cluster."""

    def __init__(self, slurm: LocalSlurm) -> None:
        self.slurm = slurm
        self.program = build("omfs-run", slurm.directory)
        (slurm.output / "counting.py").write_text(COUNTING)

    def submit(self, script: str, *arguments: str) -> int:
        text = script.format(run=self.program)
        return self.slurm.submit(text, "--output=job-%j.out", "--open-mode=append", *arguments, uid=USER)

    def field(self, job: int, letter: str) -> str:
        return self.slurm.command("squeue", "--noheader", f"--jobs={job}", f"--format=%{letter}").stdout.strip()

    def until_reported(self, job: int, restarts: int, state: str) -> job_comment.RunComment:
        def reported() -> job_comment.RunComment | None:
            found = job_comment.find_run_comment(self.field(job, "k"))
            return found if found and (found.restarts, found.state) == (restarts, state) else None

        return wait_until(reported, f"{state} of run {restarts}: {self.output(job)}")

    def until_counted(self, job: int, more: int = 5) -> None:
        before = len(self.counted(job))
        wait_until(lambda: len(self.counted(job)) >= before + more, f"more counting: {self.output(job)}")

    def counted(self, job: int) -> list[int]:
        path = self.slurm.output / f"count-{job}"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def ask(self, job: int, number: signal.Signals = signal.SIGUSR1) -> None:
        self.slurm.command("scancel", f"--signal={number.name[3:]}", "--batch", str(job))

    def until_held(self, job: int) -> None:
        wait_until(lambda: self.field(job, "T") in ("PENDING", "SPECIAL_EXIT") and self.held(job), "the hold")

    def held(self, job: int) -> bool:
        return "Priority=0" in self.shown(job)

    def release(self, job: int) -> None:
        self.slurm.command("scontrol", "release", str(job), uid=USER)

    def end(self, job: int) -> str:
        """Let it end by itself; Slurm's record of it."""
        self.ask(job, signal.SIGUSR2)
        wait_until(lambda: "JobState=FAILED" in self.shown(job), f"the end: {self.output(job)}")
        return self.shown(job)

    def shown(self, job: int) -> str:
        return self.slurm.command("scontrol", "--oneliner", "show", "job", str(job)).stdout

    def output(self, job: int) -> str:
        path = self.slurm.output / f"job-{job}.out"
        return path.read_text() if path.exists() else "(no output)"

    def checkpoints(self, job: int) -> Path:
        return self.slurm.output / f"omfs-checkpoint.{job}"


@pytest.fixture
def jobs(slurm: LocalSlurm) -> Iterator[Jobs]:
    return Jobs(slurm)


def no_gap_no_repeat(numbers: list[int]) -> bool:
    return numbers == list(range(1, len(numbers) + 1))


def test_a_job_preempted_twice_continues_where_it_was_and_keeps_its_exit_code(jobs: Jobs) -> None:
    job = jobs.submit(EXEC, "--comment=mine omfs:wait")
    for restarts in range(2):
        jobs.until_reported(job, restarts, "ready")
        jobs.until_counted(job)
        jobs.ask(job)
        for _ in range(2):  # several times make no difference, whether it is still there or not
            jobs.slurm.command("scancel", "--signal=USR1", "--batch", str(job), check=False)
        jobs.until_held(job)
        assert jobs.field(job, "T") == "SPECIAL_EXIT"
        stopped = jobs.until_reported(job, restarts, "stopped")
        assert stopped.fields["method"] == "application" and float(stopped.fields["seconds"]) > 0
        assert jobs.field(job, "k").startswith("mine omfs:wait omfs:run=")
        jobs.release(job)
    again = jobs.until_reported(job, 2, "ready")
    assert (again.fields["from"], again.fields["lost"]) == ("2", "0.00")
    jobs.until_counted(job)
    assert "ExitCode=7:0" in jobs.end(job)
    assert no_gap_no_repeat(jobs.counted(job))


def test_a_script_that_forwards_the_signal_needs_no_exec(jobs: Jobs) -> None:
    job = jobs.submit(TRAPPED)
    jobs.until_reported(job, 0, "ready")
    jobs.until_counted(job)
    jobs.ask(job)
    jobs.until_held(job)
    jobs.release(job)
    jobs.until_reported(job, 1, "ready")
    jobs.until_counted(job)
    jobs.ask(job)
    jobs.until_held(job)
    assert jobs.until_reported(job, 1, "stopped")
    assert no_gap_no_repeat(jobs.counted(job))


def test_where_the_signal_would_kill_the_script_the_job_never_reports_ready(jobs: Jobs) -> None:
    job = jobs.submit(UNTRAPPED)
    jobs.until_counted(job)
    wait_until(lambda: "write `exec omfs-run ...`" in jobs.output(job), "the reason")
    jobs.until_counted(job, 100)  # two seconds more
    assert job_comment.find_run_comment(jobs.field(job, "k")) is None


def test_without_a_way_to_hold_the_job_it_runs_but_never_reports_ready(jobs: Jobs) -> None:
    job = jobs.submit(TRAPPED, "--no-requeue")
    jobs.until_counted(job, 100)
    assert "submit with --requeue" in jobs.output(job)
    assert job_comment.find_run_comment(jobs.field(job, "k")) is None


def test_nothing_is_left_of_a_program_that_ended_well(jobs: Jobs) -> None:
    command = "sh -c 'test -d omfs-checkpoint.$SLURM_JOB_ID && touch seen-$SLURM_JOB_ID'"
    script = "#!/bin/bash\nexec {run} --method application " + command + "\n"
    job = jobs.submit(script)
    wait_until(lambda: "JobState=COMPLETED" in jobs.shown(job), f"the end: {jobs.output(job)}")
    assert (jobs.slurm.output / f"seen-{job}").exists()
    assert not jobs.checkpoints(job).exists()


def test_a_program_with_no_method_is_simply_run(jobs: Jobs) -> None:
    job = jobs.submit(FROM_COMMENT, "--comment=omfs:method=requeue")
    jobs.until_counted(job)
    jobs.ask(job)
    wait_until(lambda: "without a method" in jobs.output(job), "a line that says so")
    jobs.until_counted(job)
    assert "ExitCode=7:0" in jobs.end(job)
    assert job_comment.find_run_comment(jobs.field(job, "k")) is None


def test_a_job_whose_checkpoints_are_gone_is_held_and_does_not_start_over(jobs: Jobs) -> None:
    job = jobs.submit(FROM_COMMENT, "--comment=omfs:method=requeue,application")
    jobs.until_reported(job, 0, "ready")
    jobs.until_counted(job)
    jobs.ask(job)
    jobs.until_held(job)
    counted = jobs.counted(job)
    jobs.checkpoints(job).rename(jobs.checkpoints(job).with_suffix(".moved"))
    jobs.release(job)
    jobs.until_reported(job, 1, "held")
    jobs.until_held(job)
    assert jobs.field(job, "T") == "SPECIAL_EXIT"
    assert "no checkpoint is left" in jobs.output(job)
    assert jobs.counted(job) == counted
    # The owner puts them back, and it goes on.
    (jobs.checkpoints(job)).rename(jobs.checkpoints(job).with_suffix(".empty"))
    jobs.checkpoints(job).with_suffix(".moved").rename(jobs.checkpoints(job))
    jobs.release(job)
    jobs.until_reported(job, 2, "ready")
    jobs.until_counted(job)
    assert no_gap_no_repeat(jobs.counted(job))


def test_srun_passes_the_request_on_to_its_step(jobs: Jobs) -> None:
    job = jobs.submit("#!/bin/bash\nexec {run} --method application srun --quiet python3 counting.py\n")
    for restarts in range(2):
        jobs.until_reported(job, restarts, "ready")
        jobs.until_counted(job)
        jobs.ask(job)
        jobs.until_held(job)
        if not restarts:
            jobs.release(job)
    assert jobs.until_reported(job, 1, "stopped")
    assert no_gap_no_repeat(jobs.counted(job))


def test_a_directory_that_is_not_his_own_holds_the_job(jobs: Jobs) -> None:
    theirs = jobs.slurm.output / "theirs"
    theirs.mkdir(mode=0o755, exist_ok=True)  # root's
    job = jobs.submit("#!/bin/bash\nexec {run} --method application --dir $PWD/theirs python3 counting.py\n")
    jobs.until_held(job)
    assert jobs.until_reported(job, 0, "held").fields["why"] == "bad_directory"
    assert list(theirs.iterdir()) == [] and jobs.counted(job) == []


def test_a_task_of_an_array_is_preempted_alone_even_the_one_with_the_number_of_the_array(jobs: Jobs) -> None:
    array = jobs.submit(EXEC, "--array=1-2")
    wait_until(lambda: set(tasks(jobs, array, "k")) == {f"{array}_1", f"{array}_2"}, "both tasks")
    wait_until(lambda: all(":ready:" in said for said in tasks(jobs, array, "k").values()), "both to be ready")
    last = next(task for task, number in tasks(jobs, array, "A").items() if number == str(array))
    jobs.slurm.command("scancel", "--signal=USR1", "--batch", last)
    wait_until(lambda: tasks(jobs, array, "T")[last] == "SPECIAL_EXIT", "the hold of one")
    states, words = tasks(jobs, array, "T"), tasks(jobs, array, "k")
    other = next(task for task in states if task != last)
    assert (states[other], words[other].split(":")[2]) == ("RUNNING", "ready")
    assert words[last].split(":")[2] == "stopped"


def tasks(jobs: Jobs, array: int, letter: str) -> dict[str, str]:
    listed = jobs.slurm.command("squeue", "--noheader", f"--jobs={array}", f"--format=%i %{letter}").stdout
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in listed.splitlines()}


def test_an_mpi_program_on_two_nodes_continues_where_all_ranks_were(jobs: Jobs) -> None:
    (jobs.slurm.output / "together.py").write_text(TOGETHER)
    job = jobs.submit(BY_MPIRUN, "--nodes=2", "--ntasks-per-node=1", "--comment=omfs:method=dmtcp,application")

    def counts() -> list[list[int]]:
        paths = [jobs.slurm.output / f"count-{job}-{rank}" for rank in range(2)]
        return [[int(line) for line in path.read_text().splitlines()] if path.exists() else [] for path in paths]

    def seen() -> str:
        return f"both ranks to count on: {[len(one) for one in counts()]}\n{jobs.output(job)}"

    def counts_further() -> None:
        before = counts()
        wait_until(lambda: all(len(now) > len(then) + 5 for now, then in zip(counts(), before, strict=True)), seen)

    jobs.until_reported(job, 0, "ready")
    counts_further()
    jobs.ask(job)
    jobs.until_held(job)
    assert jobs.until_reported(job, 0, "stopped").fields["method"] == "application"
    jobs.release(job)
    jobs.until_reported(job, 1, "ready")
    counts_further()
    assert "ExitCode=7:0" in jobs.end(job)
    assert all(no_gap_no_repeat(one) for one in counts())
    nodes = {line.split()[-1] for line in jobs.output(job).splitlines() if line.startswith("rank ")}
    assert len(nodes) == 2, jobs.output(job)


def test_a_tool_for_one_node_is_not_used_in_a_job_of_two(jobs: Jobs) -> None:
    job = jobs.submit(EXEC.replace("application", "dmtcp"), "--nodes=2")
    assert jobs.until_reported(job, 0, "failed").fields["why"] == "several_nodes"
    jobs.until_counted(job)
    assert "method dmtcp cannot be used here: the job has 2 nodes" in jobs.output(job)
