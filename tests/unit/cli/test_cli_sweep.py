"""``omfs sweep`` as people and scripts call it."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from omfs_daemon.cli.main import app
from omfs_daemon.simulate import parameter_sweep
from tests.unit.cli.test_cli_simulate import TRACE, one_line

COLUMNS = [
    "workload", "policy", "jobs", "urgent_jobs", "mean_response", "mean_slowdown", "mean_bounded_slowdown",
    "urgent_mean_slowdown", "U_L", "preemptions", "utilisation", "makespan",
    "procs", "estimates", "quantum", "latency", "seed", "load",
]  # fmt: skip


def omfs(*words: object) -> Result:
    return CliRunner().invoke(app, ["sweep", *map(str, words)], env={"OMFS_CONFIG": None})


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "site.swf"
    path.write_text(TRACE)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results"


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "results.csv").open() as file:
        return list(csv.DictReader(file))


def columns(out: Path, *names: str) -> list[tuple[str, ...]]:
    return [tuple(row[name] for name in names) for row in rows(out)]


def test_options_are_crossed_in_order_and_only_policies_with_preemption_for_quanta(trace: Path, out: Path):
    words = ("--policy", "fcfs", "--policy", "omfs", "--quantum", 60, "--quantum", 600, "--seed", 1, "--seed", 2)
    result = omfs("--trace", trace, *words, "--out", out)
    assert result.exit_code == 0, result.output
    assert list(rows(out)[0]) == COLUMNS
    assert columns(out, "policy", "quantum", "latency", "seed") == [
        ("fcfs", "", "", "1"),
        ("fcfs", "", "", "2"),
        ("omfs", "60.0", "0.0", "1"),
        ("omfs", "60.0", "0.0", "2"),
        ("omfs", "600.0", "0.0", "1"),
        ("omfs", "600.0", "0.0", "2"),
    ]
    assert set(columns(out, "workload", "jobs", "procs", "load")) == {("site.swf", "3", "4", "")}
    assert result.output.count("at one instant: ends, then arrivals, then one scheduling pass") == 1
    assert "where jobs are preempted: between a decision and the first signal to a job: 0 s" in result.output
    assert "before it may be preempted for an entitled one" not in result.output


def test_estimates_and_machines_count(trace: Path, out: Path):
    """On two CPUs the job of four is refused; the jobs of 50 s and 10 s run one after the other, or side by side."""
    words = ("--policy", "fcfs", "--procs", 4, "--procs", 2, "--estimates", "user", "--estimates", "exact")
    result = omfs("--trace", trace, *words, "--out", out)
    assert result.exit_code == 0, result.output
    assert columns(out, "procs", "estimates", "makespan") == [
        ("4", "user", "90.0"), ("4", "exact", "90.0"), ("2", "user", "60.0"), ("2", "exact", "60.0")
    ]  # fmt: skip
    assert "jobs were refused, and are in no mean, in 2 rows: up to 1 in a row" in result.output


def test_generated_workloads_by_machine_seed_and_load_and_any_number_of_workers(tmp_path: Path):
    words = (
        "--generate",
        60,
        "--procs",
        32,
        "--policy",
        "easy",
        "--load",
        0.5,
        "--load",
        0.9,
        "--seed",
        1,
        "--seed",
        2,
    )
    for workers in (1, 2):
        result = omfs(*words, "--workers", workers, "--out", tmp_path / str(workers), "--json")
        assert result.exit_code == 0, result.output
    assert (tmp_path / "1" / "results.csv").read_bytes() == (tmp_path / "2" / "results.csv").read_bytes()
    assert columns(tmp_path / "1", "seed", "load") == [("1", "0.5"), ("1", "0.9"), ("2", "0.5"), ("2", "0.9")]
    assert len(set(columns(tmp_path / "1", "makespan"))) == 4
    told = json.loads(result.stdout)
    assert [list(row) for row in told["results"]] == [COLUMNS] * 4
    assert told["results"][0]["U_L"] is None


def test_a_trace_is_read_once_and_a_value_given_twice_counts_once(
    trace: Path, out: Path, monkeypatch: pytest.MonkeyPatch
):
    read = []
    real = parameter_sweep.sourced
    monkeypatch.setattr(parameter_sweep, "sourced", lambda *given: read.append(given) or real(*given))
    words = ("--policy", "fcfs", "--policy", "easy", "--policy", "fcfs", "--procs", 4, "--procs", 8)
    assert omfs("--trace", trace, *words, "--out", out).exit_code == 0
    assert len(read) == 1
    assert columns(out, "policy", "procs") == [("fcfs", "4"), ("fcfs", "8"), ("easy", "4"), ("easy", "8")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "fifo"), "policy 'fifo' is not known: one of fcfs, "),
        (("--quantum", "nan"), "--quantum = nan: must be seconds from 0"),
        (("--latency", "0", "--latency", "-1"), "--latency = -1: must be seconds from 0"),
        (("--procs", "4", "--procs", "0"), "a machine of 0 CPUs (--procs)"),
        (("--estimates", "good"), "--estimates = 'good': must be one of user, exact, mean"),
        (("--seed", "9" * 20), "must be 9,007,199,254,740,991 at most"),
        (("--load", "0.5"), "--load is only for --generate"),
        (("--generate", "50"), "either --trace FILE or --generate JOBS is needed, and not both"),
        (("--method", "hope"), "--method = 'hope': must be one of never"),
        (tuple(word for seed in range(1001) for word in ("--seed", str(seed))), "1,001 combinations: 1,000 at most"),
        (("--out", ""), "a directory is needed, not nothing"),
    ],
)
def test_wrong_input_is_one_line_before_anything_is_run(
    trace: Path, out: Path, words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
):
    def never(*_: object) -> None:
        raise AssertionError("something was run")

    monkeypatch.setattr("omfs_daemon.simulate.run_cases.run_all", never)
    one_line(omfs("--trace", trace, "--policy", "fcfs", "--out", out, *words), said)


def test_more_generated_jobs_than_memory_holds_are_one_line(out: Path):
    words = ("--generate", 6_000_000, "--procs", 64, "--policy", "fcfs", "--seed", 1, "--seed", 2)
    one_line(omfs(*words, "--out", out), "2 generated workloads have 12,000,000 jobs: 10,000,000 at most")
