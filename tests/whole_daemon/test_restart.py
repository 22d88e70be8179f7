"""The daemon is started again where something is missing or wrong: it works on and says so, or refuses in one line with
nothing changed, and the failsafe works."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.daemon.failsafe import rescue
from omfs_daemon.daemon.store.file_format import JOURNAL
from omfs_daemon.errors import FormatError, JournalError, OmfsError
from omfs_daemon.slurm.gateway import AccountRow
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway, Fault
from tests.whole_daemon.test_process import ROOT, Stand


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path)
    yield found
    found.service.close()


def in_mid_preemption(stand: Stand) -> tuple[list[int], int]:
    """A suspended victim, its preemptor that runs, and a job that is held; the daemon is dead since."""
    victims = [stand.submit("alice", "bio", "suspend") for _ in range(4)]
    stand.run(1)
    for _ in range(2):
        stand.submit("bob", "physics", "")
    stand.run(3)
    held = stand.submit("bob", "physics", "")
    stand.run(1)
    stand.service.close()
    return [job for job in victims if state(stand, job) is JobState.SUSPENDED], held


def state(stand: Stand, job: int) -> JobState:
    found = stand.gateway.find(job)
    assert found is not None
    return found.state


def restart(stand: Stand) -> None:
    stand.service = stand.serve()


def check_failsafe(stand: Stand) -> None:
    """Whatever the daemon has refused, everybody comes back."""
    for _ in range(40):
        stand.now += 61
        if rescue(stand.config, stand.gateway, lambda: stand.now) == 0 and not stand.gateway.jobs():
            break
    assert {history.outcome for history in stand.slurm.history.values()} == {"COMPLETED"}


def warnings(stand: Stand, event: str) -> list[str]:
    """The errors that are logged with this event in two cycles."""
    with capture_logs() as logs:
        stand.run(1)
    return [str(entry["error"]) for entry in logs if entry["event"] == event]


def test_with_slurmdbd_down_the_daemon_works_on(stand: Stand) -> None:
    suspended, held = in_mid_preemption(stand)
    stand.gateway.faults.inject(Fault.DEAD, ("accounts",))
    restart(stand)
    (error,) = warnings(stand, "accounts_not_confirmed")
    assert "controller" in error
    assert stand.service.answers.status(ROOT)["last_error"] is None
    stand.run(400)
    assert {stand.slurm.history[job].outcome for job in (*suspended, held)} == {"COMPLETED"}


def test_with_slurmdbd_down_a_reload_counts(stand: Stand) -> None:
    stand.run(1)
    stand.gateway.faults.inject(Fault.DEAD, ("accounts",))
    stand.path.write_text(stand.path.read_text().replace("percent = 50", "percent = 25"))
    stand.service.answers.reload(ROOT)
    assert len(warnings(stand, "accounts_not_confirmed")) == 1
    assert stand.service.answers.status(ROOT)["accounts"][0]["entitled"] == 4


def test_an_entitled_account_that_is_deleted_ends_no_work(stand: Stand) -> None:
    suspended, held = in_mid_preemption(stand)
    stand.gateway = FakeGateway(stand.slurm, [AccountRow("physics", "")])
    restart(stand)
    (error,) = warnings(stand, "accounts_not_confirmed")
    assert error.startswith("entitlements.bio: must be an account that slurmdbd knows")
    stand.run(400)
    assert {stand.slurm.history[job].outcome for job in (*suspended, held)} == {"COMPLETED"}


def of_another_cluster(stand: Stand) -> None:
    """The same state directory, another Slurm: its jobs have the same ids."""
    stand.gateway = FakeGateway(stand.slurm, stand.gateway.accounts(), ClusterName="other")


def of_a_later_version(stand: Stand) -> None:
    text = b'{"kind":"JobsGone","refs":["1"]}'
    path = stand.config.daemon.state_dir / "journal"
    path.write_bytes(b"%d %08x %s\n" % (JOURNAL.newest + 1, zlib.crc32(text), text))


def damaged(stand: Stand) -> None:
    path = stand.config.daemon.state_dir / "journal"
    path.write_bytes(path.read_bytes().replace(b"bio", b"bia", 1))


REFUSED: dict[Callable[[Stand], None], str] = {
    of_another_cluster: "is the journal of cluster fake, and Slurm says ClusterName=other: correct slurm.conf",
    of_a_later_version: "was written by a later version of omfs-daemon",
    damaged: "the line is damaged; move the file away",
}


@pytest.mark.parametrize("how", REFUSED, ids=lambda how: how.__name__)
def test_a_journal_that_is_none_of_ours_is_refused(how: Callable[[Stand], None], stand: Stand) -> None:
    in_mid_preemption(stand)
    how(stand)
    before = (stand.config.daemon.state_dir / "journal").read_bytes()
    with pytest.raises((JournalError, FormatError)) as caught:
        stand.serve(cluster=stand.gateway.settings().values["ClusterName"])
    assert REFUSED[how] in str(caught.value) and "\n" not in str(caught.value)
    assert (stand.config.daemon.state_dir / "journal").read_bytes() == before
    check_failsafe(stand)
    assert (stand.config.daemon.state_dir / "journal").read_bytes() == before


def test_another_cluster_is_refused_also_when_slurm_comes_late(stand: Stand) -> None:
    in_mid_preemption(stand)
    of_another_cluster(stand)
    stand.gateway.faults.inject(Fault.DEAD)
    restart(stand)
    assert stand.service.once().error is not None
    stand.gateway.faults.clear()
    before = stand.gateway.jobs()
    report = stand.service.once()
    assert "is the journal of cluster fake" in report.summary
    assert stand.gateway.jobs() == before
    stand.service.close()
    check_failsafe(stand)


def test_a_journal_without_its_last_lines_is_enough(stand: Stand) -> None:
    """As from a backup: its numbers are older than the marks in Slurm."""
    path = stand.config.daemon.state_dir / "journal"
    stand.run(1)
    before = path.read_bytes()
    suspended, held = in_mid_preemption(stand)
    assert len(path.read_bytes()) > len(before)
    path.write_bytes(before)
    restart(stand)
    stand.run(400)
    assert {stand.slurm.history[job].outcome for job in (*suspended, held)} == {"COMPLETED"}


def test_a_reboot_that_empties_the_run_directory(stand: Stand) -> None:
    suspended, held = in_mid_preemption(stand)
    for path in stand.config.daemon.run_dir.iterdir():
        path.unlink()
    stand.config.daemon.run_dir.rmdir()
    restart(stand)
    stand.run(400)
    assert {stand.slurm.history[job].outcome for job in (*suspended, held)} == {"COMPLETED"}


def test_a_refusal_is_one_of_ours() -> None:
    assert issubclass(JournalError, OmfsError), "omfsd prints it as one line and ends with an exit code"
