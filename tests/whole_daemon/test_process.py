"""The service on the fake: answers to callers, pause, reload, heartbeat, lock, failsafe."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from omfs_daemon.cluster.jobs import JobRequest
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.config.load import parse_config
from omfs_daemon.daemon.api.callers import Caller, Role
from omfs_daemon.daemon.api.operations import perform
from omfs_daemon.daemon.failsafe import rescue
from omfs_daemon.daemon.heartbeat import age
from omfs_daemon.daemon.process import Service
from omfs_daemon.daemon.store.directory_lock import LockError
from omfs_daemon.errors import ConfigError, ControlError
from omfs_daemon.slurm.gateway import AccountRow, OrderRefusal
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway, Fault
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.hostile_text import HOSTILE_TOML

ROOT = Caller(0, 0, "root", Role.OPERATOR)
ALICE = Caller(1000, 1000, "alice", Role.USER)
BOB = Caller(1001, 1001, "bob", Role.USER)

TEXT = """
[daemon]
state_dir = "{directory}/state"
run_dir = "{directory}/run"
failsafe_grace_seconds = 60
[policy]
quantum_seconds = 0
[entitlements.bio]
percent = 50
[entitlements.physics]
percent = 50
[[class]]
name = "regular"
methods = ["requeue", "suspend"]
"""


class Stand:
    """A service, its fake Slurm and the virtual time."""

    def __init__(self, directory: Path) -> None:
        self.now = 1_000_000.0
        self.path = directory / "omfs.toml"
        self.path.write_text(TEXT.format(directory=directory))
        self.config = parse_config(self.path.read_text(), str(self.path))
        names = frozenset(f"n{i}" for i in range(1, 5))
        nodes = [Node(name, 4, 8000 << 20) for name in sorted(names)]
        self.slurm = FakeSlurm(lambda: self.now, nodes, [Partition("main", names)])
        self.gateway = FakeGateway(self.slurm, [AccountRow("bio", ""), AccountRow("physics", "")])
        self.service = self.serve()

    def serve(self, dry_run: bool = False, cluster: str = "") -> Service:
        return Service(self.config, self.path, self.gateway, lambda: self.now, always_dry=dry_run, cluster=cluster)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.service.once()
            self.now += 0.5

    def submit(self, user: str, account: str, method: str = "requeue", run_time: float = 100) -> int:
        request = JobRequest(4, partitions=("main",), max_nodes=1)
        comment = f"omfs:method={method}" if method else ""
        return self.slurm.submit(Submission(request, user=user, account=account, run_time=run_time, comment=comment))


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path)
    yield found
    found.service.close()


def reclaimed(stand: Stand) -> tuple[list[int], int]:
    bio = [stand.submit("alice", "bio") for _ in range(4)]
    stand.run(1)
    physics = stand.submit("bob", "physics")
    stand.run(4)
    return bio, physics


def test_status_shows_shares_to_all_and_jobs_to_operators(stand: Stand) -> None:
    reclaimed(stand)
    rows = {row["account"]: row for row in stand.service.answers.status(ALICE)["accounts"]}
    assert (rows["bio"]["used"], rows["bio"]["borrowed"], rows["physics"]["lent"]) == (12, 4, 4)
    assert stand.service.answers.status(ALICE)["preempted"] == []
    assert len(stand.service.answers.status(ROOT)["preempted"]) == 1


def test_the_history_of_a_job_is_shown_to_its_owner_and_to_operators_only(stand: Stand) -> None:
    _bio, physics = reclaimed(stand)
    (preemption,) = stand.service.answers.history(ROOT, 10, 0)["preemptions"]
    victim = preemption["victims"][0]["job"]
    assert stand.service.answers.why(ALICE, victim)["events"][0]["event"] == "preempted"
    assert stand.service.answers.why(ROOT, str(physics))["state"] == "RUNNING"
    with pytest.raises(ControlError, match="not yours"):
        stand.service.answers.why(BOB, victim)
    with pytest.raises(ControlError, match="does not list it"):
        stand.service.answers.why(ROOT, "4711")
    assert len(stand.service.answers.history(BOB, 10, 0)["preemptions"]) == 1, "their job was the preemptor"
    assert stand.service.answers.history(Caller(9, 9, "eve", Role.USER), 10, 0)["preemptions"] == []


def test_why_says_that_an_administrator_has_released_a_job(stand: Stand) -> None:
    for _ in range(4):
        stand.submit("bob", "physics", "")
    stand.run(1)
    late = stand.submit("bob", "physics", "")
    stand.run(1)
    assert "non-preemptible" in stand.service.answers.why(BOB, str(late))["now"]
    stand.slurm.admin_release(late)
    stand.run(1)
    now = stand.service.answers.why(BOB, str(late))["now"]
    assert now.startswith("waits, released by an administrator: it is not held again while it waits")


def test_a_pause_is_resumed_once_and_keeps_its_reason_until_another_is_given(stand: Stand) -> None:
    answers = stand.service.answers

    def ask(operation: str, **given: object) -> object:
        stand.now += 1
        return perform(answers, ROOT, {"op": operation, "args": given})["done"]

    def audited() -> list[str]:
        file = stand.config.daemon.state_dir / "audit.jsonl"
        return [json.loads(line)["act"] for line in file.read_text().splitlines()] if file.exists() else []

    assert ask("resume") == "was not paused: nothing changes"
    assert audited() == []
    ask("pause", reason="a file system")
    first = answers.status(ROOT)["paused"]
    assert ask("pause", reason="") == "is paused already, by root: a file system"
    assert answers.status(ROOT)["paused"] == first
    ask("pause", reason="a switch")
    assert (answers.status(ROOT)["paused"] or {})["reason"] == "a switch"
    assert ask("resume") == "the daemon acts again"
    assert audited() == ["pause", "pause", "resume"]


def test_a_plan_is_foreseen_without_being_carried_out(stand: Stand) -> None:
    for _ in range(4):
        stand.submit("alice", "bio")
    stand.run(1)
    stand.service.answers.pause(ROOT, "")
    stand.submit("bob", "physics")
    stand.run(1)
    view = stand.service.answers.plan(ROOT)
    assert [action["job"] for action in view["refused"]] == ["5"]
    stand.service.answers.resume(ROOT)
    stand.service.close()
    stand.service = stand.serve(dry_run=True)
    stand.run(1)
    (action,) = [action for action in stand.service.answers.plan(ROOT)["actions"] if action["kind"] == "preempt for"]
    assert (action["job"], action["victims"][0]["account"]) == ("5", "bio")
    assert stand.service.answers.plan(Caller(9, 9, "eve", Role.USER))["actions"] == []


def test_entitlements_change_at_once_with_an_audit_line(stand: Stand, tmp_path: Path) -> None:
    stand.run(1)
    stand.service.answers.change_entitlements(
        ROOT, {"op": "set", "entitlements": [{"account": "bio", "percent": "25"}]}
    )
    stand.run(0.5)
    rows = {row["account"]: row["entitled"] for row in stand.service.answers.status(ROOT)["accounts"]}
    assert rows == {"bio": 4, "physics": 8, "(others)": 4}
    audit = json.loads((tmp_path / "state" / "audit.jsonl").read_text())
    assert (audit["user"], audit["time"]) == ("root", stand.now - 0.5)
    with pytest.raises(ConfigError, match="at most 100"):
        stand.service.answers.change_entitlements(
            ROOT, {"op": "set", "entitlements": [{"account": "bio", "percent": "60"}]}
        )
    with pytest.raises(ConfigError, match="chemistry"):
        stand.service.answers.change_entitlements(
            ROOT, {"op": "set", "entitlements": [{"account": "chemistry", "percent": "10"}]}
        )


def test_entitlements_edited_after_a_change_are_refused_with_both_values(stand: Stand) -> None:
    stand.service.answers.change_entitlements(
        ROOT,
        {
            "op": "set",
            "entitlements": [{"account": "bio", "percent": "cpus=4"}, {"account": "physics", "percent": "60"}],
        },
    )
    good = stand.path.read_text()
    stand.service.answers.reload(ROOT)
    stand.path.write_text(good.replace("percent = 50", "percent = 25"))
    with pytest.raises(ConfigError, match=r"bio: 4 CPUs -> 25 %.*omfs entitlements import"):
        stand.service.answers.reload(ROOT)
    stand.service.close()
    stand.config = parse_config(stand.path.read_text(), str(stand.path))
    stand.service = stand.serve()
    stand.run(1)
    view = stand.service.answers.status(ROOT)
    assert {row["account"]: row["entitled"] for row in view["accounts"]} == {"bio": 4, "physics": 9, "(others)": 2}
    assert "bio: 4 CPUs -> 25 %" in view["entitlements_conflict"]
    rows = [{"account": name, "percent": "25", "parent": ""} for name in ("bio", "physics")]
    stand.service.answers.change_entitlements(ROOT, {"op": "replace", "entitlements": rows})
    stand.service.answers.reload(ROOT)
    stand.run(1)
    assert "entitlements_conflict" not in stand.service.answers.status(ROOT)
    shown = stand.service.answers.entitlements(ROOT)
    assert (shown["cpus"], shown["entitled"]["bio"]) == (16, 4)


def test_a_plan_with_another_configuration_says_what_would_be_different(stand: Stand) -> None:
    for _ in range(4):
        stand.submit("ann", "bio")
    stand.run(2)
    stand.submit("bob", "physics")
    now = stand.now
    stand.service.answers.pause(ROOT, "")
    stand.run(1)
    new = stand.path.read_text().replace("percent = 50", "percent = 0")
    found = stand.service.answers.plan_with(ROOT, new, "new.toml")
    assert found["entitlements"] == ["bio: 50 % -> 0 %", "physics: 50 % -> 0 %"]
    assert stand.service.answers.plan_with(ROOT, stand.path.read_text(), "same")["only_new"] == []
    moved = stand.path.read_text().replace("[daemon]", "[slurm]\ntimeout_seconds = 3\n[daemon]")
    assert stand.service.answers.plan_with(ROOT, moved, "moved")["at_restart"] == ["slurm.timeout_seconds"]
    with pytest.raises(ConfigError, match=r"new.toml: policy.x = 1"):
        stand.service.answers.plan_with(ROOT, "[policy]\nx = 1", "new.toml")
    assert stand.now > now and "dry run" not in stand.service.answers.plan(ROOT)["summary"]


def test_a_release_of_slurm_that_nobody_has_tried_is_reported_once(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = stand.gateway.settings()
    monkeypatch.setattr(stand.gateway, "settings", lambda: settings._replace(version="25.11.2"))
    with capture_logs() as logs:
        stand.run(3)
    (logged,) = (entry for entry in logs if entry["event"] == "slurm_release_untested")
    assert (logged["log_level"], logged["version"]) == ("warning", "25.11.2")
    assert "25.11.2" in logged["message"] and "24.11" in logged["message"]
    assert stand.service.answers.status(ROOT)["slurm_version"] == "25.11.2", "and it works"


def test_a_bad_file_leaves_the_running_configuration_in_force(stand: Stand) -> None:
    good = stand.path.read_text()
    stand.path.write_text(good.replace("percent = 50", "percent = 51"))
    with pytest.raises(ConfigError, match="at most 100"):
        stand.service.answers.reload(ROOT)
    stand.path.write_text(good.replace("run_dir", "run_dir_"))
    with pytest.raises(ConfigError, match="run_dir_"):
        stand.service.answers.reload(ROOT)
    for text in HOSTILE_TOML.values():
        stand.path.write_text(f"{good}\n{text}")
        with capture_logs() as logs, pytest.raises(ConfigError, match="must be"):
            stand.service.answers.reload(ROOT)
        assert [entry["event"] for entry in logs] == ["reload_requested", "configuration_refused"]
        with pytest.raises(ConfigError, match="must be"):
            stand.service.answers.plan_with(ROOT, text, "new.toml")
    stand.path.write_text(good.replace("/run", "/elsewhere"))
    with pytest.raises(ConfigError, match="restart"):
        stand.service.answers.reload(ROOT)
    stand.run(0.5)
    assert stand.service.answers.status(ROOT)["accounts"][0]["entitled"] == 8
    stand.path.write_text(good.replace("percent = 50", "percent = 25"))
    stand.service.answers.reload(ROOT)
    stand.run(0.5)
    assert stand.service.answers.status(ROOT)["accounts"][0]["entitled"] == 4


def test_accounts_that_change_in_mid_cycle_do_no_harm(stand: Stand) -> None:
    stand.run(1)
    poll = stand.gateway.jobs

    def changing() -> object:
        stand.service.answers.change_entitlements(ROOT, {"op": "remove", "account": "physics"})
        stand.gateway.jobs = poll  # type: ignore[method-assign]
        return poll()

    stand.gateway.jobs = changing  # type: ignore[method-assign, assignment]
    stand.run(0.5)
    assert stand.service.answers.status(ROOT)["last_error"] is None
    stand.service.answers.change_entitlements(
        ROOT, {"op": "set", "entitlements": [{"account": "physics", "percent": "10"}]}
    )
    assert stand.service.answers.status(ROOT)["accounts"], "the last report is shown by the rules it was made by"


def test_a_fault_of_ours_is_logged_and_the_daemon_goes_on(stand: Stand) -> None:
    poll = stand.gateway.jobs

    def faulty() -> object:
        raise ZeroDivisionError

    stand.gateway.jobs = faulty  # type: ignore[method-assign, assignment]
    report = stand.service.once()
    assert "internal error in omfsd (ZeroDivisionError)" in report.summary
    stand.gateway.jobs = poll  # type: ignore[method-assign]
    assert stand.service.once().error is None


def test_dry_run_can_be_switched_in_the_file(stand: Stand) -> None:
    for _ in range(4):
        stand.submit("alice", "bio")
    good = stand.path.read_text()
    stand.path.write_text(good.replace("[daemon]", "[daemon]\ndry_run = true"))
    stand.service.answers.reload(ROOT)
    stand.run(1)
    physics = stand.submit("bob", "physics")
    stand.run(2)
    assert stand.service.answers.status(ROOT)["dry_run"]
    assert stand.slurm.history[physics].starts == []
    stand.path.write_text(good)
    stand.service.answers.reload(ROOT)
    stand.run(3)
    assert stand.slurm.history[physics].starts


def test_an_unfit_slurm_is_refused_also_when_it_comes_late(stand: Stand, tmp_path: Path) -> None:
    stand.service.close()
    stand.gateway = FakeGateway(stand.slurm, None, PriorityType="priority/basic")
    stand.service = stand.serve()
    stand.gateway.faults.inject(Fault.DEAD)
    assert stand.service.once().error is not None
    stand.gateway.faults.clear()
    assert "must be priority/multifactor" in stand.service.once().summary
    assert age(stand.config.daemon.heartbeat, stand.now) is None


def test_a_damaged_history_is_moved_aside(stand: Stand, tmp_path: Path) -> None:
    stand.service.close()
    (tmp_path / "state" / "history.sqlite").write_bytes(b"not a database at all" * 100)
    stand.service = stand.serve()
    reclaimed(stand)
    assert len(stand.service.answers.history(ROOT, 10, 0)["preemptions"]) == 1
    assert (tmp_path / "state" / "history.damaged").exists()


def test_orders_that_slurm_refuses_are_reported_and_not_repeated_at_once(stand: Stand) -> None:
    stand.run(1)
    stand.gateway.faults.inject(Fault.REFUSE, ("hold",))
    for _ in range(3):
        stand.submit("bob", "physics", "")
    for _ in range(2):
        stand.submit("alice", "bio", run_time=1000)
    calls: list[object] = []
    hold = stand.gateway.hold

    def counted(refs: Sequence[str], comment: str) -> list[OrderRefusal]:
        calls.append(refs)
        return hold(refs, comment)

    stand.gateway.hold = counted  # type: ignore[method-assign]
    late = stand.submit("bob", "physics", "")
    stand.run(20)
    assert stand.slurm.history[late].starts == []
    assert len(calls) == 3, "at once, after 4 s, and after 8 more"


def test_the_heart_beats_only_while_it_acts(stand: Stand) -> None:
    heartbeat = stand.config.daemon.heartbeat
    stand.run(1)
    beaten = stand.now
    assert age(heartbeat, stand.now) == pytest.approx(0.5, abs=1)
    stand.gateway.faults.inject(Fault.DEAD)
    stand.run(30)
    assert "Slurm does not answer" in stand.service.answers.status(ROOT)["summary"]
    assert stand.service.answers.status(ROOT)["last_poll"] == beaten - 0.5
    assert (age(heartbeat, stand.now) or 0) >= 30
    stand.gateway.faults.clear()
    stand.service.answers.pause(ROOT, "")
    stand.run(30)
    assert (age(heartbeat, stand.now) or 0) >= 60


def test_one_service_a_directory(stand: Stand) -> None:
    with pytest.raises(LockError, match="another omfsd"):
        stand.serve()


def test_the_failsafe_waits_for_its_grace_time_and_then_lets_everything_go(stand: Stand) -> None:
    suspended = [stand.submit("alice", "bio", "suspend", run_time=30) for _ in range(4)]
    stand.run(1)
    owned = [stand.submit("bob", "physics", "", run_time=100) for _ in range(3)]
    stand.run(3)
    status = stand.service.answers.status(ROOT)
    assert status["held"] == 1
    assert [(job["job"], job["user"], job["cpus"]) for job in status["held_jobs"]] == [(str(owned[2]), "bob", 4)]
    assert stand.service.answers.status(ALICE)["held_jobs"] == []
    assert rescue(stand.config, stand.gateway, lambda: stand.now) == 0
    stand.service.close()
    stand.now += 30
    assert rescue(stand.config, stand.gateway, lambda: stand.now) == 0
    assert stand.slurm.history[owned[2]].starts == [], "the daemon may come back: nothing is done yet"
    stand.now += 40
    assert rescue(stand.config, stand.gateway, lambda: stand.now) == 1, "CPUs of suspended jobs are taken"
    stand.now += 2
    assert all(stand.slurm.history[job].starts for job in owned)
    stand.now += 50
    assert rescue(stand.config, stand.gateway, lambda: stand.now) == 0
    stand.now += 200
    outcomes = {stand.slurm.history[job].outcome for job in (*suspended, *owned)}
    assert outcomes == {"COMPLETED"}
    stand.service = stand.serve()
