"""Two real omfsd on one real Slurm, of which one acts. Both are on this host, so the controller is beside either."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omfs_daemon.cluster.marks import epoch_of, parse_admin_comment
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.daemons import OMFSD, Daemon
from tests.support.two_controllers import BACKUP, BOTH_SHAPE, BackupProgram, TwoControllers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm


class PairOfDaemons:
    """Two installations with a directory that they share."""

    def __init__(self, slurm: LocalSlurm, directory: Path) -> None:
        directory.chmod(0o755)
        self.shared = directory / "shared"
        self.shared.mkdir(mode=0o700)
        self.both = []
        for name in ("a", "b"):
            (directory / name).mkdir()
            daemon = Daemon(slurm, directory / name)
            text = daemon.config.read_text().replace("[daemon]", f'[daemon]\nshared_directory = "{self.shared}"')
            daemon.config.write_text(re.sub(r"(conf = .*)", r"\1\ntimeout_seconds = 3", text))
            self.both.append(daemon)
        user = self.both[0].program.user
        if user and os.geteuid() == 0:
            os.chown(self.shared, pwd.getpwnam(user).pw_uid, -1)

    def close(self) -> None:
        for daemon in self.both:
            if daemon.process is not None and daemon.process.poll() is None:
                daemon.process.send_signal(signal.SIGCONT)
            daemon.kill()


@pytest.fixture
def pair(slurm: LocalSlurm) -> Iterator[PairOfDaemons]:
    directory = Path(tempfile.mkdtemp(prefix="omfsd-pair-"))
    made = PairOfDaemons(slurm, directory)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(directory, ignore_errors=True)


def is_active(daemon: Daemon) -> bool:
    found = daemon.ask("status", check=False).get("pair")
    return bool(found and found["active"])


def stands_by(daemon: Daemon) -> bool:
    found = daemon.ask("status", check=False).get("pair")
    return bool(found and not found["active"] and "waits for its lease" not in found["text"])


PAUSED_BEFORE_ITS_ORDERS = """
import os, signal
from omfs_daemon.daemon.effects_runner import EffectsRunner
record = EffectsRunner._record
def record_and_stop(self, chains, records, *rest):
    marked = record(self, chains, records, *rest)
    if any(type(one).__name__ == "PreemptionChanged" for one in records):
        EffectsRunner._record = record
        os.kill(os.getpid(), signal.SIGSTOP)
    return marked
EffectsRunner._record = record_and_stop
from omfs_daemon.cli.omfsd import run
run()
"""
"""omfsd that is paused once when a preemption is in its journal, and none of its orders is sent."""


def start(pair: PairOfDaemons, code: str = OMFSD) -> tuple[Daemon, Daemon]:
    """The first acts, the second stands by."""
    first, second = pair.both
    first.start(code, ready=False)
    wait_until(lambda: is_active(first) and first.ask("status")["last_poll"], lambda: f"omfsd to act: {first.tail()}")
    second.start(ready=False)
    wait_until(lambda: stands_by(second), lambda: f"the other one to stand by: {second.tail()}")
    return first, second


def epochs(daemon: Daemon, *job_ids: int) -> set[int]:
    """Of the numbers in the marks of these jobs."""
    marks = [parse_admin_comment(daemon.job(job_id).admin_comment) for job_id in job_ids]
    return {epoch_of(mark.number) for mark in marks if mark.number}


def send(daemon: Daemon, which: signal.Signals) -> None:
    assert daemon.process is not None
    daemon.process.send_signal(which)


def test_a_paused_omfsd_is_replaced_and_orders_nothing_when_it_wakes_up(pair: PairOfDaemons) -> None:
    first, second = start(pair)
    shown = second.omfs("status").stdout
    assert "stands by: omfsd on" in shown and "is active" in shown
    refused = second.omfs("pause", check=False)
    assert refused.returncode != 0 and "stands by: ask on" in refused.stderr
    bio = [first.submit("bio", method="requeue") for _ in range(4)]
    first.wait_running(*bio)
    first.omfs("entitlements", "set", "bio", "40")
    send(first, signal.SIGSTOP)
    wait_until(lambda: is_active(second), lambda: f"a takeover: {second.tail()}")
    assert second.ask("status")["pair"]["epoch"] == 2
    assert "percent = 40" in second.omfs("entitlements", "export").stdout, "what was changed is taken over"
    urgent = second.submit("alarm", "-p", "urgent")
    second.wait_running(urgent)
    victims = [job for job in bio if not second.runs(job)]
    assert len(victims) == 1
    wait_until(lambda: epochs(second, *victims) == {2}, lambda: f"a mark of the epoch: {second.observation()}")
    send(first, signal.SIGCONT)
    wait_until(lambda: stands_by(first), lambda: f"the first one to give way: {first.tail()}")
    assert "lease_lost" in first.log.read_text()
    assert is_active(second) and second.ask("status")["pair"]["epoch"] == 2
    assert [job for job in bio if not second.runs(job)] == victims
    second.let_end(urgent, *bio)
    second.wait_rest()
    assert second.completed([urgent, *bio])


def test_orders_that_were_decided_before_a_pause_are_not_sent_after_it(pair: PairOfDaemons) -> None:
    first, second = start(pair, PAUSED_BEFORE_ITS_ORDERS)
    bio = [first.submit("bio", method="requeue") for _ in range(4)]
    first.wait_running(*bio)
    urgent = first.submit("alarm", "-p", "urgent")
    wait_until(lambda: is_active(second), lambda: f"a takeover: {second.tail()}")
    second.wait_running(urgent)
    victims = [job for job in bio if not second.runs(job)]
    assert len(victims) == 1
    before = [second.job(job).restarts for job in (urgent, *bio)]
    send(first, signal.SIGCONT)
    wait_until(lambda: stands_by(first), lambda: f"the first one to give way: {first.tail()}")
    assert "the lease of epoch 1 has expired: nothing is ordered" in first.log.read_text()
    assert [second.job(job).restarts for job in (urgent, *bio)] == before, "its orders are dropped"
    assert epochs(second, urgent, *victims) <= {2}
    second.let_end(urgent, *bio)
    second.wait_rest()


def test_the_other_one_goes_on_in_the_middle_of_a_preemption(pair: PairOfDaemons) -> None:
    """The victim is held and ended, and the one that has ordered it is killed before the preemptor runs."""
    first, second = start(pair)
    bio = [first.submit("bio", method="requeue") for _ in range(4)]
    first.wait_running(*bio)
    urgent = first.submit("alarm", "-p", "urgent")
    wait_until(lambda: not all(first.runs(job) for job in bio), "a victim to be preempted")
    first.kill()
    wait_until(lambda: is_active(second), lambda: f"a takeover: {second.tail()}")
    second.wait_running(urgent)
    second.let_end(urgent)
    wait_until(lambda: all(second.runs(job) for job in bio), lambda: f"the victim to run again: {second.tail()}")
    assert second.held() == []
    second.let_end(*bio)
    second.wait_rest()


def test_the_lease_follows_slurm_to_the_backup_and_back(own_slurm: Callable[..., LocalSlurm]) -> None:
    """A real failover: the host of the primary dies, with slurmctld and omfsd, and comes back."""
    slurm = own_slurm(BOTH_SHAPE)
    controllers, directory = TwoControllers(slurm), slurm.directory / "pair"
    controllers.start()
    directory.mkdir()
    pair = PairOfDaemons(slurm, directory)
    program = pair.both[1].program
    pair.both[1].program = BackupProgram(program.user, program.python, program.variables, controllers.hosts)
    try:
        first, second = start(pair)
        bio = [first.submit("bio", method="requeue") for _ in range(4)]
        first.wait_running(*bio)
        controllers.wait_saved()
        first.kill()
        slurm.kill_controller()
        wait_until(lambda: is_active(second), lambda: f"a takeover: {second.tail()}")
        assert second.ask("status")["pair"]["host"] == BACKUP
        wait_until(lambda: second.ask("status")["last_poll"], lambda: f"an answer of Slurm: {second.tail()}")
        urgent = second.submit("alarm", "-p", "urgent")
        second.wait_running(urgent)
        controllers.wait_saved()
        slurm.start_controller()
        first.start(ready=False)
        wait_until(lambda: is_active(first), lambda: f"the way back: {first.tail()} {second.tail()}")
        assert first.ask("status")["pair"]["epoch"] == 3
        wait_until(lambda: stands_by(second), lambda: f"the backup's to stand by: {second.tail()}")
        assert "no active slurmctld is on this host any more" in second.log.read_text()
        first.let_end(urgent, *bio)
        first.wait_rest()
    finally:
        pair.close()
        controllers.stop_backup()


def test_one_that_is_stopped_gives_the_lease_up(pair: PairOfDaemons) -> None:
    first, second = start(pair)
    assert first.stop() == 0
    wait_until(lambda: (pair.shared / "state.2").is_dir(), lambda: f"a takeover: {second.tail()}")
    wait_until(lambda: is_active(second), lambda: f"it to act: {second.tail()}")
    assert second.stop() == 0
    assert [path.name for path in pair.shared.glob("lease.*")] == ["lease.2.free"]


def test_a_standby_with_another_configuration_does_not_take_over(pair: PairOfDaemons) -> None:
    first, second = start(pair)
    text = second.config.read_text()
    second.config.write_text(text.replace("quantum_seconds = 0", "quantum_seconds = 7"))
    send(second, signal.SIGHUP)
    why = lambda: second.ask("status")["summary"]  # noqa: E731
    wait_until(lambda: "its configuration differs" in why(), lambda: f"it to be told: {second.tail()}")
    assert second.log.read_text().count("configurations_differ") == 1
    assert first.stop() == 0
    wait_until(lambda: "the configuration differs from that of the last active omfsd" in why(), lambda: second.tail())
    second.config.write_text(text)
    send(second, signal.SIGHUP)
    wait_until(lambda: is_active(second), lambda: f"a takeover: {second.tail()}")


def test_the_last_active_one_goes_on_after_both_were_restarted_with_a_changed_configuration(
    pair: PairOfDaemons,
) -> None:
    first, second = start(pair)
    for daemon in (second, first):
        assert daemon.stop() == 0
        daemon.config.write_text(daemon.config.read_text().replace("quantum_seconds = 0", "quantum_seconds = 7"))
    second.start(ready=False)
    why = lambda: second.ask("status", check=False).get("summary", "")  # noqa: E731
    wait_until(lambda: "the configuration differs from that of the last active omfsd" in why(), lambda: second.tail())
    first.start(ready=False)
    wait_until(lambda: is_active(first), lambda: f"it to act: {first.tail()}")
    wait_until(lambda: stands_by(second) and "is active" in why(), lambda: f"it to stand by: {second.tail()}")


def test_a_reload_while_it_takes_over_is_not_lost(pair: PairOfDaemons) -> None:
    first, second = start(pair)
    assert first.stop() == 0
    wait_until(lambda: "lease_taken" in second.log.read_text(), lambda: f"it to take the lease: {second.tail()}")
    second.config.write_text(second.config.read_text().replace("quantum_seconds = 0", "quantum_seconds = 7"))
    send(second, signal.SIGHUP)
    wait_until(lambda: "configuration_loaded" in second.log.read_text(), lambda: f"a reload: {second.tail()}")
    wait_until(lambda: is_active(second), lambda: f"it to act: {second.tail()}")


def test_without_the_shared_directory_nobody_acts(pair: PairOfDaemons) -> None:
    first, second = start(pair)
    away = pair.shared.rename(pair.shared.with_name("away"))
    blind = lambda: first.ask("status")["last_error"] or ""  # noqa: E731
    wait_until(lambda: "No such file or directory: the lease cannot be renewed" in blind(), lambda: first.tail())
    wait_until(lambda: "no lease can be had" in second.ask("status")["summary"], lambda: second.tail())
    assert "the lease cannot be renewed" in first.omfs("pause", check=False).stderr
    checked = first.omfs("check", "--json", check=False)
    assert checked.returncode == 1 and f"neither omfsd acts: {pair.shared}: No such file" in checked.stdout
    job = first.submit("bio", method="requeue")
    first.wait_running(job)
    away.rename(pair.shared)
    wait_until(lambda: is_active(first) or is_active(second), lambda: first.tail() + second.tail())
    first.let_end(job)


def test_the_failsafe_leaves_alone_what_the_other_host_holds(pair: PairOfDaemons) -> None:
    first, second = start(pair)
    done = second.omfs("failsafe")
    assert "an omfsd has the lease and renews it" in done.stdout + done.stderr
    first.kill()
    second.kill()
    released = second.omfs("failsafe", check=False)
    assert "an omfsd has the lease" not in released.stdout + released.stderr
