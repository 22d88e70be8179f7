"""Advice on time limits: what is far too high, and what lower limits would have done to the waits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.cli.simulation import advise as advise_command
from omfs_daemon.config.build import rules
from omfs_daemon.config.schema import Config
from omfs_daemon.errors import DeniedError, NothingFound
from omfs_daemon.simulate.comparison import Side, replayed
from omfs_daemon.simulate.limit_advice import advised_limits
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.workload.workload import Workload, workload

CPUS = 8


def side(jobs: Workload) -> Side:
    return Side(replayed(jobs, CPUS, rules(Config(), ())), policy_named("conservative"))


def recorded(limit: float = 36_000.0, slow: float = 1000.0) -> Workload:
    """Twenty small jobs of alice's, each behind a wide one of bob's that cannot start yet: only with a short limit do
    they fit before it."""
    submit, cpus, run, limits, user, name = [], [], [], [], [], []
    for turn in range(20):
        at = turn * 20_000.0
        for delay, wide, seconds, asked, who in (
            (0.0, 4, 5000.0, 5400.0, 1),
            (10.0, 8, 5000.0, 5400.0, 1),
            (20.0, 2, slow if turn == 19 else 900.0 + turn, limit, 0),
        ):
            submit.append(at + delay)
            cpus.append(wide)
            run.append(seconds)
            limits.append(asked)
            user.append(who)
            name.append(who)
    return workload(
        "made",
        np.array(submit),
        np.array(cpus),
        np.array(run),
        limit=np.array(limits),
        users=("alice", "bob"),
        user=np.array(user),
        job_names=("train_#", "wide"),
        job_name=np.array(name),
    )


def test_a_limit_with_a_fifth_to_spare_lets_jobs_start_before_wide_ones() -> None:
    found = advised_limits(side(recorded()), "alice")
    (row,) = found.rows
    assert (row.user, row.name, row.jobs, row.limit) == ("alice", "train_#", 20, 36_000)
    assert (row.p50, row.p99) == (909, 1000)
    assert row.suggested == 1200 and row.longer == 0
    assert row.wait_before == pytest.approx(9980, abs=60), "behind both of bob's"
    assert row.wait_after == 0, "beside the first of bob's"
    assert found.wait_after < found.wait_before


def test_limits_that_fit_are_left_and_change_nothing() -> None:
    found = advised_limits(side(recorded(limit=1400.0)), None)
    assert {row.user: row.suggested for row in found.rows} == {"alice": None, "bob": None}
    assert found.wait_before == found.wait_after
    assert all(row.wait_before is None for row in found.rows)


def test_jobs_that_reach_their_limit_keep_it() -> None:
    jobs = recorded(limit=1000.0, slow=5000.0)
    (row,) = advised_limits(side(jobs), "alice").rows
    assert row.p99 == 1000, "ended at the limit: nobody knows how long it would have run"
    assert row.suggested is None


def test_of_few_jobs_nothing_is_said() -> None:
    with pytest.raises(NothingFound, match="no 10 jobs of carol of one name"):
        advised_limits(side(recorded()), "carol")
    with pytest.raises(NothingFound, match="no 10 jobs of one name"):
        advised_limits(side(recorded().take(np.arange(9))), None)


def saved(directory: Path) -> Path:
    path, jobs = directory / "log.csv", recorded()
    head = "job_id,submit,cpus,run,limit,user,name\n"
    rows = zip(jobs.submit, jobs.cpus, jobs.run, jobs.limit, jobs.user, strict=True)
    users, names = ("alice", "bob"), ("train_7", "wide")
    lines = [
        f"{at},{submit},{cpus},{run},{limit},{users[user]},{names[user]}\n"
        for at, (submit, cpus, run, limit, user) in enumerate(rows, start=1)
    ]
    path.write_text(head + "".join(lines))
    return path


def test_the_command_reads_a_trace_and_prints_both(tmp_path: Path) -> None:
    path = saved(tmp_path)
    words = ["advise", "--trace", str(path), "--procs", str(CPUS)]
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, words)
    assert shown.exit_code == 0, shown.stderr
    assert "alice" in shown.stdout and "20 min" in shown.stdout
    answer = json.loads(CliRunner().invoke(app, [*words, "--user", "alice", "--json"]).stdout)
    assert [(row["user"], row["suggested"], row["wait_after"]) for row in answer["rows"]] == [("alice", 1200, 0)]
    none = CliRunner().invoke(app, [*words, "--user", "carol"])
    assert none.exit_code == 1 and none.stderr.count("\n") == 1
    assert "jobs that Slurm shows you" not in shown.stdout, "a trace is read whole"


def test_jobs_wider_than_the_machine_are_counted(tmp_path: Path) -> None:
    words = ["advise", "--trace", str(saved(tmp_path)), "--procs"]
    some = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*words, "4"])
    assert some.exit_code == 0, some.stderr
    assert "jobs that are wider than the machine, and were not replayed: 20" in some.stdout
    assert json.loads(CliRunner().invoke(app, [*words, "4", "--json"]).stdout)["wider"] == 20
    none = CliRunner().invoke(app, [*words, "1"])
    assert (none.exit_code, none.stderr) == (1, "omfs: no job of this period fits on the machine (--procs)\n")


def test_others_jobs_are_for_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    assert advise_command._whose(None, Config()) is None, "root sees everybody's"
    monkeypatch.setattr("os.geteuid", lambda: 65534)
    monkeypatch.setattr("os.getegid", lambda: 65534)
    assert advise_command._whose(None, Config()) == "nobody"
    with pytest.raises(DeniedError, match="for operators"):
        advise_command._whose("root", Config())
    own = Config.model_validate({"daemon": {"user": "nobody"}})
    assert advise_command._whose("root", own) == "root", "omfsd's own user is an operator"
    monkeypatch.setattr("os.geteuid", lambda: 1_999_999_999)
    assert advise_command._whose(None, Config()) == "1999999999", "a uid without a name"
