"""omfsd as a service under a real systemd, on Debian 12 and 13: started, reloaded, hung, stopped, and dead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.support.systemd_host import OMFS_TOML, ROOT, SystemdHost
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("hosts with systemd"), pytest.mark.timeout(1500)]

MOST_EXPOSED = 2.0
SERVICES = ("omfsd.service", "omfs-root.service", "omfs-failsafe.service")
CONFIG = "/etc/omfs/omfs.toml"

UNTIL_FINISHED = "trap '' TERM\nuntil [ -e /tmp/finish ]; do sleep 0.2; done"
WITH_CHECKPOINT = "exec omfs-run --method application --dir /home/user/checkpoints sh /tmp/program"
PROGRAM = """\
[ -z "$OMFS_RESTARTED" ] || exit 0
trap 'echo >/tmp/asked' USR1
until [ -e /tmp/written ]; do sleep 0.2; done
: >"$OMFS_MARK"
"""
WHEN_PREEMPTING = """\
until journalctl --quiet --since="$1" --unit=omfsd OMFS_EVENT=preemption_started | grep -q .; do sleep 0.1; done
systemctl kill --signal=STOP omfsd
"""


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def installed(request: pytest.FixtureRequest) -> Iterator[SystemdHost]:
    host = SystemdHost(request.param)
    try:
        host.start()
        yield host
    finally:
        host.remove()


@pytest.fixture
def host(installed: SystemdHost) -> Iterator[SystemdHost]:
    """With omfsd at work, no jobs, and no drop-ins of a test before."""
    installed.run("systemctl", "start", "omfsd")
    try:
        yield installed
    finally:
        installed.run("sh", "-c", "touch /tmp/finish /tmp/written; systemctl stop omfs-failsafe.timer omfsd")
        installed.run("sh", "-c", "scancel --user=user --signal=KILL; scancel --user=user", check=False)
        wait_until(lambda: not installed.run("squeue", "--noheader"), "all jobs to end")
        for unit in ("omfsd.service", "omfs-failsafe.timer"):
            installed.drop_in(unit, "")
        installed.write(CONFIG, OMFS_TOML)
        installed.run("sh", "-c", "rm -f /tmp/finish /tmp/written /tmp/asked; systemctl reset-failed")


def now(host: SystemdHost) -> str:
    """For ``journalctl --since``. Not a cursor: after one, systemd 252 leaves out the first entry that matches."""
    return host.run("date", "+@%s.%6N")


def events(host: SystemdHost, unit: str, after: str, *matches: str) -> list[dict[str, str]]:
    """What a unit has logged since, with its fields."""
    lines = host.run("journalctl", "--quiet", "--output=json", f"--unit={unit}", f"--since={after}", *matches)
    return [json.loads(line) for line in lines.splitlines()]


def status(host: SystemdHost) -> str:
    return host.shown("omfsd", "StatusText")


def state_of(host: SystemdHost, job: str) -> str:
    shown = host.run("scontrol", "show", "job", job, check=False)
    found = re.search(r"JobState=(\w+)", shown)
    return found[1] if found else shown


def wait_for(host: SystemdHost, job: str, state: str) -> None:
    wait_until(lambda: state_of(host, job) == state, lambda: f"job {job} to be {state}: {state_of(host, job)}")


def stopped_in_mid_preemption(host: SystemdHost) -> tuple[str, str]:
    """A job that ignores SIGTERM, and the urgent job for which it is being preempted by an omfsd that hangs."""
    victim = host.submit(UNTIL_FINISHED, "--ntasks=4", "--output=/dev/null")
    wait_for(host, victim, "RUNNING")
    begun = now(host)
    urgent = host.submit("true", "--ntasks=4", "--partition=urgent", "--output=/dev/null")
    host.run("sh", "-c", WHEN_PREEMPTING, "watch", begun)
    (started,) = events(host, "omfsd", begun, "OMFS_EVENT=preemption_started")
    assert started["OMFS_PREEMPTOR"] == urgent and started["OMFS_VICTIMS"] == f'["{victim}"]'
    assert started["PRIORITY"] == "6" and started["MESSAGE"].startswith("preemption_started ")
    return victim, urgent


def kill_for_good(host: SystemdHost) -> None:
    host.drop_in("omfsd.service", "[Service]\nRestart=no\n")
    host.run("systemctl", "kill", "--signal=KILL", "omfsd")
    wait_until(lambda: host.shown("omfsd", "ActiveState") == "failed", "omfsd to be dead")


def test_systemd_accepts_the_units_and_they_are_closed_enough(installed: SystemdHost) -> None:
    units = [f"/usr/lib/systemd/system/{path.name}" for path in (ROOT / "systemd").iterdir() if path.is_file()]
    assert installed.run("systemd-analyze", "verify", "--man=no", *sorted(units)) == ""
    exposed = {}
    for service in SERVICES:
        said = installed.run("systemd-analyze", "security", "--no-pager", service)
        found = re.search(r"exposure level for \S+: ([0-9.]+)", said)
        assert found, said
        exposed[service] = float(found[1])
    path = ROOT / "build" / "bench" / "systemd.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(figures | {installed.suite: exposed}, indent=2) + "\n", encoding="utf-8")
    assert exposed["omfsd.service"] <= MOST_EXPOSED, exposed


def test_users_of_other_hosts_are_answered(host: SystemdHost) -> None:
    login = "/etc/omfs/login.toml"
    host.write(login, '[daemon]\nuser = "omfs"\nlogin_address = "head:9346"\nrun_dir = "/nonexistent"\n')
    job = host.submit(UNTIL_FINISHED, "--ntasks=1", "--output=/dev/null")
    why = lambda: host.run("omfs", "-c", login, "why", job, user="user", check=False)  # noqa: E731
    wait_until(lambda: f"job {job} of user in" in why(), lambda: f"an answer: {why()}")
    denied = host.run("omfs", "-c", login, "pause", check=False)
    assert denied.startswith("omfs: pause: only on omfsd's own host")


def test_it_starts_before_and_after_slurmctld(host: SystemdHost) -> None:
    host.run("systemctl", "stop", "omfsd", "slurmctld")
    host.run("systemctl", "start", "omfsd")
    wait_until(lambda: "Slurm does not answer" in status(host), lambda: f"omfsd to wait for Slurm: {status(host)}")
    host.run("systemctl", "start", "slurmctld")
    wait_until(lambda: status(host) == "nothing to do", lambda: f"omfsd to decide: {status(host)}")
    host.run("systemctl", "restart", "omfsd")
    wait_until(lambda: status(host) == "nothing to do", lambda: f"omfsd to decide: {status(host)}")


def test_only_omfsd_reaches_the_root_process(host: SystemdHost) -> None:
    assert host.shown("omfs-root.service", "ActiveState") == "active"
    assert host.run("ps", "-o", "user=", "-p", host.shown("omfsd", "MainPID")) == "omfs"
    assert host.run("ps", "-o", "user=", "-p", host.shown("omfs-root.service", "MainPID")) == "root"
    greet = "import sys; from pathlib import Path\n"
    greet += "from omfs_daemon.daemon.root_process.root_client import RootClient\n"
    greet += "RootClient(Path('/run/omfs-root.sock'), 1).greet()\n"
    assert host.run_for_code("/usr/lib/omfs/bin/python", "-c", greet, user="omfs").returncode == 0
    assert "no root process answers" in host.run("/usr/lib/omfs/bin/python", "-c", greet, user="user", check=False)
    refused = host.run("/usr/lib/omfs/bin/python", "-c", greet, check=False)
    assert "uid 0 has connected: only omfs (daemon.user) may" in refused


def test_a_good_file_is_loaded_and_a_wrong_one_is_not(host: SystemdHost) -> None:
    if host.suite != "bookworm":
        newer = (ROOT / "systemd/systemd-254/omfsd.service.d/254.conf").read_text(encoding="utf-8")
        host.drop_in("omfsd.service", newer)
        host.run("systemctl", "restart", "omfsd")
        assert host.run("systemd-analyze", "verify", "--man=no", "omfsd.service") == ""
    begun, process = now(host), host.shown("omfsd", "MainPID")
    host.write(CONFIG, OMFS_TOML.replace("quantum_seconds = 0", "quantum_seconds = 1"))
    host.run("systemctl", "reload", "omfsd")
    wait_until(lambda: events(host, "omfsd", begun, "OMFS_EVENT=configuration_loaded"), "the file to be in force")

    host.write(CONFIG, OMFS_TOML.replace("quantum_seconds = 0", 'quantum_seconds = "soon"'))
    assert host.run_for_code("systemctl", "reload", "omfsd").returncode != 0
    told = " ".join(entry["MESSAGE"] for entry in events(host, "omfsd", begun))
    assert "policy.quantum_seconds = 'soon'" in told

    host.write(CONFIG, OMFS_TOML.replace("[policy]", 'state_dir = "/srv/omfs"\n[policy]'))
    host.run("systemctl", "reload", "omfsd")
    refused = "OMFS_ERROR=/etc/omfs/omfs.toml: daemon.state_dir cannot change while omfsd runs: restart it"
    wait_until(lambda: events(host, "omfsd", begun, refused), "the change to be refused")
    wait_until(lambda: host.shown("omfsd", "ActiveState") == "active", "the reload to be over")
    assert host.shown("omfsd", "MainPID") == process and host.shown("omfsd", "NRestarts") == "0"


def test_a_hung_daemon_is_killed_and_its_preemption_completed(host: SystemdHost) -> None:
    host.drop_in("omfsd.service", "[Service]\nWatchdogSec=20s\nTimeoutAbortSec=2s\n")
    host.run("systemctl", "restart", "omfsd")
    begun = now(host)
    victim, urgent = stopped_in_mid_preemption(host)
    wait_until(lambda: host.shown("omfsd", "NRestarts") != "0", "the watchdog to end omfsd")
    assert "watchdog" in " ".join(entry["MESSAGE"] for entry in events(host, "omfsd", begun)).lower()
    wait_for(host, urgent, "COMPLETED")
    wait_for(host, victim, "RUNNING")
    host.run("touch", "/tmp/finish")  # noqa: S108
    wait_for(host, victim, "COMPLETED")


def test_it_stops_and_leaves_jobs_as_they_are(host: SystemdHost) -> None:
    job = host.submit(UNTIL_FINISHED, "--output=/dev/null")
    wait_for(host, job, "RUNNING")
    host.run("systemctl", "stop", "omfsd")
    assert host.shown("omfsd", "Result") == "success" and host.shown("omfsd", "ActiveState") == "inactive"
    assert host.shown("omfs-root.service", "ActiveState") == "inactive"
    assert state_of(host, job) == "RUNNING"


def test_the_failsafe_releases_what_a_dead_daemon_held(host: SystemdHost) -> None:
    begun = now(host)
    victim, urgent = stopped_in_mid_preemption(host)
    kill_for_good(host)
    host.drop_in(
        "omfs-failsafe.timer", "[Timer]\nOnActiveSec=\nOnUnitInactiveSec=\nOnActiveSec=1\nOnUnitInactiveSec=5\n"
    )
    host.run("systemctl", "start", "omfs-failsafe.timer")
    found = ("OMFS_EVENT=failsafe_released", "OMFS_STILL_HELD=[]")
    wait_until(lambda: events(host, "omfs-failsafe.service", begun, *found), "the timer to start the failsafe")
    wait_for(host, urgent, "COMPLETED")
    wait_for(host, victim, "RUNNING")
    host.run("touch", "/tmp/finish")  # noqa: S108
    wait_for(host, victim, "COMPLETED")


def test_the_failsafe_waits_for_a_checkpoint_that_is_being_written(host: SystemdHost) -> None:
    host.write("/tmp/program", PROGRAM)  # noqa: S108
    options = ("--ntasks=4", "--comment=omfs:method=application", "--output=/home/user/output")
    job = host.submit(WITH_CHECKPOINT, *options)
    wait_until(lambda: "omfs:run=" in host.job(job, "k"), lambda: f"omfs-run to report: {host.job(job, 'k')}")
    urgent = host.submit("true", "--ntasks=4", "--partition=urgent", "--output=/dev/null")
    wait_until(lambda: host.run_for_code("test", "-e", "/tmp/asked").returncode == 0, "the request")  # noqa: S108
    kill_for_good(host)
    begun = now(host)

    def run_failsafe() -> int:
        return host.run_for_code("systemctl", "start", "omfs-failsafe.service").returncode

    writes = f"OMFS_STILL_WRITING_CHECKPOINTS={json.dumps([job])}"

    def is_left_to_write() -> bool:
        return run_failsafe() != 0 and bool(events(host, "omfs-failsafe.service", begun, writes))

    wait_until(is_left_to_write, "the failsafe to wait for the checkpoint")
    assert state_of(host, job) == "RUNNING"
    host.run("touch", "/tmp/written")  # noqa: S108
    wait_until(lambda: run_failsafe() == 0, "the failsafe to release the job")
    wait_for(host, urgent, "COMPLETED")
    wait_for(host, job, "COMPLETED")
    assert "OMFS_RESTARTED" not in host.run("cat", "/home/user/output")


def test_a_second_daemon_and_a_missing_socket_are_told_in_one_line(host: SystemdHost) -> None:
    second = host.run_for_code("omfsd", user="omfs")
    assert second.returncode == 1
    assert second.stdout.strip().splitlines()[-1].count("another omfsd (or failsafe) works here already") == 1
    host.run("systemctl", "stop", "omfsd", "omfs-root.socket", "omfs-root.service")
    missing = host.run_for_code("env", "OMFS_ROOT_SOCKET=/run/omfs-root.sock", "omfsd", user="omfs")
    assert missing.returncode == 1
    assert "/run/omfs-root.sock: no root process answers" in missing.stdout.strip().splitlines()[-1]
