"""omfsd on a real Slurm: what a site is promised."""

from __future__ import annotations

import signal

import pytest

from omfs_daemon.cluster.jobs import Hold, JobState
from tests.support.daemons import OMFSD, STAYS, Daemon, dying_at, with_clock_of
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm


def fill(daemon: Daemon, method: str = "requeue") -> list[int]:
    """bio borrows the whole machine, and stays."""
    jobs = [daemon.submit("bio", method=method) for _ in range(4)]
    daemon.wait_running(*jobs)
    return jobs


def test_an_entitled_account_takes_back_its_cpus_and_no_more(daemon: Daemon) -> None:
    daemon.start()
    bio = fill(daemon)
    physics = [daemon.submit("physics", method="requeue") for _ in range(2)]
    daemon.wait_running(*physics)
    left = [job for job in bio if daemon.runs(job)]
    assert len(left) == 2, "the borrower keeps what nobody claims"
    daemon.let_end(*physics)
    victims = sorted(set(bio) - set(left))
    for victim in victims:
        wait_until(lambda job=victim: events(daemon, job) == ["preempted", "runs_again"], "the victim to run again")
    daemon.let_end(*bio)
    daemon.wait_rest()
    assert daemon.completed(bio + physics)
    restarts = {job: daemon.job(job).restarts for job in bio}
    assert sorted(restarts.values()) == [0, 0, 1, 1], "SLURM_RESTART_COUNT says who was stopped"
    history = daemon.ask("history")["preemptions"]
    assert {stop["outcome"] for stop in history} == {"started"}
    assert sorted(int(victim["job"]) for stop in history for victim in stop["victims"]) == victims


def test_urgent_jobs_keep_the_cpus_that_were_freed_for_them(daemon: Daemon) -> None:
    """Preempted jobs that wait at the head of their queue do not take the nodes: no urgent job is tried twice."""
    daemon.start()
    bio = fill(daemon)
    physics = [daemon.submit("physics", method="requeue") for _ in range(2)]
    daemon.wait_running(*physics)
    urgent = [daemon.submit("alarm", "-p", "urgent") for _ in range(2)]
    daemon.wait_running(*urgent)
    more = [daemon.submit("alarm", "-p", "urgent") for _ in range(2)]
    daemon.wait_running(*more)
    everybody = [*bio, *physics, *urgent, *more]
    daemon.let_end(*everybody)
    daemon.wait_rest()
    assert daemon.completed(everybody)
    outcomes = {int(each["preemptor"]): each["outcome"] for each in daemon.ask("history")["preemptions"]}
    assert {outcomes[job] for job in (*urgent, *more)} == {"started"}
    assert len(daemon.ask("history")["preemptions"]) == len(outcomes)


def events(daemon: Daemon, job: int) -> list[str]:
    return [event["event"] for event in daemon.why(job)["events"]]


def test_an_urgent_job_preempts_by_suspension_and_the_victim_continues(daemon: Daemon) -> None:
    daemon.start()
    bio = fill(daemon, method="suspend")
    urgent = daemon.submit("alarm", "-p", "urgent")
    daemon.wait_running(urgent)
    (victim,) = [job for job in bio if daemon.job(job).state is JobState.SUSPENDED]
    before = daemon.job(victim).run_time
    daemon.let_end(urgent)
    wait_until(lambda: daemon.job(victim).run_time > before, "the victim to continue")
    daemon.let_end(*bio)
    daemon.wait_rest()
    assert daemon.completed([*bio, urgent])
    assert daemon.job(victim).restarts == 0


def test_a_non_preemptible_job_waits_beyond_its_entitlement(daemon: Daemon) -> None:
    daemon.start()
    first = [daemon.submit("bio") for _ in range(2)]
    # Without the plug-in only best effort: the machine must be full, so that omfsd sees the job wait.
    filler = [daemon.submit("physics", method="requeue") for _ in range(2)]
    daemon.wait_running(*first, *filler)
    third = daemon.submit("bio", uid="nobody")
    wait_until(lambda: daemon.job(third).hold is Hold.ADMIN, "the hold")
    refused = daemon.slurm.command("scontrol", "release", str(third), uid="nobody", check=False)
    assert refused.code != 0, "its owner cannot get past an administrator's hold"
    wait_until(lambda: "non-preemptible" in daemon.why(third)["now"], "the reason")
    daemon.let_end(*filler)
    wait_until(lambda: daemon.completed(filler), "CPUs to be free")
    assert daemon.job(third).hold is Hold.ADMIN, "it waits for what its account is entitled to"
    daemon.let_end(*first, third)
    daemon.wait_rest()
    assert daemon.completed([*first, *filler, third])


def test_preemptible_jobs_give_way_to_a_protected_one_of_their_account(daemon: Daemon) -> None:
    """Both accounts are at their entitlement, so nobody else would give."""
    daemon.start()
    bio = [daemon.submit("bio", method="requeue") for _ in range(2)]
    physics = [daemon.submit("physics") for _ in range(2)]
    daemon.wait_running(*bio, *physics)
    protected = daemon.submit("bio")
    daemon.wait_running(protected)
    (victim,) = [job for job in bio if not daemon.runs(job)]
    assert all(daemon.runs(job) for job in physics)
    wait_until(lambda: "first in its account" in str(daemon.why(victim)["events"]), "the history of the victim")
    daemon.let_end(protected)
    daemon.wait_running(victim)
    daemon.let_end(*bio, *physics)
    daemon.wait_rest()
    assert daemon.completed([*bio, *physics, protected])


def test_all_of_forty_jobs_that_wait_for_another_run(daemon: Daemon) -> None:
    """On an idle machine that one account owns; omfsd holds them while they wait."""
    entitlements = "[entitlements.bio]\npercent = 50\n[entitlements.physics]\npercent = 50"
    daemon.config.write_text(daemon.config.read_text().replace(entitlements, "[entitlements.bio]\npercent = 100"))
    daemon.start()
    # Five at a time, for a command has a time limit.
    pairs = """for i in $(seq 5); do
        first=$(sbatch --parsable -A bio -o /dev/null --wrap 'sleep 0.5')
        sbatch --parsable -A bio -o /dev/null --dependency=afterok:$first --wrap true
    done"""
    waiting = [int(job) for _ in range(8) for job in daemon.slurm.command("sh", "-c", pairs).stdout.split()]
    assert len(waiting) == 40
    daemon.wait_rest()
    assert daemon.completed(waiting)


def test_the_controller_goes_away_in_mid_preemption(daemon: Daemon) -> None:
    daemon.start()
    bio = fill(daemon)
    daemon.slurm.command("scontrol", "update", "jobid=" + ",".join(map(str, bio)), "timelimit=10")
    daemon.kill()
    physics = daemon.submit("physics", method="requeue")
    daemon.start(dying_at("stopping", after_orders=False), ready=False)
    daemon.wait_for_death()
    daemon.slurm.kill_controller(signal.SIGTERM)
    try:
        daemon.start(ready=False)
        wait_until(lambda: "Slurm does not answer" in daemon.log.read_text(), "omfsd to notice the outage")
    finally:
        daemon.slurm.start_controller()
    daemon.wait_running(physics)
    daemon.let_end(*bio, physics)
    daemon.wait_rest()
    assert daemon.completed([*bio, physics])


def test_the_failsafe_lets_everything_go_once_the_daemon_stays_dead(daemon: Daemon) -> None:
    soon = daemon.config.read_text()
    grace = "failsafe_grace_seconds = 2\n"
    assert grace in soon
    # However slowly the daemon's heart beats on a busy machine, the failsafe sees that it lives.
    daemon.config.write_text(soon.replace(grace, f"failsafe_grace_seconds = {STAYS}\n"))
    daemon.start()
    bio = fill(daemon, method="suspend")
    held = [daemon.submit("physics") for _ in range(3)]
    wait_until(lambda: daemon.held(), "the third to be held")
    wait_until(lambda: any(daemon.job(job).state is JobState.SUSPENDED for job in bio), "a suspended job")
    assert daemon.omfs("failsafe").returncode == 0
    assert daemon.held(), "while the daemon lives the failsafe does nothing"
    daemon.kill()
    daemon.config.write_text(soon)
    daemon.let_end(*held)
    wait_until(
        lambda: daemon.omfs("failsafe", check=False).returncode == 0 and not daemon.held(),
        "the failsafe to be done",
    )
    daemon.let_end(*bio)
    daemon.wait_rest()
    assert daemon.completed([*bio, *held])


def test_one_daemon_a_directory_and_a_clean_end(daemon: Daemon) -> None:
    daemon.start()
    first = daemon.process
    daemon.start(ready=False)
    assert daemon.process is not None
    assert daemon.process.wait(LIMIT) == 1
    assert "another omfsd" in daemon.log.read_text()
    daemon.process = first
    assert (daemon.directory / "run" / "omfs.sock").exists()
    assert daemon.stop() == 0
    assert not (daemon.directory / "run" / "omfs.sock").exists()


def test_a_bad_file_on_reload_leaves_the_running_configuration_in_force(daemon: Daemon) -> None:
    daemon.start()
    good = daemon.config.read_text()
    daemon.config.write_text(good.replace("percent = 50", "percent = 70"))
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "stays in force" in daemon.log.read_text(), "the refusal")
    daemon.config.write_text(good)
    rows = {row["account"]: row["entitled"] for row in daemon.ask("status")["accounts"]}
    assert rows == {"bio": 8, "physics": 8}
    daemon.config.write_text(good.replace("percent = 50", "percent = 25"))
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "configuration_loaded" in daemon.log.read_text(), "the new configuration")
    wait_until(lambda: daemon.ask("status")["accounts"][0]["entitled"] == 4, "the new entitlement")


def test_entitlements_change_at_once_and_survive_a_restart(daemon: Daemon) -> None:
    daemon.start()
    bio = fill(daemon)
    daemon.omfs("entitlements", "set", "bio", "25")
    daemon.omfs("entitlements", "set", "physics", "75")
    physics = [daemon.submit("physics", method="requeue") for _ in range(3)]
    daemon.wait_running(*physics)
    daemon.stop()
    daemon.start()
    assert {row["account"]: row["percent"] for row in daemon.ask("entitlements", "list")["entitlements"]} == {
        "bio": "25",
        "physics": "75",
    }
    refused = daemon.omfs("entitlements", "set", "bio", "30", check=False)
    assert refused.returncode == 2
    assert "at most 100" in refused.stderr
    daemon.let_end(*bio, *physics)
    daemon.wait_rest()
    assert daemon.completed(bio + physics)


def test_once_and_dry_run_order_nothing(daemon: Daemon) -> None:
    bio = fill(daemon)
    physics = daemon.submit("physics", method="requeue")
    daemon.start(OMFSD, "--once", "--dry-run", ready=False)
    assert daemon.process is not None
    assert daemon.process.wait(LIMIT) == 0
    assert "dry run: would preempt" in daemon.log.read_text()
    assert daemon.runs(*bio)
    assert daemon.job(physics).state is JobState.PENDING


def test_paused_it_keeps_its_hands_off(daemon: Daemon) -> None:
    daemon.start()
    bio = fill(daemon)
    daemon.omfs("pause", "--reason", "maintenance")
    physics = daemon.submit("physics", method="requeue")
    polled = daemon.ask("status")["last_poll"]
    wait_until(lambda: daemon.ask("status")["last_poll"] > polled + 1, "another look")
    assert daemon.runs(*bio)
    assert daemon.ask("status")["paused"]["reason"] == "maintenance"
    daemon.omfs("resume")
    daemon.wait_running(physics)


def test_a_suspended_owner_goes_on_in_spite_of_a_backlog(daemon: Daemon) -> None:
    daemon.start()
    physics = [daemon.submit("physics", "--time=100", method="suspend") for _ in range(2)]
    bio = [daemon.submit("bio", "--time=20", method="requeue") for _ in range(2)]
    daemon.wait_running(*physics, *bio)
    backlog = [daemon.submit("bio", "--time=20", seconds=4, method="requeue") for _ in range(6)]
    urgent = daemon.submit("alarm", "-p", "urgent", "--time=5")
    wait_until(lambda: any(daemon.job(job).state is JobState.SUSPENDED for job in physics), "a suspended job")
    daemon.wait_running(urgent)
    daemon.let_end(urgent)
    wait_until(lambda: daemon.job(urgent).state is JobState.ENDED, "the urgent job's end")

    def used() -> int:
        jobs = [job for job in daemon.gateway.jobs() if job.runs]
        by_node: dict[str, int] = {}
        for job in jobs:
            for allocation in job.allocations:
                by_node[allocation.node] = by_node.get(allocation.node, 0) + allocation.cpus
        return max(by_node.values(), default=0)

    # The backlog may win the race for the CPUs once; then the resumed job stands back, and has them the next time.
    wait_until(
        lambda: daemon.runs(*physics) and used() <= 4 and not daemon.ask("status")["preemptions_under_way"],
        lambda: f"the owner to have its CPUs: {daemon.observation()}",
    )
    daemon.let_end(*physics, *bio)
    daemon.wait_rest()
    assert daemon.completed([*physics, *bio, *backlog, urgent])
    assert all(daemon.job(job).restarts == 0 for job in physics)
    assert daemon.ask("history")["preemptions"][0]["outcome"] == "started", "the newest"


def wait_for_poll(daemon: Daemon) -> None:
    before = daemon.ask("status")["last_poll"]
    wait_until(lambda: daemon.ask("status")["last_poll"] != before, lambda: f"another poll; {daemon.tail()}")


def test_a_clock_that_is_set_back_delays_no_look_at_slurm_and_no_urgent_job(daemon: Daemon) -> None:
    error = daemon.directory / "clock"
    error.write_text("0")
    daemon.start(with_clock_of(error))
    fill(daemon)
    for seconds in (-3600, 3600, 0):
        error.write_text(str(seconds))
        for _ in range(3):
            wait_for_poll(daemon)
    urgent = daemon.submit("alarm", "-p", "urgent")
    daemon.wait_running(urgent)
