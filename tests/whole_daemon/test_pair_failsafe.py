"""The failsafe of one of two hosts: quiet while somebody renews the lease, and with the lease while it acts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from omfs_daemon.cluster.holds import admin_comment_of
from omfs_daemon.cluster.marks import epoch_of
from omfs_daemon.daemon.leadership.failsafe_lease import an_omfsd_acts
from omfs_daemon.daemon.leadership.holder import LeaseHolder
from omfs_daemon.daemon.leadership.lease import EXPIRY, Lease
from omfs_daemon.daemon.leadership.lease_directory import LeaseDirectory
from omfs_daemon.errors import OmfsError
from tests.whole_daemon.test_failsafe import held_jobs, is_held, run
from tests.whole_daemon.test_process import Stand


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path)
    yield found
    found.service.close()


@pytest.fixture
def shared(stand: Stand, tmp_path: Path) -> Path:
    path = tmp_path / "shared"
    path.mkdir(mode=0o700)
    daemon = stand.config.daemon.model_copy(update={"shared_directory": path})
    stand.config = stand.config.model_copy(update={"daemon": daemon})
    return path


class Rests:
    """Time goes on while the failsafe rests; from then on ``changes`` is called."""

    def __init__(self) -> None:
        self.now = 0.0

    def changes(self) -> None:
        """What the other host does."""

    def clock(self) -> float:
        return self.now

    def rest(self, seconds: float) -> None:
        self.now += seconds
        self.changes()


def test_somebody_acts_while_the_lease_is_renewed(shared: Path) -> None:
    rests, lease = Rests(), shared / Lease(3, 7).name
    lease.touch()
    assert not an_omfsd_acts(shared, rests.clock, rests.rest)
    assert rests.now == pytest.approx(EXPIRY)
    rests.changes = lambda: lease.rename(shared / Lease(3, 8).name)  # type: ignore[method-assign, assignment]
    assert an_omfsd_acts(shared, rests.clock, rests.rest)


@pytest.mark.parametrize("copied", [Lease(3, 999), Lease(9, None)])
def test_a_copied_lease_hides_no_renewal(shared: Path, copied: Lease) -> None:
    rests, lease = Rests(), shared / Lease(3, 7).name
    lease.touch()
    (shared / copied.name).touch()
    rests.changes = lambda: lease.rename(shared / Lease(3, 8).name)  # type: ignore[method-assign, assignment]
    assert an_omfsd_acts(shared, rests.clock, rests.rest)


def test_nobody_acts_where_there_is_no_lease_or_it_was_given_up(shared: Path) -> None:
    rests = Rests()
    assert not an_omfsd_acts(shared, rests.clock, rests.rest)
    (shared / Lease(3, None).name).touch()
    assert not an_omfsd_acts(shared, rests.clock, rests.rest)
    assert rests.now == 0.0


def test_it_releases_with_a_lease_of_its_own(stand: Stand, shared: Path) -> None:
    held = held_jobs(stand)
    (shared / Lease(3, None).name).touch()
    stand.now += 1000
    code, line = run(stand)
    assert (code, line["released"], line["still_held"]) == (0, len(held), [])
    assert not any(is_held(stand, job) for job in held)
    marks = [admin_comment_of(found).number for job in held if (found := stand.gateway.find(job)) is not None]
    assert {epoch_of(number) for number in marks} == {4}
    assert [path.name for path in shared.glob("lease.*")] == ["lease.4.free"]
    assert (stand.config.daemon.run_dir / "epoch").read_text() == "4000000000\n"


def test_who_was_active_last_stays_that(stand: Stand, shared: Path) -> None:
    """The failsafe decides nothing by its configuration."""
    held_jobs(stand)
    (shared / Lease(3, None).name).touch()
    last = LeaseHolder("ctl1", "1.0", "its configuration", "its state directory")
    (shared / "holder.3").write_text(last.text())
    stand.now += 1000
    assert run(stand)[0] == 0
    assert LeaseDirectory(shared).holder(4) == last


@pytest.mark.parametrize("damage", ["text", "mode", "link", "directory"])
def test_what_the_last_one_said_about_itself_keeps_nothing_from_being_released(
    stand: Stand, shared: Path, damage: str
) -> None:
    held = held_jobs(stand)
    (shared / Lease(3, None).name).touch()
    holder = shared / "holder.3"
    if damage == "link":
        holder.symlink_to("/etc/passwd")
    elif damage == "directory":
        holder.mkdir()
    else:
        holder.write_text(LeaseHolder("ctl1", "1.0", "its configuration").text() if damage == "mode" else "{")
        holder.chmod(0o666 if damage == "mode" else 0o600)
    stand.now += 1000
    assert run(stand)[0] == 0
    assert not any(is_held(stand, job) for job in held)
    last = LeaseDirectory(shared).holder(4)
    assert last is not None and last.daemon == "", "nobody was active before it"


def test_a_holder_file_that_hangs_is_no_lease(stand: Stand, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As is anything else in a file system that does not answer: whether the lease was taken would be unknown."""
    held, ends = held_jobs(stand), Event()
    (shared / Lease(3, None).name).touch()
    monkeypatch.setattr(LeaseDirectory, "holder", lambda *_: ends.wait())
    monkeypatch.setattr("omfs_daemon.daemon.leadership.failsafe_lease.ANSWERS_WITHIN", 0.2)
    stand.now += 1000
    with pytest.raises(OmfsError, match=r"does not answer for more than 0\.2 s: no lease can be had"):
        run(stand)
    ends.set()
    assert all(is_held(stand, job) for job in held)


def test_it_does_nothing_where_it_cannot_tell(stand: Stand, shared: Path) -> None:
    held = held_jobs(stand)
    shutil.rmtree(shared)
    stand.now += 1000
    with pytest.raises(OmfsError, match="No such file or directory: whether an omfsd acts is unknown"):
        run(stand)
    assert all(is_held(stand, job) for job in held)


def test_the_grace_time_begins_when_the_other_one_was_last_seen(
    stand: Stand, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This host's own daemon has not acted for a long time."""
    held = held_jobs(stand)
    stand.now += 100_000
    monkeypatch.setattr("omfs_daemon.daemon.failsafe.an_omfsd_acts", lambda _: True)
    assert run(stand)[1]["event"] == "failsafe_stands_back"
    monkeypatch.undo()
    stand.now += 50
    assert run(stand)[1]["event"] == "failsafe_not_needed"
    assert all(is_held(stand, job) for job in held)
    stand.now += 20
    assert run(stand)[0] == 0
    assert not any(is_held(stand, job) for job in held)
