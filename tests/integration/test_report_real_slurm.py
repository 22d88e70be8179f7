"""``omfs report`` on a scripted day in small, on a real Slurm with slurmdbd."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from omfs_daemon.accounting.sacct_rows import FULL_FIELDS
from omfs_daemon.cli.main import app
from omfs_daemon.daemon.api.callers import operators
from omfs_daemon.daemon.api.control_socket import ControlServer
from omfs_daemon.daemon.api.idle_hours_view import idle_hours_view
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.idle_hours import IdleShare
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.accounted_slurm import accounted_slurm
from tests.support.slurm_database import HOUR, shift_accounting
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("a day of accounting")]

SHAPE = Shape(nodes=2, cpus=4, gres="gpu:1", options={"AccountingStorageTRES": "gres/gpu"})
CORES = 8


@pytest.fixture
def slurm() -> Iterator[LocalSlurm]:
    with accounted_slurm(SHAPE) as slurm:
        yield slurm


def sacct(slurm: LocalSlurm, fields: str) -> list[list[str]]:
    printed = slurm.command("sacct", "-a", "-X", "-P", "-n", "-D", "-S", "now-1hour", f"--format={fields}").stdout
    return [line.split("|") for line in printed.splitlines()]


def day(slurm: LocalSlurm) -> int:
    """Array, chain, failed and canceled jobs, a drained node, and a job that drains the machine. The requeued job."""

    def submit(seconds: str, *options: str) -> int:
        return slurm.submit(seconds, "--output=/dev/null", "--time=5", *options)

    jobs = {"array": submit("sleep 2", "--array=1-4", "--account=bio", "--ntasks=1")}
    jobs["first"] = submit("sleep 1", "--account=physics", "--ntasks=2")
    jobs["second"] = submit("sleep 1", "--account=physics", f"--dependency=afterok:{jobs['first']}", "--ntasks=1")
    jobs["failed"] = submit("exit 3", "--account=bio", "--ntasks=1")
    jobs["canceled"] = submit("sleep 600", "--account=bio", "--ntasks=1", "--gres=gpu:1")
    jobs["never"] = submit("sleep 600", "--account=bio", f"--ntasks={CORES}")
    jobs["held"] = submit("sleep 600", "--account=bio", "--ntasks=1", "--hold")
    jobs["large"] = submit("sleep 1", "--account=physics", f"--ntasks={CORES}")
    wait_until(lambda: running(slurm, jobs["canceled"]), "the job to be canceled to run")
    slurm.command("scancel", *(str(jobs[name]) for name in ("never", "held", "canceled")))
    wait_until(lambda: not listed(slurm), "the jobs to end")
    jobs["requeued"] = submit("sleep 3", "--account=bio", "--ntasks=2", "--requeue")
    wait_until(lambda: running(slurm, jobs["requeued"]), "the job to be requeued to run")
    slurm.command("scontrol", "requeue", str(jobs["requeued"]))
    slurm.command("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
    slurm.command("scontrol", "update", f"jobid={jobs['requeued']}", "starttime=now")
    wait_until(lambda: not listed(slurm), "the requeued job to end")
    slurm.command("scontrol", "update", "nodename=n2", "state=resume")
    return jobs["requeued"]


def listed(slurm: LocalSlurm) -> str:
    return slurm.command("squeue", "-h", "-t", "all", "-o", "%i %t").stdout.replace("CD", "").strip() and (
        slurm.command("squeue", "-h", "-o", "%i").stdout.strip()
    )


def running(slurm: LocalSlurm, job: int) -> bool:
    return slurm.command("squeue", "-h", "-t", "R", "-j", str(job), "-o", "%i", check=False).stdout.strip() != ""


def answered(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def test_a_day_asked_for_and_saved(slurm: LocalSlurm, tmp_path: Path) -> None:
    begin = int(time.time()) - 1
    requeued = str(day(slurm))

    def knows_all() -> bool:
        rows = sacct(slurm, "JobIDRaw,End")
        return [row[0] for row in rows].count(requeued) == 2 and all(end != "Unknown" for _, end in rows)

    wait_until(knows_all, "slurmdbd to know both runs of the requeued job, and all ends")
    config = tmp_path / "omfs.toml"
    config.write_text(f'[slurm]\nconf = "{slurm.conf}"\n[daemon]\nstate_dir = "{tmp_path}"\n')
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(begin))
    found = answered("-c", str(config), "report", "--since", since, "--by", "account", "--large", "4")

    summary = found["summary"]
    # sacct does not list a job that was never eligible, as the held one.
    assert (summary["jobs"], summary["started"], summary["large_jobs"]) == (11, 10, 2)
    assert summary["ends"] == {"COMPLETED": 8, "CANCELLED": 2, "FAILED": 1, "REQUEUED": 1}
    assert summary["cores"] == CORES
    # What slurmdbd itself adds up for every run, those before a requeue too.
    seconds = sum(int(row[0]) for row in sacct(slurm, "CPUTimeRAW"))
    assert summary["used_core_hours"] * 3600 == pytest.approx(seconds, rel=0.005)
    assert sum(found["summary"]["shares"].values()) == pytest.approx(1.0)
    assert found["summary"]["down_core_hours"] > 0, "a node was drained"
    accounts = {row["value"]: row["jobs"] for row in found["waits"] if row["group"] == "account"}
    assert accounts == {"bio": 7, "physics": 3}
    held = [int(row[1]) for row in sacct(slurm, "AllocTRES,ElapsedRaw") if "gres/gpu=1" in row[0]]
    gpus = found["efficiency"][0]
    assert len(held) == 1, "one job had a GPU"
    assert gpus["gpu_hours"] * 3600 == pytest.approx(held[0])
    assert gpus["unused_gpu_hours"] is None, "nothing here measures how GPUs are used"
    chained = summary["waits"]
    assert chained["mean"] > chained["mean_eligible"], "the second of a chain was not eligible at once"

    saved = tmp_path / "day.sacct"
    names = ",".join(FULL_FIELDS)
    saved.write_text(slurm.command("sacct", "-a", "-X", "-P", "-D", "-S", since, f"--format={names}").stdout)
    again = answered("report", "--log", str(saved), "--procs", str(CORES), "--by", "account", "--large", "4")
    for key in ("waits", "ends", "efficiency"):
        assert again[key] == found[key]
    assert again["summary"]["used_core_hours"] == found["summary"]["used_core_hours"]

    begin = beside_sreport(slurm, begin)
    hour = (time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(edge)) for edge in (begin, begin + HOUR))
    options = dict(zip(("--since", "--until"), hour, strict=True))
    words = [word for option in options.items() for word in option]
    found = answered("-c", str(config), "report", "holes", "--all", *words)
    summary = found["summary"]
    assert (summary["sreport"]["begin"], summary["sreport"]["end"]) == (begin, begin + HOUR)
    assert summary["sreport"]["utilisation"] == pytest.approx(summary["sreport"]["ours"], rel=0.005)
    assert summary["utilisation"] == pytest.approx(summary["sreport"]["utilisation"], rel=0.005)
    assert found["all_holes"]["settings_source"] == "Slurm's own values"

    before = summary["shares"]
    with recorded_hour(tmp_path, begin, {"limited": 3.0, "nobody_waits": 1.0, "down": 8.0}) as path:
        found = answered("-c", str(config), "--socket", str(path), "report", "idle", *words)
    after = found["summary"]["shares"]
    idle = 1 - before["used"] - before["down"]
    assert (after["used"], after["down"]) == (before["used"], before["down"])
    assert (after["limited"], after["nobody_waits"]) == pytest.approx((0.75 * idle, 0.25 * idle))
    assert sum(after.values()) == pytest.approx(1.0)
    assert found["sources"]["recorded_seconds"] == HOUR


@contextmanager
def recorded_hour(directory: Path, begin: float, cpu_seconds: dict[str, float]) -> Iterator[Path]:
    """The control socket of a daemon whose history has this hour."""
    history, path = HistoryDatabase(directory / "history.sqlite"), directory / "omfs.sock"
    history.add_idle([IdleShare(begin, cause, HOUR, seconds) for cause, seconds in cpu_seconds.items()])
    daemon: Any = SimpleNamespace(idle_hours=lambda caller, since: idle_hours_view(history.idle_hours(since)))
    with ControlServer(path, daemon, operators(None, None)):
        yield path
    history.close()


def beside_sreport(slurm: LocalSlurm, begin: int) -> int:
    """slurmdbd adds up whole hours only: have all of it happen in the last whole one, which begins at the result."""
    hour = int(time.time()) // HOUR * HOUR - HOUR
    slurm.kill_slurmdbd()
    shift_accounting(slurm.directory, hour, begin - hour - 60)
    slurm.start_slurmdbd()
    words = ["sreport", "-nP", "cluster", "utilization", *(f"{name}={when}" for name, when in span(hour))]
    wait_until(lambda: slurm.command(*words, check=False).stdout.strip() != "", "slurmdbd to add up the hour")
    return hour


def span(hour: int) -> list[tuple[str, str]]:
    edges = (("start", hour), ("end", hour + HOUR))
    return [(name, time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(edge))) for name, edge in edges]
