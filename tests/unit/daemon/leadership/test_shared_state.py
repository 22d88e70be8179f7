"""What a takeover finds: the state of the last epoch, at first that of the host that begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from omfs_daemon.cli.omfsd import app
from omfs_daemon.config.load import parse_config
from omfs_daemon.config.schema import DaemonSection
from omfs_daemon.daemon.check_state import check_state
from omfs_daemon.daemon.leadership.shared_state import decided_state_dir, make_state, why_unread
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.preemption.state import ClusterNamed, OrdersNumbered


@pytest.fixture
def daemon(tmp_path: Path) -> DaemonSection:
    for name in ("state", "shared"):
        (tmp_path / name).mkdir(mode=0o700)
    text = f'[daemon]\nstate_dir = "{tmp_path}/state"\nshared_directory = "{tmp_path}/shared"\n'
    return parse_config(text, "omfs.toml").daemon


def shared(daemon: DaemonSection) -> Path:
    assert daemon.shared_directory is not None
    return daemon.shared_directory


def write(directory: Path, number: int) -> None:
    journal = Journal(directory / "journal")
    journal.write(ClusterNamed("c"), OrdersNumbered(number))
    journal.close()


def number(directory: Path) -> int:
    journal = Journal(directory / "journal")
    journal.close()
    return journal.state.sequence


def test_the_first_brings_its_own_state_and_each_next_one_that_of_the_last(daemon: DaemonSection) -> None:
    write(daemon.state_dir, 5)
    (daemon.state_dir / "audit.jsonl").write_text("{}\n")
    (daemon.state_dir / "audit.jsonl").chmod(0o600)
    first = make_state(daemon, shared(daemon), 1)
    assert number(first) == 5 and (first / "audit.jsonl").read_text() == "{}\n"
    write(first, 6)
    write(daemon.state_dir, 99)  # nobody reads it any more
    second = make_state(daemon, shared(daemon), 4)
    assert number(second) == 6 and decided_state_dir(daemon) == second
    write(first, 7)  # late
    third = make_state(daemon, shared(daemon), 5)
    assert number(third) == 6, "what one writes whose epoch is over is lost"
    assert sorted(path.name for path in shared(daemon).iterdir()) == ["state.4", "state.5"]
    assert check_state(third).is_read


def test_each_file_is_looked_at_where_it_is_kept(daemon: DaemonSection, tmp_path: Path) -> None:
    path = tmp_path / "omfs.toml"
    path.write_text(f'[daemon]\nstate_dir = "{daemon.state_dir}"\nshared_directory = "{daemon.shared_directory}"\n')

    def listed() -> set[str]:
        result = CliRunner().invoke(app, ["-c", str(path), "--check-state"])
        assert result.exit_code == 0, result.output
        files = (line.split(": ")[0] for line in result.stdout.splitlines())
        return {str(Path(file).relative_to(tmp_path)) for file in files}

    names = {"journal", "entitlements.toml", "exemptions.json", "audit.jsonl"}
    local = {"state", "state/history.sqlite", "state/ended_jobs.sqlite"}
    assert listed() == local | {f"state/{name}" for name in names}
    make_state(daemon, shared(daemon), 1)
    (daemon.state_dir / "journal").write_bytes(b"99 00000000 {}\n")  # nobody reads it any more
    assert listed() == local | {"shared/state.1"} | {f"shared/state.1/{name}" for name in names}


def test_a_line_that_is_being_written_is_no_damage(daemon: DaemonSection) -> None:
    write(daemon.state_dir, 5)
    with (daemon.state_dir / "journal").open("ab") as file:
        file.write(b"11 0000")
    assert number(make_state(daemon, shared(daemon), 1)) == 5


def test_nothing_is_taken_of_a_newer_version_or_another_cluster(daemon: DaemonSection) -> None:
    assert why_unread(daemon, "c") == ""
    write(daemon.state_dir, 5)
    assert why_unread(daemon, "c") == ""
    assert "is the journal of cluster c" in why_unread(daemon, "d")
    (daemon.state_dir / "journal").write_bytes(b"99 00000000 {}\n")
    assert "later version" in why_unread(daemon, "c")


def test_a_draft_of_one_that_died_is_replaced(daemon: DaemonSection) -> None:
    write(daemon.state_dir, 5)
    (shared(daemon) / ".state.1").mkdir()
    (shared(daemon) / ".state.1" / "journal").write_text("half")
    assert number(make_state(daemon, shared(daemon), 1)) == 5
