"""``omfs simulate`` as people and scripts call it."""

import json
import os
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from omfs_daemon.cli.main import app
from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.engine.conventions import UserLimits
from omfs_daemon.simulate.engine.preemption_costs import Spread
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.options import SimulationOptions, scenario_for
from omfs_daemon.simulate.workload.source import mode_named
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload, workload
from tests.support.traces import DIRECTORY, needs_traces

# job, submit, wait, run, processors, -, -, processors asked, seconds asked, -, status, user, group, -, queue, -, -, -
TRACE = """\
; MaxProcs: 4
1 100 -1 50 2 -1 -1 2 60 -1 1 1 7 -1 0 -1 -1 -1
2 101 -1 90 4 -1 -1 4 30 -1 1 2 8 -1 1 -1 -1 -1
3 102 -1 10 2 -1 -1 2 20 -1 1 1 7 -1 0 -1 -1 -1
"""
URGENT = "job_id,submit,procs,runtime\n1,3,4,10\n"


def omfs(*words: object) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, words)], env={"OMFS_CONFIG": None})


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "site.swf"
    path.write_text(TRACE)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results" / "first"


def rows(out: Path) -> list[dict[str, str]]:
    heading, *lines = (out / "jobs.csv").read_text().splitlines()
    return [dict(zip(heading.split(","), line.split(","), strict=True)) for line in lines]


def summary(out: Path) -> dict:
    return json.loads((out / "summary.json").read_text())


def column(out: Path, name: str) -> list[str]:
    return [row[name] for row in rows(out)]


def test_it_writes_all_files_and_reports_what_they_rest_on(trace: Path, out: Path):
    result = omfs("--trace", trace, "--policy", "fcfs", "--out", out)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in out.iterdir()) == [
        "jobs.csv", "jobs.parquet", "segments.parquet", "summary.json"
    ]  # fmt: skip
    assert column(out, "starting_time") == ["0.0", "50.0", "80.0"]
    assert column(out, "final_state")[1] == "COMPLETED_WALLTIME_REACHED"
    found = summary(out)
    assert found["machine"] == {"cpus": 4, "nodes": 0}
    assert found["makespan"] == 90.0
    for sentence in found["conventions"]:
        assert sentence in " ".join(result.output.split())
    assert "--procs not given: 4 CPUs, as the trace's header says" in found["conventions"]
    assert any("equal shares" in sentence for sentence in found["conventions"])
    assert str(out) in result.output.replace("\n", "")


def test_json_is_the_summary(trace: Path, out: Path):
    result = omfs("--trace", trace, "--policy", "easy", "--out", out, "--json")
    assert json.loads(result.stdout) == summary(out)


def test_no_kill_and_exact_estimates_count(trace: Path, out: Path):
    """Without the cut job 2 runs its 90 s; knowing that, EASY lets job 3 (10 s) pass it."""
    assert omfs("--trace", trace, "--policy", "easy", "--out", out, "--no-kill", "--estimates", "exact").exit_code == 0
    assert column(out, "execution_time") == ["50.0", "90.0", "10.0"]
    assert column(out, "starting_time") == ["0.0", "50.0", "2.0"]


def test_an_urgent_list_is_served_by_swapping(trace: Path, tmp_path: Path, out: Path):
    listed = tmp_path / "urgent.csv"
    listed.write_text(URGENT)
    words = ("--trace", trace, "--policy", "ujfb", "--urgent", listed, "--swap-out", "1:1", "--swap-in", "2:2")
    result = omfs(*words, "--out", out)
    assert result.exit_code == 0, result.output
    (urgent,) = (row for row in rows(out) if row["urgent"] == "1")
    assert (urgent["starting_time"], urgent["account"]) == ("4.0", "urgent")
    assert summary(out)["U_L"] == pytest.approx(1.1)
    assert summary(out)["preemptions"] >= 1
    assert "swaps take 1 to 1 s" in result.output


def test_queues_users_and_nodes_by_choice(trace: Path, out: Path):
    words = ("--trace", trace, "--policy", "ujf", "--urgent-queue", 1, "--accounts-from", "user", "--nodes", 2)
    assert omfs(*words, "--out", out).exit_code == 0
    assert column(out, "urgent") == ["0", "1", "0"]
    assert column(out, "account") == ["user1", "user2", "user1"]
    assert summary(out)["machine"] == {"cpus": 4, "nodes": 2}


@pytest.mark.parametrize("policy", ["fcfs", "omfs"])
def test_a_generated_workload_gives_the_same_files_for_the_same_seed(tmp_path: Path, policy: str):
    words = ("--generate", 60, "--procs", 32, "--policy", policy, "--accounts", 3, "--urgent-share", 0.1)
    for name, seed in (("first", 5), ("second", 5), ("other", 6)):
        assert omfs(*words, "--seed", seed, "--out", tmp_path / name).exit_code == 0
    for file in (tmp_path / "first").iterdir():
        assert file.read_bytes() == (tmp_path / "second" / file.name).read_bytes()
    assert column(tmp_path / "first", "submission_time") != column(tmp_path / "other", "submission_time")
    assert len(summary(tmp_path / "first")["accounts"]) == 3


def test_plots_only_when_they_are_asked_for(trace: Path, out: Path):
    assert omfs("--trace", trace, "--policy", "fcfs", "--out", out, "--plots").exit_code == 0
    assert (out / "utilisation.png").exists()
    assert (out / "accounts.svg").exists()


def test_a_trace_whose_name_is_no_text(trace: Path, tmp_path: Path, out: Path):
    named = trace.rename(os.fsdecode(os.fsencode(tmp_path) + b"/site\xff.swf"))
    assert omfs("--trace", named, "--policy", "fcfs", "--out", out, "--plots").exit_code == 0
    assert summary(out)["workload"] == "site?.swf"


def test_entitlements_and_quantum_of_a_daemons_configuration(trace: Path, tmp_path: Path, out: Path):
    toml = tmp_path / "omfs.toml"
    toml.write_text("[policy]\nquantum_seconds = 7\n[entitlements.group7]\npercent = 75\n")
    result = omfs("--trace", trace, "--policy", "omfs", "--config", toml, "--out", out)
    assert result.exit_code == 0, result.output
    owned = {account["name"]: account["entitled"] for account in summary(out)["accounts"]}
    assert owned == {"group7": 3, "(others)": 1}
    assert "a job runs 7 s before it may be preempted" in result.output
    # The option before the command is the same one.
    again = CliRunner().invoke(
        app, ["-c", str(toml), "simulate", "--trace", str(trace), "--policy", "omfs", "--out", str(tmp_path / "again")]
    )
    assert again.exit_code == 0, again.output
    assert summary(tmp_path / "again") == summary(out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "fifo"), "policy 'fifo' is not known: one of fcfs, "),
        (("--procs", "-3"), "a machine of -3 CPUs (--procs): must be from 1 to 20,000,000"),
        (("--procs", "9" * 20), f"a machine of {'9' * 20} CPUs (--procs): must be from 1 to 20,000,000"),
        (("--policy", "conservative", "--procs", str(10**11)), "a machine of 100000000000 CPUs (--procs)"),
        (("--procs", "4000000", "--nodes", "4000000"), "into equal nodes, 1,000,000 at most"),
        (("--swap-out", "1:1e11"), "0 <= LO <= HI <= 10,000,000,000"),
        (("--nodes", "3"), "--nodes = 3: must divide the 4 CPUs"),
        (("--swap-out", "2:1"), "--swap-out = '2:1': must be LO:HI in seconds"),
        (("--swap-in", "fast"), "--swap-in = 'fast': must be LO:HI in seconds"),
        (("--swap-in", "0:inf"), "--swap-in = '0:inf': must be LO:HI in seconds"),
        (("--estimates", "good"), "--estimates = 'good': must be one of user, exact, mean"),
        (("--method", "hope"), "--method = 'hope': must be one of never, kill, checkpoint, swap"),
        (("--bound", "0"), "--bound = 0: must be seconds above 0"),
        (("--latency", "-1"), "--latency = -1: must be seconds from 0 to 10,000,000,000"),
        (("--quantum", "nan"), "--quantum = nan: must be seconds from 0 to 10,000,000,000"),
        (("--quantum", "1e300"), "--quantum = 1e+300: must be seconds from 0 to 10,000,000,000"),
        (("--seed", "-1"), "--seed = -1: must be 0 or more"),
        (("--entitlement", "bio"), "--entitlement = 'bio': must be NAME=PERCENT"),
        (("--entitlement", "bio=150"), "--entitlement = 'bio=150': must be a number from 0 to 100"),
        (("--entitlement", "a=60", "--entitlement", "b=60"), "--entitlement: the accounts at the top add up to 120 %"),
        (("--processors", "all"), "processors: 'all' is not known"),
        (("--generate", "5"), "either --trace FILE or --generate JOBS is needed, and not both"),
        (("--out", ""), "a directory is needed, not nothing"),
        (("--urgent", "/nonexistent.csv"), "/nonexistent.csv"),
        (("--config", "/nonexistent.toml"), "/nonexistent.toml: cannot be read"),
    ],
)
def test_wrong_input_is_one_line(trace: Path, out: Path, words: tuple[str, ...], said: str):
    given = ("--trace", trace, "--out", out, *(() if "--policy" in words else ("--policy", "ujfb")), *words)
    one_line(omfs(*given), said)


def test_urgent_queues_of_a_trace_without_queues_are_one_line(tmp_path: Path, out: Path):
    listed = tmp_path / "jobs.csv"
    listed.write_text("job_id,submit,cpus,run\n1,0,1,1\n")
    words = ("--trace", listed, "--procs", 4, "--policy", "ujf", "--out", out)
    one_line(omfs(*words, "--urgent-queue", 1), "jobs.csv: --urgent-queue: only a trace in Standard Workload Format")


def test_what_may_be_a_slip_is_reported(trace: Path, tmp_path: Path, out: Path):
    """An account that no job has; urgent jobs with numbers of the trace; walls that leave hardly any job."""
    listed = tmp_path / "urgent.csv"
    listed.write_text(URGENT)
    given = ("--entitlement", "group7=20", "--entitlement", "grp8=80", "--urgent", listed)
    given += ("--urgent-queue", 1, "--urgent-queue", 9)
    result = omfs("--trace", trace, "--policy", "partition", *given, "--out", out)
    assert result.exit_code == 0
    sentences = summary(out)["conventions"]
    assert "accounts with an entitlement and without jobs: grp8" in sentences
    assert "the trace has jobs of the same numbers: 10 is added to those of the urgent jobs" in sentences
    refused = "refused as wider than what their account owns (--entitlement and --accounts-from say who owns what): 4"
    assert refused in sentences
    assert f"4 jobs; {refused}" in result.output
    assert "no job is in the urgent queue 9" in sentences
    assert omfs("--trace", trace, "--policy", "fcfs", "--procs", 2, "--out", out).exit_code == 0
    sentences = summary(out)["conventions"]
    assert "refused as wider than the machine: 1" in sentences
    assert not any("without jobs" in sentence or "same numbers" in sentence for sentence in sentences)


def test_a_missing_trace_is_one_line(tmp_path: Path, out: Path):
    one_line(omfs("--trace", tmp_path / "none.swf", "--policy", "fcfs", "--out", out), "none.swf: no such file")


def test_options_are_checked_before_the_trace_is_read(out: Path):
    words = ("--trace", "/nonexistent.swf", "--policy", "ujfb", "--out", out)
    one_line(omfs(*words, "--swap-out", "x"), "--swap-out = 'x'")
    one_line(omfs(*words, "--procs", 0), "a machine of 0 CPUs (--procs)")


def test_nothing_to_simulate_is_one_line(out: Path):
    one_line(omfs("--policy", "fcfs", "--out", out), "either --trace FILE or --generate JOBS is needed")


def test_a_machine_of_unknown_size_is_one_line(tmp_path: Path, out: Path):
    silent = tmp_path / "silent.swf"
    silent.write_text(TRACE.split("\n", 1)[1])
    one_line(omfs("--trace", silent, "--policy", "fcfs", "--out", out), "--procs is needed")
    one_line(omfs("--generate", 9, "--policy", "fcfs", "--out", out), "--procs is needed with --generate")


def test_malformed_lines_are_reported_and_refused_on_wish(trace: Path, out: Path):
    trace.write_text(TRACE + "4 what\n")
    result = omfs("--trace", trace, "--policy", "fcfs", "--out", out)
    assert result.exit_code == 0
    assert "1 malformed: line 5" in result.output
    one_line(omfs("--trace", trace, "--policy", "fcfs", "--out", out, "--strict"), "1 malformed: line 5")


def test_malformed_urgent_jobs_are_reported_and_refused_on_wish(trace: Path, tmp_path: Path, out: Path):
    listed = tmp_path / "urgent.csv"
    listed.write_text(URGENT + "2,3,many,10\n")
    words = ("--trace", trace, "--policy", "ujfb", "--urgent", listed, "--out", out)
    assert omfs(*words).exit_code == 0
    sentences = " ".join(summary(out)["conventions"])
    assert (
        "urgent.csv: 2 records, 1 kept, as urgent jobs on top left out: 1 malformed: line 3 (column procs" in sentences
    )
    one_line(omfs(*words, "--strict"), "urgent.csv: 1 malformed: line 3")


@pytest.mark.parametrize("policy", ["fcfs", "ujfb", "omfs"])
def test_a_machine_that_the_header_makes_absurd_is_one_line(trace: Path, out: Path, policy: str):
    trace.write_text(TRACE.replace("MaxProcs: 4", "MaxProcs: 999999999999"))
    said = "a machine of 999999999999 CPUs (--procs): must be from 1 to 20,000,000"
    one_line(omfs("--trace", trace, "--policy", policy, "--out", out), said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--accounts", 0), "--accounts = 0: must be from 1 to 1,000"),
        (("--accounts", 10**12), "--accounts = 1000000000000: must be from 1 to 1,000"),
        (
            ("--generate", 10**12),
            "1000000000000 is not allowed, only from 2 to 10,000,000",
        ),
        (("--load", 1e-300), "load of a generated workload: 1e-300 is not allowed, only from 0.001 to 1000"),
    ],
)
def test_what_no_model_generates_is_one_line(out: Path, words: tuple[object, ...], said: str):
    one_line(omfs("--generate", 60, "--procs", 32, "--policy", "fcfs", "--out", out, *words), said)


def test_an_output_that_cannot_be_written_is_reported_before_the_trace_is_read(tmp_path: Path):
    (tmp_path / "file").write_text("")
    one_line(omfs("--trace", "/nonexistent.swf", "--policy", "fcfs", "--out", tmp_path / "file"), "cannot be written")


def test_without_the_extra_it_reports_how_to_get_it(monkeypatch: pytest.MonkeyPatch, trace: Path, out: Path):
    monkeypatch.setitem(sys.modules, "polars", None)
    said = "simulations need polars: pip install 'omfs-daemon[sim]'"
    one_line(omfs("--trace", trace, "--policy", "fcfs", "--out", out), said)


@pytest.mark.parametrize("name", ["agung2021", "zvi2021"])
def test_an_array_job_of_slurm_needs_more_of_the_extra(monkeypatch: pytest.MonkeyPatch, out: Path, name: str):
    monkeypatch.setitem(sys.modules, "submitit", None)
    words = ("experiment", name, "--out", str(out), "--traces", "/nonexistent", "--slurm", "main")
    one_line(CliRunner().invoke(app, words), "simulations need submitit: pip install 'omfs-daemon[sim]'")


def one_line(result: Result, said: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("omfs: ")
    assert said in result.stderr


@needs_traces
@pytest.mark.parametrize(("kill", "wait", "slowdown"), [("--kill", 5614.44, 122.80), ("--no-kill", 5627.88, 122.98)])
def test_the_agreed_figures_of_hpc2n(out: Path, kill: str, wait: float, slowdown: float):
    path = DIRECTORY / "hpc2n-excerpt.swf.gz"
    result = omfs("--trace", path, "--policy", "fcfs", "--procs", 240, kill, "--out", out)
    assert result.exit_code == 0, result.output
    found = summary(out)
    assert found["jobs"] == 3145
    assert found["all"]["wait"]["mean"] == pytest.approx(wait, abs=0.005)
    assert found["all"]["slowdown"]["mean"] == pytest.approx(slowdown, abs=0.005)
    if kill == "--kill":
        assert found["makespan"] == 5309576
        assert found["all"]["bounded_slowdown"]["mean"] == pytest.approx(47.31, abs=0.005)


def three_accounts() -> Workload:
    """c has only an urgent job, d none."""
    return workload(
        "w", np.zeros(3), np.ones(3), np.ones(3), accounts=("a", "b", "c", "d"), account=np.array([0, 1, 2]),
        urgent=np.array([False, False, True]),
    )  # fmt: skip


def test_what_is_not_asked_for():
    scenario, notes = scenario_for(SimulationOptions(), three_accounts(), 64)
    assert scenario.machine == Machine(64)
    assert isinstance(scenario.conventions.estimates, UserLimits)
    assert scenario.conventions.kill
    assert scenario.rules.tree.entitlements == (Entitlement("a", Fraction(50)), Entitlement("b", Fraction(50)))
    assert scenario.rules.quantum == 1800.0
    assert len(notes) == 2


def test_what_is_asked_for_comes_before_the_header_and_the_configuration(tmp_path: Path):
    toml = tmp_path / "omfs.toml"
    toml.write_text("[policy]\nmax_preemptions_per_hour = 9\n[entitlements.a]\npercent = 10\n")
    asked = SimulationOptions(
        procs=8, nodes=2, estimates="exact", config=toml, entitlement=("b=12.5",), quantum=60.0, swap_in="0:3"
    )
    scenario, _ = scenario_for(asked, three_accounts(), 64)
    assert scenario.machine == Machine(8, 2)
    assert scenario.conventions.estimates is None
    assert scenario.rules.tree.entitlements == (Entitlement("b", Fraction(25, 2)),)
    assert (scenario.rules.quantum, scenario.rules.max_preemptions_per_hour) == (60.0, 9)
    assert scenario.costs.swap_in == Spread(0.0, 3.0)


def test_an_account_may_have_an_equals_sign_in_its_name():
    scenario, _ = scenario_for(SimulationOptions(entitlement=("a=b=5",)), three_accounts(), 64)
    assert scenario.rules.tree.entitlements == (Entitlement("a=b", Fraction(5)),)


def test_modes_by_name():
    assert mode_named("checkpoint") is PreemptMode.CHECKPOINT
    with pytest.raises(ConfigError, match="must be one of"):
        mode_named("Swap")
