"""OMFS against what it replaces: figures worked out by hand, what is written, and the paper's claims that hold."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import count
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from omfs_daemon.accounting.arrays import Ints
from omfs_daemon.cli.main import app
from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.scenario import Machine, owners
from omfs_daemon.simulate.experiments.experiment_setup import ExperimentSetup
from omfs_daemon.simulate.experiments.zvi2021.claims import bound, claims, late
from omfs_daemon.simulate.experiments.zvi2021.figures import Sharing, sharing
from omfs_daemon.simulate.experiments.zvi2021.own_share import own_share
from omfs_daemon.simulate.experiments.zvi2021.workloads import (
    LOAD,
    SQUEEZED,
    TRACE,
    ZviStudy,
    from_model,
    from_model_with_wide,
    recorded,
)
from omfs_daemon.simulate.experiments.zvi2021.zvi2021 import run_zvi2021, simulate_zvi2021, write_zvi2021
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import (
    BASELINES,
    CAPPING,
    LATE,
    OMFS,
    PARTITION,
    SWEPT,
    Variant,
    ZviResults,
    zvi2021_scenario,
)
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.results.result_rows import COLUMNS
from omfs_daemon.simulate.workload.workload import workload
from tests.support.traces import DIRECTORY, needs_traces

JOBS = 1500
SEEDS = (0, 1, 2)


def halves(jobs: list[tuple[float, int, float, int]]) -> ZviStudy:
    """Four CPUs, two for a and two for b. Jobs: submitted, CPUs, run, account; a checkpoint of each takes 5 s."""
    submit, cpus, run, account = (np.array(column) for column in zip(*jobs, strict=True))
    tree = AccountTree(Entitlement(name, Fraction(50)) for name in "ab")
    # 31.25 MB/s for each CPU.
    memory = cpus * 5 * 31.25e6
    jobs_ = workload("halves", submit, cpus, run, accounts=("a", "b"), account=account, memory=memory)
    return ZviStudy(jobs_, Machine(4), tree, 0, 0.0)


# b fills the machine at time 0; at time 10 a asks for what it owns.
LENT = halves([(0.0, 1, 1000.0, 1)] * 4 + [(10.0, 2, 100.0, 0)])


def result(study: ZviStudy, variant: Variant) -> Sharing:
    outcome = policy_named(variant.policy).simulate(zvi2021_scenario(study, variant))
    return sharing(outcome, {study.name: study.tree})


def test_a_kill_after_the_quantum_by_hand():
    """Two of b's jobs are killed at 60; a runs from 60 to 160; they begin anew and end at 1160."""
    found = result(LENT, Variant("omfs", "kill", 60.0))
    assert found.own_share.tolist() == [50.0]
    assert found.row.preemptions == 2
    assert found.row.makespan == 1160.0
    assert found.row.lost_cpu_hours == pytest.approx(2 * 60 / 3600)
    assert found.row.preemption_cpu_hours == 0.0
    assert found.row.productive_utilisation == pytest.approx(4200 / (4 * 1160))
    assert found.row.utilisation == pytest.approx(4320 / (4 * 1160))
    a, b = found.accounts
    assert (a.account, a.owned, a.mean_wait, a.own_share_spells, a.own_share_longest) == ("a", 2, 50.0, 1, 50.0)
    assert (b.own_share_spells, b.own_share_hours) == (0, 0.0)
    assert found.latest is not None
    assert found.latest[:3] == (2, 2, 50.0)


def test_a_checkpoint_after_quantum_and_latency_by_hand():
    """Decided at 60, signaled at 67, written by 72; a runs until 172; both are read for 5 s and go on for 933 s."""
    found = result(LENT, Variant("omfs", quantum=60.0, latency=7.0))
    assert found.own_share.tolist() == [62.0]
    assert found.row.longest_preemption == 5.0
    assert found.row.makespan == 172 + 5 + 933
    assert found.row.lost_cpu_hours == 0.0
    assert found.row.preemption_cpu_hours == pytest.approx(2 * (5 + 5) / 3600)
    assert bound(Variant("omfs", quantum=60.0, latency=7.0), found.row) == 72.0


def test_a_partition_by_hand():
    """b's jobs go two by two, a starts at once; up to the last submission, at 10, b's half worked."""
    found = result(LENT, PARTITION)
    assert len(found.own_share) == 0
    assert found.row.makespan == 2000.0
    assert found.row.utilisation == pytest.approx(4200 / 8000)
    assert found.row.delivered == pytest.approx(0.5)


def test_the_worst_wait_tells_who_began_meanwhile():
    """First come, first served: a's job waits from 10 to 1000 behind b's; nothing may pass it."""
    found = result(LENT, Variant("fcfs"))
    assert found.own_share.tolist() == [990.0]
    assert found.latest == (2, 2, 990.0, 0, 0)


def test_no_job_waits_for_its_own_share_that_does_not_fit_into_what_is_missing():
    """a holds one CPU of its two until 500; its job of two CPUs is owed nothing until then, although a is below."""
    study = halves([(0.0, 1, 1000.0, 1)] * 3 + [(0.0, 1, 500.0, 0), (0.0, 2, 50.0, 0)])
    outcome = policy_named("fcfs").simulate(zvi2021_scenario(study, Variant("fcfs")))
    owner = owners(study.workload, study.tree)
    own = own_share(outcome, owner, np.array(study.tree.entitled(4)))
    # By submission, ties in order: the last job waits from 0, and for its own share from 500 to 1000.
    assert own.seconds.tolist() == [0.0, 0.0, 0.0, 0.0, 500.0]
    assert own.until[4] == 1000.0
    assert own.total.tolist()[:2] == [500.0, 0.0]
    assert result(study, Variant("fcfs")).accounts[0].below_hours == pytest.approx(1000 / 3600)


def second_by_second(outcome: Outcome, owner: Ints, entitled: Ints) -> tuple[list[int], list[int]]:
    """Slowly: for each job the longest run of seconds in which it waits and would fit; for each account how many
    seconds there are in which one of its jobs does. All times are whole."""
    jobs, held = outcome.workload, outcome.segments
    longest, current = [0] * len(jobs), [0] * len(jobs)
    owed = [0] * len(entitled)
    for second in range(int(held.end.max())):
        running = set(held.job[(held.begin <= second) & (second < held.end)].tolist())
        room = [
            own - sum(int(jobs.cpus[job]) for job in running if owner[job] == at) for at, own in enumerate(entitled)
        ]
        waits = [
            job not in running
            and jobs.submit[job] <= second < outcome.finish[job]
            and jobs.cpus[job] <= room[owner[job]]
            for job in range(len(jobs))
        ]
        current = [before + 1 if is_waiting else 0 for before, is_waiting in zip(current, waits, strict=True)]
        longest = [max(pair) for pair in zip(longest, current, strict=True)]
        for account in range(len(entitled)):
            owed[account] += any(waits[job] for job in range(len(jobs)) if owner[job] == account)
    return longest, owed


@pytest.mark.parametrize("variant", [Variant("fcfs"), Variant("easy"), Variant("omfs", "kill", 7.0)])
def test_waits_for_ones_own_share_agree_with_counting_seconds(variant: Variant):
    seen = 0
    for seed in range(40):
        draw = np.random.default_rng(seed)
        columns = (draw.integers(0, 40, 15), draw.integers(1, 4, 15), draw.integers(1, 25, 15), draw.integers(0, 2, 15))
        study = halves([(float(a), int(b), float(c), int(d)) for a, b, c, d in zip(*columns, strict=True)])
        outcome = policy_named(variant.policy).simulate(zvi2021_scenario(study, variant))
        owner, entitled = owners(study.workload, study.tree), np.array(study.tree.entitled(4))
        own = own_share(outcome, owner, entitled)
        longest, owed = second_by_second(outcome, owner, entitled)
        assert own.seconds.tolist() == longest
        assert own.total.tolist() == owed
        seen += sum(longest)
    assert seen > 20


def test_only_jobs_that_partition_refuses_are_left_out_and_the_load_is_of_the_others():
    kept, everything = from_model(3, JOBS), from_model_with_wide(3, JOBS)
    owned = np.array(kept.tree.entitled(kept.machine.cpus))
    assert 0 < kept.left_out == len(everything.workload) - len(kept.workload)
    assert (kept.workload.cpus <= owned[owners(kept.workload, kept.tree)]).all()
    assert (everything.workload.cpus > owned[owners(everything.workload, everything.tree)]).sum() == kept.left_out
    assert kept.load == pytest.approx(LOAD, rel=0.02)
    assert everything.load == pytest.approx(LOAD, rel=0.02)
    again = from_model(3, JOBS)
    assert all((getattr(again.workload, name) == getattr(kept.workload, name)).all() for name in ("submit", "account"))


@pytest.fixture(scope="module")
def small() -> ZviResults:
    return simulate_zvi2021([from_model(seed, JOBS) for seed in SEEDS], [from_model_with_wide(0, JOBS)])


@pytest.fixture(scope="module")
def written(small: ZviResults, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_zvi2021(tmp_path_factory.mktemp("zvi2021"), small)


def test_results_have_one_row_a_workload_and_policy_and_begin_with_the_agreed_columns(small: ZviResults, written: Path):
    rows = pl.read_csv(written.parent / "results.csv")
    header = (
        "workload,policy,jobs,urgent_jobs,mean_response,mean_slowdown,mean_bounded_slowdown,urgent_mean_slowdown,U_L,"
        "preemptions,utilisation,makespan"
    )
    assert ",".join(rows.columns[:12]) == header == ",".join(COLUMNS)
    assert not rows.select("workload", "policy").is_duplicated().any()
    generated = rows.filter(workload="generated-0")
    variants = dict.fromkeys((*BASELINES, *SWEPT, *LATE))
    assert generated["policy"].to_list() == [variant.name for variant in variants]
    assert {"partition", "capping", "fcfs", "easy", "omfs", "omfs-q600", "omfs-kill", "omfs-swap-q0"} <= set(
        generated["policy"]
    )
    assert generated["U_L"].null_count() == len(generated)  # nobody is urgent
    row = generated.row(by_predicate=pl.col("policy") == "omfs-q600", named=True)
    expected = small.results["generated-0", Variant("omfs", quantum=600.0)].row
    assert (row["preemptions"], row["utilisation"]) == (expected.preemptions, pytest.approx(expected.utilisation))


def test_the_page_tells_every_claim_and_names_plots_that_exist(small: ZviResults, written: Path):
    text = written.read_text()
    for claim in claims(small):
        assert claim.measured in text
    assert "None was given; say with --traces DIR or OMFS_TRACES" in text
    names = [part.split(")")[0] for part in text.split("](")[1:]]
    assert len(names) > 8
    assert all((written.parent / name).is_file() for name in names)
    assert "nan" not in text


def test_the_same_seed_writes_the_same_files(tmp_path: Path):
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
        write_zvi2021(tmp_path / name, simulate_zvi2021([from_model(0, 400)]))
    files = sorted(path.name for path in (tmp_path / "once").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "again").iterdir())
    assert len(files) > 8
    for name in files:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


# -- claims that hold, on generated workloads ---
def test_omfs_uses_the_machine_at_least_as_well_as_walls_do(small: ZviResults):
    """Jobs that keep their work when they are preempted; a workload of days, so that its last job does not decide."""
    kept = [variant for variant in SWEPT if variant.method != "kill"]
    for study in small.generated:
        walls = [small.results[study.name, variant].row.utilisation for variant in (PARTITION, CAPPING)]
        for variant in kept:
            assert small.results[study.name, variant].row.productive_utilisation >= max(walls), variant.name


def test_no_job_waits_for_its_own_share_longer_than_a_quantum_and_two_preemptions(small: ZviResults):
    """All jobs can be preempted, none is wider than a quarter of the machine, preemptions are not limited."""
    waited = 0
    for study in small.generated:
        for variant in SWEPT:
            one = small.results[study.name, variant]
            waited += len(one.own_share)
            assert late(variant, one, preemptions=2) == 0, variant.name
            if variant.method == "kill":  # takes no time, so there is no other preemption to wait for
                assert late(variant, one) == 0
    assert waited > 1000
    # Where nothing is taken back, jobs wait longer: the figure can tell.
    queues = [small.results[study.name, variant] for study in small.generated for variant in BASELINES[2:]]
    assert all(one.row.own_share_longest > bound(OMFS, one.row) for one in queues)


def test_every_account_waits_less_than_in_its_own_partition(small: ZviResults):
    for study in small.generated:
        ours, walls = (small.results[study.name, variant].accounts for variant in (OMFS, PARTITION))
        assert all(row.mean_wait <= wall.mean_wait for row, wall in zip(ours, walls, strict=True))


def test_jobs_wider_than_their_accounts_share_are_done(small: ZviResults):
    study = small.wide[0]
    wide = small.generated[0].left_out
    assert small.results[study.name, OMFS].wide == wide > 0


# -- the whole, and from the command line ---
def test_without_a_trace_it_runs_on_generated_workloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("omfs_daemon.simulate.experiments.zvi2021.zvi2021.SEEDS", 1)
    ticks: Iterator[int] = count()
    reported: list[str] = []
    page, seconds = run_zvi2021(
        ExperimentSetup(
            None,
            {},
            tmp_path,
            1,
            lambda done, total, name: reported.append(f"{done}/{total} {name}"),
            lambda: next(ticks),
        )
    )
    assert page == tmp_path / "index.md"
    assert seconds == 1
    assert reported[-1].startswith(f"{len(reported)}/{len(reported)} generated-wide-0")


def test_a_trace_that_is_not_there_is_named_with_who_offers_it(tmp_path: Path):
    typed = CliRunner().invoke(app, ["experiment", "zvi2021", "--out", str(tmp_path), "--traces", str(tmp_path)])
    assert typed.exit_code != 0
    assert TRACE in typed.output
    assert "Parallel Workloads Archive" in typed.output


@needs_traces
def test_the_recorded_workload_keeps_what_partition_can_run_and_is_squeezed_to_a_load():
    plain, dense = recorded(DIRECTORY / TRACE)
    assert (len(plain.workload), plain.left_out) == (82_823, 2_222)
    assert dense.load == pytest.approx(SQUEEZED)
    assert plain.load == pytest.approx(0.5455, abs=1e-3)
    owned = np.array(plain.tree.entitled(plain.machine.cpus))
    assert (plain.workload.cpus <= owned[owners(plain.workload, plain.tree)]).all()
    few = replace(plain, workload=plain.workload.take(np.arange(len(plain.workload)) < 500))
    assert simulate_zvi2021([from_model(0, JOBS)], recorded=[few]).results["sdsc-ds", OMFS].row.jobs == 500
