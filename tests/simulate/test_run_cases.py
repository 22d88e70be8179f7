"""Many simulations at once: the same results from any number of workers, and an error names the case that failed."""

import os
from pathlib import Path

import numpy as np
import pytest

from omfs_daemon.errors import ConfigError, GatewayError
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.results.result_rows import Figures, figures
from omfs_daemon.simulate.run_cases import SlurmArray, SweepCase, SweepError, run_all
from omfs_daemon.simulate.workload.workload import workload


def scenario(jobs: int, seed: int = 0) -> Scenario:
    generator = np.random.default_rng(seed)
    submit = np.cumsum(generator.integers(0, 30, jobs)).astype(np.float64)
    return Scenario(
        workload(
            f"{jobs} jobs", submit, generator.integers(1, 9, jobs), generator.integers(1, 200, jobs).astype(float)
        ),
        Machine(8),
    )


CASES = [SweepCase(f"case {jobs}", policy, scenario(jobs)) for jobs in (200, 3, 50) for policy in ("fcfs", "easy")]


def refuse_small(outcome: Outcome) -> int:
    if len(outcome.workload) < 10:
        raise ValueError("too few")
    return len(outcome.workload)


def mean_responses(found: list[Figures]) -> list[tuple[str, str, float]]:
    return [(figure.row.workload, figure.row.policy, figure.row.mean_response) for figure in found]


def test_two_workers_give_what_one_gives_in_the_order_of_the_cases():
    alone = mean_responses(run_all(CASES, figures, 1))
    assert mean_responses(run_all(CASES, figures, 2)) == alone
    assert [name for name, _, _ in alone] == [case.scenario.workload.name for case in CASES]
    assert len({response for _, _, response in alone}) > 3


@pytest.mark.parametrize("workers", [1, 2])
def test_a_case_that_fails_is_named(workers: int):
    with pytest.raises(SweepError, match=r"^case 3 under (fcfs|easy): ValueError: too few$"):
        run_all(CASES, refuse_small, workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_policy_that_is_not_known_is_named_with_its_case_before_anything_runs(workers: int):
    seen: list[str] = []
    cases = [*CASES, SweepCase("the last", "fifo", scenario(5))]
    with pytest.raises(SweepError, match=r"^the last under fifo: policy 'fifo' is not known: one of fcfs, "):
        run_all(cases, figures, workers, lambda done, total, name: seen.append(name))
    assert not seen


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_is_reported_once_for_each_case(workers: int):
    seen: list[tuple[int, int, str]] = []
    run_all(CASES, figures, workers, lambda done, total, name: seen.append((done, total, name)))
    assert [(done, total) for done, total, _ in seen] == [(done, len(CASES)) for done in range(1, len(CASES) + 1)]
    assert sorted(name for _, _, name in seen) == sorted(case.name for case in CASES)


def test_no_cases_no_results():
    assert run_all([], figures, 2) == []


def test_workers_must_be_some():
    with pytest.raises(ConfigError, match="workers = 0: must be at least 1"):
        run_all(CASES, figures, 0)


def test_submitit_runs_the_same(tmp_path: Path):
    """Its local executor writes, runs and collects the very files that the one for Slurm does."""
    cases = CASES[2:]
    through = run_all(cases, figures, SlurmArray(tmp_path, "any", cluster="local"))
    assert mean_responses(through) == mean_responses(run_all(cases, figures, 1))
    assert list(tmp_path.glob("*_submitted.pkl"))


def test_submitit_names_a_case_that_fails(tmp_path: Path):
    with pytest.raises(SweepError, match="case 3 under fcfs: ValueError: too few"):
        run_all([CASES[2]], refuse_small, SlurmArray(tmp_path, "any", cluster="local"))


def test_a_job_array_that_sbatch_refuses_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("srun", "sbatch"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'sbatch: error: invalid partition: nope' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(
        GatewayError, match=r"^partition nope: Slurm took no job: sbatch: error: invalid partition: nope$"
    ):
        run_all([CASES[2]], figures, SlurmArray(tmp_path / "files", "nope"))
    assert capfd.readouterr().err == ""


def test_a_machine_without_slurm_takes_no_job_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GatewayError, match=r"^partition any: Slurm took no job: .*srun"):
        run_all([CASES[2]], figures, SlurmArray(tmp_path / "files", "any"))
