"""The failsafe without what it could go by: heartbeat, state directory, answers of Slurm, an end of a checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import omfs_daemon.daemon.failsafe
from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.failsafe import rescue, run_failsafe
from omfs_daemon.daemon.process import Service
from omfs_daemon.daemon.store.directory_lock import LockError, OrdersLock
from omfs_daemon.daemon.trial import on_a_copy
from omfs_daemon.errors import ConfigError, GatewayError
from omfs_daemon.slurm.gateway import OrderRefusal
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from tests.support.fake_site import Site
from tests.support.preemption_cases import ON_NODES, lost, methods_site, preemptor, victim, victims, word_of
from tests.whole_daemon.test_preemption_failsafe import die, failsafe
from tests.whole_daemon.test_process import ROOT, Stand


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path)
    yield found
    found.service.close()


def held_jobs(stand: Stand) -> list[int]:
    """Two that the daemon, which has just died, held."""
    for _ in range(4):
        stand.submit("alice", "bio", "", run_time=1000)
    stand.run(1)
    owned = [stand.submit("bob", "physics", "", run_time=1000) for _ in range(4)]
    stand.run(2)
    stand.service.close()
    return [job for job in owned if is_held(stand, job)]


def is_held(stand: Stand, job: int) -> bool:
    found = stand.gateway.find(job)
    return found is not None and found.hold is Hold.ADMIN


def run(stand: Stand) -> tuple[int, dict[str, Any]]:
    """Its exit code and the last line of its log."""
    with capture_logs() as logs:
        code = rescue(stand.config, stand.gateway, lambda: stand.now)
    return code, dict(logs[-1])


def test_without_a_heartbeat_file_it_keeps_its_grace_time(stand: Stand) -> None:
    """As after a reboot that emptied the run directory."""
    held = held_jobs(stand)
    shutil.rmtree(stand.config.daemon.run_dir)
    stand.now += 50
    code, line = run(stand)
    assert (code, line["event"], line["still_held"]) == (1, "failsafe_waits", [str(job) for job in held])
    assert all(is_held(stand, job) for job in held)
    stand.now += 20
    code, line = run(stand)
    assert (code, line["released"], line["still_held"]) == (0, 2, [])
    assert not any(is_held(stand, job) for job in held)


def test_a_daemon_that_was_paused_gets_its_grace_time_too(stand: Stand) -> None:
    """Its last heartbeat is old."""
    stand.run(1)
    for _ in range(4):
        stand.submit("alice", "bio", "", run_time=1000)
    stand.run(1)
    owned = [stand.submit("bob", "physics", "", run_time=1000) for _ in range(3)]
    stand.run(1)
    stand.service.answers.pause(ROOT, "")
    stand.run(100)
    held = [job for job in owned if is_held(stand, job)]
    assert held
    assert run(stand)[0] == 1, "it runs, and decides nothing"
    stand.service.close()
    stand.now += 5
    assert run(stand) == (0, {"event": "failsafe_not_needed"} | run(stand)[1])
    assert all(is_held(stand, job) for job in held)
    stand.now += 60
    assert run(stand)[0] == 0
    assert not any(is_held(stand, job) for job in held)


def test_without_a_state_directory_the_grace_time_begins_with_the_first_run(stand: Stand, tmp_path: Path) -> None:
    held = held_jobs(stand)
    for name in ("state", "run"):
        shutil.rmtree(tmp_path / name)
    stand.now += 10_000
    code, line = run(stand)
    assert (code, line["event"], line["still_held"]) == (1, "failsafe_waits", [str(job) for job in held])
    stand.now += 61
    code, line = run(stand)
    assert (code, line["released"], line["still_held"]) == (0, 2, [])


def test_a_user_that_is_not_known_now_keeps_it_from_nothing(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """daemon.user may be in LDAP, which is down."""
    rescued: list[Config] = []

    def rescue_with(config: Config, *_: object) -> int:
        rescued.append(config)
        return 0

    monkeypatch.setattr(omfs_daemon.daemon.failsafe, "rescue", rescue_with)
    daemon = stand.config.daemon.model_copy(update={"user": "no-such-user"})
    with capture_logs() as logs:
        assert run_failsafe(stand.config.model_copy(update={"daemon": daemon}), tmp_path / "omfs.toml") == 0
    assert rescued == [stand.config]
    assert "no-such-user" in logs[0]["error"]


def test_where_nothing_is_held_it_makes_no_directory(stand: Stand, tmp_path: Path) -> None:
    stand.service.close()
    for name in ("state", "run"):
        shutil.rmtree(tmp_path / name)
    code, line = run(stand)
    assert (code, line["event"]) == (0, "state_directory_missing")
    assert not (tmp_path / "state").exists()


def test_a_release_that_is_not_answered_is_tried_for_each_job_alone(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = held_jobs(stand)
    release = stand.gateway.release

    def choking(refs: Sequence[str], comment: str) -> list[OrderRefusal]:
        if str(held[0]) in refs:
            raise GatewayError("no answer")
        return release(refs, comment)

    monkeypatch.setattr(stand.gateway, "release", choking)
    stand.now += 100
    code, line = run(stand)
    assert (code, line["released"], line["still_held"]) == (1, 1, [str(held[0])])
    assert line["refused"] == [f"{held[0]}: no answer"]
    assert [is_held(stand, job) for job in held] == [True, False]
    monkeypatch.undo()
    assert run(stand)[0] == 0


def test_what_slurm_refuses_once_is_tried_again(stand: Stand) -> None:
    held = held_jobs(stand)
    stand.now += 100
    stand.gateway.faults.inject(Fault.REFUSE, ["release"], times=1)
    code, line = run(stand)
    assert (code, line["released"], line["still_held"]) == (0, 2, [])
    assert not any(is_held(stand, job) for job in held)


def test_a_slurm_that_dies_meanwhile_is_an_error(stand: Stand) -> None:
    held_jobs(stand)
    stand.now += 100
    stand.gateway.faults.inject(Fault.DEAD, ["release", "settings"])
    with pytest.raises(GatewayError):
        run(stand)
    stand.gateway.faults.clear()
    assert run(stand)[0] == 0


# -- a checkpoint that is being written ----------------------------------------------------------------------
def writing(directory: Path, seconds: float) -> tuple[Site, int]:
    """A job that writes a checkpoint for so long, and a daemon that died when it had begun."""
    site = methods_site(directory, hosts=1)
    job = victim(site, "dmtcp", "n1", run_time=5000, launched=OmfsRunBehavior(seconds=seconds))
    site.run_until(lambda: site.runs(job), limit=20)
    site.run(2)
    preemptor(site, "dmtcp", run_time=5)
    site.run_until(lambda: "stopping" in site.job(job).comment, limit=20)
    die(site)
    site.now += 20
    return site, job


def test_a_checkpoint_that_is_being_written_has_its_time(tmp_path: Path) -> None:
    site, job = writing(tmp_path, 200)
    assert failsafe(site) == 1
    assert word_of(site, job) is MarkWord.STOPPING, "its hold will be ours"
    site.now += 300
    assert site.state(job) is JobState.PENDING
    assert failsafe(site) == 0
    site.now += 6000
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, [job]) == 0


def test_a_checkpoint_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    site, job = writing(tmp_path, 2000)
    assert failsafe(site) == 1
    site.now += 600
    assert failsafe(site) == 0
    assert word_of(site, job) is MarkWord.RELEASED
    site.now += 2000
    assert site.state(job) is JobState.PENDING, "it was written after all"
    assert failsafe(site) == 0
    site.now += 6000
    assert set(site.outcomes().values()) == {"COMPLETED"}


# -- a dry run ------------------------------------------------------------------------------------------------
def switch(stand: Stand, dry_run: bool) -> None:
    text = stand.path.read_text().replace("dry_run = true\n", "")
    stand.path.write_text(text.replace("[daemon]\n", "[daemon]\ndry_run = true\n") if dry_run else text)
    stand.service.answers.reload(ROOT)


def test_a_dry_run_in_mid_preemption_leaves_the_jobs_to_the_failsafe(stand: Stand) -> None:
    victims = [stand.submit("alice", "bio", "suspend", run_time=30) for _ in range(4)]
    stand.run(1)
    stand.submit("bob", "physics", "suspend", run_time=30)
    stand.run(0.5)
    assert stand.service.answers.status(ROOT)["preemptions_under_way"]
    switch(stand, dry_run=True)
    before = stand.gateway.jobs()
    with capture_logs() as logs, on_a_copy(stand.config) as copied:
        trial = Service(copied, stand.path, stand.gateway, lambda: stand.now, always_dry=True)
        trial.trial()
        trial.close()
    assert "dry_run_leaves_jobs" not in [entry["event"] for entry in logs], "they are the running daemon's"
    with capture_logs() as logs:
        stand.run(1)
    (line,) = (entry for entry in logs if entry["event"] == "dry_run_leaves_jobs")
    assert len(line["jobs"]) == 2
    assert [(job.id, job.admin_comment, job.nice) for job in stand.gateway.jobs()] == [
        (job.id, job.admin_comment, job.nice) for job in before
    ]
    assert run(stand)[0] == 0
    suspended = [job for job in victims if state(stand, job) is JobState.SUSPENDED]
    assert len(suspended) == 1, "the daemon may give orders again within the grace time"
    stand.run(70)
    assert run(stand)[0] == 0
    assert state(stand, suspended[0]) is not JobState.SUSPENDED
    switch(stand, dry_run=False)
    stand.run(100)
    assert {history.outcome for history in stand.slurm.history.values()} == {"COMPLETED"}


def test_a_dry_run_cannot_end_while_the_failsafe_works(stand: Stand) -> None:
    switch(stand, dry_run=True)
    failsafes = OrdersLock(stand.config.daemon.state_dir)
    failsafes.take()
    with pytest.raises(ConfigError, match=r"daemon\.dry_run cannot end now: .* works here already"):
        switch(stand, dry_run=False)
    stand.run(1)
    assert stand.service.answers.status(ROOT)["dry_run"]
    failsafes.leave()
    lock_file = stand.config.daemon.state_dir / "orders.lock"
    lock_file.unlink()
    lock_file.mkdir()
    with pytest.raises(ConfigError, match=r"daemon\.dry_run cannot end now: .* cannot be locked"):
        switch(stand, dry_run=False)
    stand.service._reload_if_good()
    lock_file.rmdir()
    switch(stand, dry_run=False)
    stand.run(1)
    assert not stand.service.answers.status(ROOT)["dry_run"]
    with pytest.raises(LockError):
        failsafes.take()


def state(stand: Stand, job: int) -> JobState:
    found = stand.gateway.find(job)
    assert found is not None
    return found.state


# -- without the journal ------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ON_NODES)
@pytest.mark.parametrize("is_out", [True, False])
@pytest.mark.parametrize("by_failsafe", [True, False])
def test_memory_that_is_out_comes_back_without_the_journal(
    tmp_path: Path, method: str, is_out: bool, by_failsafe: bool
) -> None:
    """The mark says that the job was preempted, and its comment by which method; also if it was only stopped yet."""
    site = methods_site(tmp_path, hosts=1)
    (job,) = victims(site, method, count=1, run_time=100)
    urgent = preemptor(site, method, run_time=5)
    site.run_until(lambda: site.runs(urgent) if is_out else bool(site.nodes.stopped()), limit=30, step=0.1)
    die(site)
    (tmp_path / "journal").unlink()
    site.now += 60
    if by_failsafe:
        assert failsafe(site) == 0
    else:
        site.start_daemon()
        site.run(60)
    site.slurm.catch_up()
    assert site.runs(job), site.observation()
    assert not site.nodes.stopped() and not site.nodes.out()
    site.now += 300
    assert set(site.outcomes().values()) == {"COMPLETED"}
