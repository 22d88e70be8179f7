"""The lease on a real file system: one of two takers gets it, and what was edited or cannot be had is one line."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest
from structlog.testing import capture_logs

from omfs_daemon.config.load import parse_config
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.leadership.candidate import Candidate
from omfs_daemon.daemon.leadership.holder import LeaseHolder, configuration_digest, holder_of, own_holder
from omfs_daemon.daemon.leadership.leadership import Leadership, LeaseLost
from omfs_daemon.daemon.leadership.lease import CONTROLLER_AWAY, EXPIRY, FRESH, RENEW_EVERY, Controller, Lease, Stand
from omfs_daemon.daemon.leadership.lease_directory import HOLDERS_KEPT, LeaseDirectory
from omfs_daemon.daemon.leadership.timed_calls import TimedCalls
from omfs_daemon.errors import OmfsError

OWN = LeaseHolder("ctl1", "1.0", "same")


@pytest.fixture
def directory(tmp_path: Path) -> LeaseDirectory:
    path = tmp_path / "shared"
    path.mkdir(mode=0o700)
    return LeaseDirectory(path)


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


class Host:
    """A candidate, and what it sees of Slurm."""

    def __init__(self, directory: LeaseDirectory, clock: Clock, own: LeaseHolder = OWN) -> None:
        self.clock, self.own, self.is_here, self.unfit = clock, own, True, ""
        self.meanwhile: Callable[[], object] = lambda: None
        """What happens while it looks whether it could act."""
        self.candidate = Candidate(
            directory,
            lambda: self.own,
            lambda: Controller("ctl1", self.is_here),
            lambda: self.clock() if self.is_here else 0.0,
            self._check,
            TimedCalls(5.0),
            TimedCalls(5.0),
            clock,
        )

    def _check(self) -> str:
        self.meanwhile()
        return self.unfit

    def take(self) -> Leadership:
        taken = self.candidate.step()
        assert taken is not None, self.candidate.decision
        return taken

    def refuses(self) -> str:
        assert self.candidate.step() is None
        return self.candidate.decision.why


@pytest.mark.parametrize("prepare", [None, lambda lease: lease, lambda lease: lease.given_up])
def test_of_many_takers_one_gets_it(directory: LeaseDirectory, prepare: Callable[[Lease], Lease] | None) -> None:
    if prepare is not None:
        (directory.path / prepare(Lease(3, 5)).name).touch()
    seen, takers = directory.look(), 8
    barrier = Barrier(takers)

    def take(number: int) -> Lease | None:
        barrier.wait()
        return directory.take(seen, LeaseHolder(f"ctl{number}", "1", "same"))

    with ThreadPoolExecutor(takers) as pool:
        taken = [lease for lease in pool.map(take, range(takers)) if lease is not None]
    assert taken == [Lease(seen.newest + 1)]
    assert directory.look().lease == taken[0]
    assert not list(directory.path.glob(".holder*"))


def test_a_renewal_and_a_taking_exclude_each_other(directory: LeaseDirectory) -> None:
    lease = directory.take(directory.look(), OWN)
    for _ in range(100):
        assert lease is not None
        seen, barrier = directory.look(), Barrier(2)

        def renew(lease: Lease = lease, barrier: Barrier = barrier) -> Lease | None:
            barrier.wait()
            return directory.renew(lease)

        with ThreadPoolExecutor(1) as pool:
            renewing = pool.submit(renew)
            barrier.wait()
            taken = directory.take(seen, OWN)
            renewed = renewing.result()
        assert (taken is None) != (renewed is None)
        lease = taken or renewed


def test_an_epoch_is_not_given_twice_after_the_lease_was_removed(directory: LeaseDirectory) -> None:
    before = directory.look()
    lease = directory.take(before, OWN)
    assert lease is not None
    (directory.path / lease.name).unlink()
    assert directory.take(before, OWN) is None, "by an old listing"
    assert directory.renew(lease) is None
    assert directory.take(directory.look(), OWN) == Lease(2)


def test_holders_of_old_epochs_are_removed(directory: LeaseDirectory) -> None:
    for _ in range(HOLDERS_KEPT + 3):
        assert directory.take(directory.look(), OWN) is not None
    assert len(list(directory.path.glob("holder.*"))) == HOLDERS_KEPT
    assert directory.look().newest == HOLDERS_KEPT + 3


def test_a_renewal_that_was_given_up_and_ended_later_is_no_loss(directory: LeaseDirectory) -> None:
    lease = directory.take(directory.look(), OWN)
    assert lease is not None
    late = directory.renew(lease)
    assert late is not None and directory.renew(lease) == late.renewed


def test_the_holder_of_a_lower_lease_gives_way(directory: LeaseDirectory) -> None:
    lease = directory.take(directory.look(), OWN)
    assert lease is not None
    (directory.path / Lease(4).name).touch()  # somebody has made one by hand
    assert directory.renew(lease) is None


def test_the_other_takes_over_once_the_lease_has_not_changed(directory: LeaseDirectory) -> None:
    clock = Clock()
    first, second = Host(directory, clock), Host(directory, clock, OWN._replace(host="ctl2"))
    leads = first.take()
    assert leads.epoch == 1 and second.refuses() == "omfsd on ctl1 is active"
    for _ in range(20):
        clock.now += RENEW_EVERY
        leads.renew()
        assert second.refuses() == "omfsd on ctl1 is active"
    clock.now += FRESH
    with pytest.raises(LeaseLost, match="the lease of epoch 1 has expired: nothing is ordered"):
        leads.require()
    clock.now += EXPIRY - FRESH
    assert second.take().epoch == 2
    with pytest.raises(LeaseLost, match="another omfsd has taken the lease"):
        leads.renew()
    assert leads.is_lost


@pytest.mark.parametrize("copied", [Lease(9, 1), Lease(9, None)])
def test_a_copied_lease_of_a_later_epoch_is_taken_over_once_its_time_is_up(
    directory: LeaseDirectory, copied: Lease
) -> None:
    clock = Clock()
    first, second = Host(directory, clock), Host(directory, clock)
    leads = first.take()
    (directory.path / copied.name).touch()
    waits = f"the lease of epoch 9 is nobody's (no holder.9): taken if it is not renewed for {EXPIRY:g} s"
    assert second.refuses() == waits, "its holder may go on for a while"
    clock.now += RENEW_EVERY
    with pytest.raises(LeaseLost, match="removed or copied it"):
        leads.renew()
    assert leads.is_lost and first.refuses() == waits
    clock.now += EXPIRY - RENEW_EVERY
    assert second.take().epoch == 10
    assert first.refuses() == "omfsd on ctl1 is active"
    assert [path.name for path in directory.path.glob("lease*")] == ["lease.10.0"]


@pytest.mark.parametrize("copied", [Lease(1, 999), Lease(1, None)])
def test_a_copied_lease_of_the_same_epoch_lets_nobody_else_act(directory: LeaseDirectory, copied: Lease) -> None:
    clock = Clock()
    first, second = Host(directory, clock), Host(directory, clock)
    leads = first.take()
    (directory.path / copied.name).touch()
    for _ in range(20):
        assert second.refuses() == "omfsd on ctl1 is active"
        clock.now += RENEW_EVERY
        leads.renew()
    second.refuses()
    clock.now += EXPIRY
    assert second.take().epoch == 2
    with pytest.raises(LeaseLost, match="another omfsd has taken the lease"):
        leads.renew()


def test_of_a_copied_lease_a_renewal_and_a_taking_exclude_each_other(directory: LeaseDirectory) -> None:
    lease = directory.take(directory.look(), OWN)
    assert lease is not None
    (directory.path / Lease(1, 999).name).touch()
    seen = directory.look()
    renewed = directory.renew(lease)
    assert renewed is not None and directory.take(seen, OWN) is None, "its holder lives"
    assert directory.take(directory.look(), OWN) == Lease(2)
    assert directory.renew(renewed) is None


def test_a_holder_that_overslept_goes_on_if_nobody_was_there(directory: LeaseDirectory) -> None:
    clock = Clock()
    leads = Host(directory, clock).take()
    clock.now += 1000.0
    with pytest.raises(LeaseLost):
        leads.require()
    leads.renew()
    leads.require()


def test_a_lease_that_is_given_up_is_taken_at_once(directory: LeaseDirectory) -> None:
    clock = Clock()
    first, second = Host(directory, clock), Host(directory, clock)
    leads = first.take()
    leads.give_up()
    with pytest.raises(LeaseLost, match="given up"):
        leads.require()
    assert second.take().epoch == 2


def test_the_holder_gives_up_when_slurmctld_is_elsewhere(directory: LeaseDirectory) -> None:
    clock = Clock()
    first, second = Host(directory, clock), Host(directory, clock)
    leads = first.take()
    seen_until = clock.now
    first.candidate._controller_seen = lambda: seen_until
    leads._controller_seen = lambda: seen_until
    clock.now += CONTROLLER_AWAY - 1
    leads.renew()
    clock.now += 1
    with pytest.raises(LeaseLost, match="no active slurmctld is on this host any more"):
        leads.renew()
    assert second.take().epoch == 2


def test_what_is_wrong_with_the_directory_is_one_line(directory: LeaseDirectory) -> None:
    host = Host(directory, Clock())
    directory.path.rmdir()
    assert host.refuses() == f"{directory.path}: No such file or directory: no lease can be had"
    directory.path.touch()
    assert "Not a directory" in host.refuses()
    directory.path.unlink()
    directory.path.mkdir(mode=0o700)
    directory.path.chmod(0o770)
    assert "must not be writable for others" in host.refuses()


def test_a_holder_that_cannot_renew_orders_nothing_and_goes_on_later(directory: LeaseDirectory) -> None:
    clock = Clock()
    leads = Host(directory, clock).take()
    away = directory.path.rename(directory.path.with_name("away"))
    clock.now += RENEW_EVERY
    leads.renew()  # still fresh
    clock.now += FRESH
    with pytest.raises(LeaseLost, match="No such file or directory: the lease cannot be renewed"):
        leads.renew()
    assert not leads.is_lost
    away.rename(directory.path)
    leads.renew()


def test_a_read_only_directory_lets_nobody_act(directory: LeaseDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    leads, other = Host(directory, clock).take(), Host(directory, clock)
    other.refuses()

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for change in ("rename", "hardlink_to"):
        monkeypatch.setattr(Path, change, refuse)
    clock.now += FRESH
    with pytest.raises(LeaseLost, match="Read-only file system: the lease cannot be renewed"):
        leads.renew()
    clock.now += EXPIRY - FRESH
    assert other.refuses() == f"{directory.path}: Read-only file system: no lease can be had"


def test_a_file_system_that_hangs_is_a_refusal(directory: LeaseDirectory) -> None:
    ends = Event()
    calls = TimedCalls(0.05)
    with pytest.raises(TimeoutError, match="does not answer for more than"):
        calls.run(ends.wait)
    with pytest.raises(TimeoutError):
        calls.run(lambda: True)  # nothing is begun while that hangs
    ends.set()
    assert calls._thread is not None
    calls._thread.join()
    assert calls.run(lambda: 7) == 7


def test_a_different_configuration_is_refused_with_its_remedy(directory: LeaseDirectory) -> None:
    clock = Clock()
    Host(directory, clock).take().give_up()
    other = Host(directory, clock, LeaseHolder("ctl2", "1.0", "other"))
    assert other.refuses() == (
        "the configuration differs from that of the last active omfsd, on ctl1: make them the same and reload, "
        f"or remove {directory.path}/holder.1 to go by this one"
    )
    assert other.candidate.decision.stand is Stand.REFUSE
    directory.holder_file(1).unlink()
    assert other.take().epoch == 2


def test_the_last_one_itself_goes_by_a_configuration_that_was_changed_before_its_restart(
    directory: LeaseDirectory,
) -> None:
    clock, text = Clock(), "[daemon]\nstate_dir = '{}'\n[policy]\nquantum_seconds = {}\n"
    first, changed, beside = (
        own_holder(parse_config(text.format(*one), "omfs.toml"), "ctl1")
        for one in (("/one", 0), ("/one", 7), ("/two", 7))
    )
    Host(directory, clock, first).take().give_up()
    for other in (beside, changed._replace(host="ctl2")):
        assert "the configuration differs" in Host(directory, clock, other).refuses()
    Host(directory, clock, changed).take().give_up()
    assert Host(directory, clock, beside).take().epoch == 3


def test_a_configuration_that_could_not_be_noted_is_noted_after_the_next_renewal(
    directory: LeaseDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed, clock = OWN._replace(configuration="changed"), Clock()
    leads = Host(directory, clock).take()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with capture_logs() as logs, monkeypatch.context() as patched:
        patched.setattr(LeaseDirectory, "update_holder", refuse)
        leads.update(changed)
        for _ in range(3):
            clock.now += RENEW_EVERY
            leads.renew()
    assert [entry["event"] for entry in logs] == ["holder_not_written"], "once"
    assert directory.holder(1) == OWN
    leads.update(changed)
    clock.now += RENEW_EVERY
    leads.renew()
    assert directory.holder(1) == changed
    leads.update(OWN)
    assert directory.holder(1) == OWN


def test_a_change_that_is_taken_back_is_written_if_the_one_before_may_have_taken_effect(
    directory: LeaseDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, write = Clock(), LeaseDirectory.update_holder
    leads = Host(directory, clock).take()

    def write_late(directory: LeaseDirectory, epoch: int, holder: LeaseHolder) -> None:
        write(directory, epoch, holder)
        raise TimeoutError("does not answer for more than 5 s")

    with monkeypatch.context() as patched:
        patched.setattr(LeaseDirectory, "update_holder", write_late)
        leads.update(OWN._replace(configuration="changed"))
    leads.update(OWN)
    assert directory.holder(1) == OWN


def test_a_holder_of_an_earlier_version_names_no_daemon(directory: LeaseDirectory) -> None:
    clock = Clock()
    Host(directory, clock).take().give_up()
    file = directory.holder_file(1)
    file.write_text('{"format": 1, "host": "ctl1", "version": "0", "configuration": "other"}')
    assert directory.holder(1) == LeaseHolder("ctl1", "0", "other")
    assert "the configuration differs" in Host(directory, clock).refuses()


def test_a_look_at_the_state_that_hangs_is_a_refusal(directory: LeaseDirectory) -> None:
    ends = Event()
    own = Host(directory, Clock())
    own.candidate._checks = TimedCalls(0.2)
    own.meanwhile = ends.wait
    assert "does not answer for more than 0.2 s" in own.refuses()
    ends.set()
    assert own.candidate._checks._thread is not None
    own.candidate._checks._thread.join()
    assert own.take().epoch == 1


def test_the_check_has_a_limit_of_its_own(directory: LeaseDirectory) -> None:
    """It reads a whole journal, the lease's directory a few names."""
    own, checked = Host(directory, Clock()), Event()
    calls = own.candidate._calls = TimedCalls(5.0)

    def check() -> None:
        assert calls._thread is not None and not calls._thread.is_alive()
        checked.set()

    own.meanwhile = check
    assert own.take().epoch == 1 and checked.is_set()


def test_what_changes_during_the_check_is_seen_before_the_lease_is_taken(directory: LeaseDirectory) -> None:
    clock = Clock()
    first, second = Host(directory, clock), Host(directory, clock, OWN._replace(host="ctl2"))
    leads = first.take()
    second.refuses()
    clock.now += EXPIRY
    second.meanwhile = leads.renew  # it was only slow
    assert second.refuses() == "omfsd on ctl1 is active"
    clock.now += EXPIRY
    second.meanwhile = lambda: setattr(second, "is_here", False)
    assert second.refuses() == "no omfsd is active, and the active slurmctld is on ctl1"
    second.is_here, second.meanwhile = True, leads.give_up  # and may have written until then
    assert second.candidate.step() is None
    second.meanwhile = lambda: None
    assert second.take().epoch == 2, "no epoch was lost by that"


def test_a_daemon_that_could_not_act_does_not_take_it(directory: LeaseDirectory) -> None:
    host = Host(directory, Clock())
    host.unfit = "journal: was written by a later version"
    assert host.refuses() == "journal: was written by a later version"
    assert directory.look().newest == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is damaged: remove it"),
        ("[]", "is damaged: remove it"),
        ("[" * 4000, "is damaged: remove it"),
        ('{"format": 1, "host": "a", "version": "1"}', "is damaged: remove it"),
        ('{"format": 1, "host": "a\\u001b[2J", "version": "1", "configuration": ""}', "is damaged: remove it"),
        ('{"format": 2, "host": "a", "version": "1", "configuration": ""}', "format 2; this version reads 1"),
    ],
)
def test_an_edited_holder_is_refused(directory: LeaseDirectory, text: str, why: str) -> None:
    clock = Clock()
    Host(directory, clock).take().give_up()
    directory.holder_file(1).write_text(text)
    assert why in Host(directory, clock).refuses()


def test_a_damaged_holder_is_named_also_while_its_omfsd_is_active(directory: LeaseDirectory) -> None:
    clock = Clock()
    Host(directory, clock).take()
    directory.holder_file(1).write_text("")
    other = Host(directory, clock)
    assert other.refuses() == f"an omfsd is active; {directory.holder_file(1)}: is damaged: remove it"
    assert other.candidate.decision.stand is Stand.STAND_BY


def test_a_holder_that_others_could_write_is_refused(directory: LeaseDirectory) -> None:
    clock = Clock()
    Host(directory, clock).take().give_up()
    directory.holder_file(1).chmod(0o666)
    assert "others may write it" in Host(directory, clock).refuses()
    directory.holder_file(1).unlink()
    directory.holder_file(1).symlink_to("/etc/passwd")
    assert "Too many levels of symbolic links" in Host(directory, clock).refuses()


def test_a_holder_is_read_as_it_is_written() -> None:
    assert holder_of(OWN.text(), "holder.1") == OWN
    with pytest.raises(OmfsError, match="is damaged: remove it"):
        holder_of("x", "holder.1")


def test_configurations_are_the_same_if_they_decide_the_same() -> None:
    text = "[policy]\nquantum_seconds = 60\n"
    same = text + '[daemon]\nlog_level = "debug"\n[metrics]\nport = 9999\n[slurm]\npoll_seconds = 3\n'
    own, like, other = (configuration_digest(parse_config(one, "x")) for one in (text, same, text.replace("6", "7")))
    assert own == like != other
    default = text + f"retry_after_seconds = {Config().policy.retry_after_seconds:g}\n"
    assert configuration_digest(parse_config(default, "x")) == own, "a newer version may have more defaults"
