"""What DMTCP prints and writes, read; the set of a checkpoint, judged."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from omfs_daemon.omfs_run.drivers.dmtcp import dmtcp_processes
from omfs_daemon.omfs_run.drivers.dmtcp import environment as dmtcp_environment
from omfs_daemon.omfs_run.drivers.dmtcp import images as dmtcp_images
from omfs_daemon.omfs_run.drivers.dmtcp.coordinator import (
    DmtcpPeer,
    Reply,
    Status,
    parse_list,
    parse_status,
    read_port,
    run_dmtcp,
)
from omfs_daemon.omfs_run.drivers.dmtcp.images import IncompleteCheckpoint, Script, complete_set, parse_script, seal
from omfs_daemon.omfs_run.drivers.dmtcp.versions import parse_version, quirks_of, shown
from omfs_daemon.omfs_run.drivers.driver import CannotStart
from tests.support.dmtcp_stand_in import install
from tests.support.waiting import LIMIT, wait_until


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("dmtcp_launch (DMTCP) 4.2.0\nLicense", (4, 2, 0)),
        ("dmtcp_launch (DMTCP) 5.0\n", (5, 0, 0)),
        ("dmtcp_launch (DMTCP) 3.2.0-rc1", (3, 2, 0)),
        ("no version", None),
        ("", None),
    ],
)
def test_versions(text: str, version: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("version", "option", "blocks"),
    [
        ((2, 6, 0), "--xcheckpoint", True),
        ((3, 0, 0), "--kcheckpoint", True),
        ((3, 1, 2), "--kcheckpoint", True),
        ((3, 2, 0), "--kcheckpoint", False),
        ((4, 2, 0), "--kcheckpoint", False),
        ((5, 0, 0), "--kcheckpoint", False),
        ((6, 0, 0), "--kcheckpoint", True),
    ],
)
def test_quirks(version: tuple[int, int, int], option: str, blocks: bool) -> None:
    row = quirks_of(version)
    assert (row.request, row.blocks, row.accepted) == (option, blocks, (0, 2))
    assert shown(version) == "dmtcp " + ".".join(map(str, version))


STATUS = "Coordinator:\n  Host: localhost\n  Port: 1\nStatus...\n  NUM_PEERS={}\n  RUNNING={}\n  CKPT_INTERVAL=0 (x)\n"


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply(0, STATUS.format(3, "yes"), ""), Status(True, 3, True)),
        (Reply(0, STATUS.format(3, "no"), ""), Status(True, 3, False)),
        (Reply(0, STATUS.format(0, "yes"), ""), Status(True, 0, False)),
        (Reply(2, "", "Coordinator not found. Please check port and host.\n"), Status(False, 0, False)),
        (Reply(None, STATUS.format(3, "yes"), ""), None),
        (Reply(0, "", ""), None),
        (Reply(99, "", ""), None),
    ],
)
def test_status(reply: Reply, status: Status | None) -> None:
    assert parse_status(reply) == status


def test_a_list_is_read_whatever_the_programs_are_called() -> None:
    text = (
        "Client List:\n#, PROG[virtPID:realPID]@HOST, DMTCP-UNIQUEPID, STATE, BARRIER\n"
        "1, bash[40000:21818]@vm, 98ff-40000-15be28b65959, WorkerState::RUNNING, \n"
        "2, a, b[1:2]@c[41000:7]@vm, 98ff-41000-15be, WorkerState::RESTARTING, DMT:x\n\n"
    )
    assert parse_list(text) == [
        DmtcpPeer(21818, "98ff-40000-15be28b65959", "RUNNING"),
        DmtcpPeer(7, "98ff-41000-15be", "RESTARTING"),
    ]


@pytest.mark.parametrize(
    ("text", "port"),
    [("45641", 45641), ("1\n", 1), ("", None), ("0", None), ("99999", None), ("-5", None), ("x", None)],
)
def test_ports(tmp_path: Path, text: str, port: int | None) -> None:
    assert read_port(str(tmp_path / "none")) is None
    (tmp_path / "port").write_text(text)
    assert read_port(str(tmp_path / "port")) == port


def test_a_call_ends_in_time_with_all_it_started() -> None:
    assert run_dmtcp(["sh", "-c", "echo a; echo b >&2; exit 3"], dict(os.environ), 10.0) == Reply(3, "a\n", "b\n")
    assert run_dmtcp(["sh", "-c", "sleep 100 & sleep 100"], dict(os.environ), 0.2).code is None


# --- the set


def script(directory: Path, images: list[str], count: int | None = None) -> None:
    path = directory / "dmtcp_restart_script_98ff-40000-1.sh"
    head = "" if count is None else f"# Number of processes in the computation = {count}\n\n"
    path.write_text(f'#!/bin/bash\n{head}given_ckpt_files="{"".join(f" /s/dmtcp-images/{name}" for name in images)}"\n')
    path.chmod(0o744)
    (directory / dmtcp_images.LINK).symlink_to(path.name)


def image(directory: Path, name: str, size: int = 10) -> str:
    (directory / name).write_bytes(b"x" * size)
    return name


def test_a_complete_set(tmp_path: Path) -> None:
    names = [image(tmp_path, "ckpt_a_1.dmtcp"), image(tmp_path, "ckpt_my prog_2.dmtcp")]
    script(tmp_path, names, 2)
    (tmp_path / "ckpt_a_1_files").mkdir()
    image(tmp_path / "ckpt_a_1_files", "fd-info.txt")
    # A child that ended between the question and the checkpoint: the count in the script is used.
    assert complete_set(str(tmp_path), 3) == names
    files = seal(str(tmp_path))
    assert files == [names[0], "ckpt_a_1_files/fd-info.txt", names[1], "dmtcp_restart_script_98ff-40000-1.sh"]
    assert not (tmp_path / dmtcp_images.LINK).is_symlink()


def test_a_script_without_a_count_is_compared_with_the_number_of_processes(tmp_path: Path) -> None:
    script(tmp_path, [image(tmp_path, "ckpt_a_1.dmtcp")])
    assert complete_set(str(tmp_path), 1) == ["ckpt_a_1.dmtcp"]
    with pytest.raises(IncompleteCheckpoint, match="for 2 processes"):
        complete_set(str(tmp_path), 2)


def test_a_script_for_several_hosts_is_read() -> None:
    first, second = "n1 :bg: /d/ckpt_a_1.dmtcp /d/ckpt_b_2.dmtcp : ssh", "n2 :bg: /d/ckpt_c_3.dmtcp : ssh"
    text = f"worker_ckpts='\n :: {first}\n :: {second}\n'\n"
    assert parse_script(text) == Script(["ckpt_a_1.dmtcp", "ckpt_b_2.dmtcp", "ckpt_c_3.dmtcp"], None)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda d: image(d, "ckpt_b_2.dmtcp.temp"), "not finished"),
        (lambda d: image(d, "ckpt_b_2.dmtcp"), "2 images, 1 in the restart script"),
        (lambda d: (d / "ckpt_a_1.dmtcp").unlink(), "is missing"),
        (lambda d: (d / "ckpt_a_1.dmtcp").write_bytes(b""), "not a nonempty file of ours"),
        (
            lambda d: ((d / "ckpt_a_1.dmtcp").unlink(), (d / "ckpt_a_1.dmtcp").symlink_to("/etc/passwd")),
            "not a nonempty file of ours",
        ),
        (lambda d: (d / "dmtcp_restart_script.sh").unlink(), "no restart script"),
        (lambda d: (d / "dmtcp_restart_script_98ff-40000-1.sh").chmod(0o644), "script is not finished"),
        (lambda d: (d / "dmtcp_restart_script_2.sh").touch(), "2 restart scripts"),
        (lambda d: image(d, "ckpt_b\n2.dmtcp"), r"ckpt_b\\n2.dmtcp is not the name"),
    ],
)
def test_an_incomplete_set(tmp_path: Path, spoil: object, text: str) -> None:
    script(tmp_path, [image(tmp_path, "ckpt_a_1.dmtcp")], 1)
    assert complete_set(str(tmp_path), 1)
    assert callable(spoil)
    spoil(tmp_path)
    with pytest.raises(IncompleteCheckpoint, match=text):
        complete_set(str(tmp_path), 1)


def test_links_and_pipes_among_the_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ckpt_a_1_files").mkdir()
    (tmp_path / "ckpt_a_1_files" / "x").symlink_to("/etc")
    with pytest.raises(IncompleteCheckpoint, match="x is a link"):
        seal(str(tmp_path))
    (tmp_path / "ckpt_a_1_files" / "x").unlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(IncompleteCheckpoint, match="pipe is neither"):
        seal(str(tmp_path))


# --- environment and processes


def test_only_harmless_variables_of_dmtcp_are_kept() -> None:
    variables = {
        "A": "1",
        "DMTCP_COORD_HOST": "other",
        "DMTCP_GZIP": "1",
        "DMTCP_SIGCKPT": "10",
        "DMTCP_FORKED_CKPT": "1",
    }
    assert dmtcp_environment.dmtcp_environment(variables, "/d", "/t") == {
        "A": "1",
        "DMTCP_SIGCKPT": "10",
        "DMTCP_GZIP": "0",
        "DMTCP_TMPDIR": "/t",
        "DMTCP_CHECKPOINT_DIR": "/d",
        "DMTCP_FAIL_RC": "83",
    }
    assert dmtcp_environment.checkpoint_signal(variables) == 10
    assert dmtcp_environment.checkpoint_signal({}) == signal.SIGUSR2


def test_open_mpi_is_reported_by_the_name_of_its_starters() -> None:
    assert dmtcp_environment.is_mpi(["/usr/bin/mpirun", "-np", "2"])
    assert dmtcp_environment.is_mpi(["orterun"])
    assert not dmtcp_environment.is_mpi(["./mpirun.sh"])
    assert dmtcp_environment.holds_mpi(["ckpt_rank_1.dmtcp", "ckpt_orterun_2.dmtcp"])
    assert not dmtcp_environment.holds_mpi(["ckpt_rank_1.dmtcp"])
    variables = dmtcp_environment.for_open_mpi(
        {"SLURM_JOB_ID": "1", "PMIX_RANK": "0", "OMPI_MCA_btl": "self,vader"}, "/m"
    )
    assert variables["OMPI_MCA_btl"] == "self,vader"
    assert variables["OMPI_MCA_orte_tmpdir_base"] == "/m"
    assert not [name for name in variables if name.startswith(("SLURM_", "PMI"))]


def test_open_mpis_directory_must_be_ours_alone(tmp_path: Path) -> None:
    variables = {"OMFS_MPI_TMPDIR": str(tmp_path), "SLURM_JOB_ID": "7"}
    path = dmtcp_environment.mpi_session(variables)
    assert path == dmtcp_environment.mpi_session(variables)
    Path(path).chmod(0o777)
    with pytest.raises(CannotStart, match="must be yours, with mode 0700"):
        dmtcp_environment.mpi_session(variables)
    Path(path).rmdir()
    Path(path).symlink_to(tmp_path)
    with pytest.raises(CannotStart, match="must be yours, with mode 0700"):
        dmtcp_environment.mpi_session(variables)


def test_processes_are_found_by_descent_group_directory_and_open_files(tmp_path: Path) -> None:
    environment = dict(os.environ, DMTCP_TMPDIR=str(tmp_path))
    root = subprocess.Popen(["sh", "-c", "setsid sleep 3600 & sleep 3600"], env=environment, preexec_fn=os.setpgrp)
    orphan = subprocess.Popen(["sh", "-c", "setsid sleep 3601 & exit"], env=environment)
    (tmp_path / "shared").touch()
    with (tmp_path / "shared").open("w") as shared:
        restored = subprocess.Popen(["sh", "-c", "setsid sleep 3602 & exit"], stdout=shared)
    orphan.wait()
    restored.wait()
    (tmp_path / "shared").unlink()  # DMTCP deletes it
    place = str(tmp_path)
    try:
        wait_until(lambda: len(dmtcp_processes.belonging(root.pid, [], place)) >= 5, "the shell to have its children")
    finally:

        def find() -> set[dmtcp_processes.DmtcpProcess]:
            root.poll()
            return dmtcp_processes.belonging(root.pid, [], place)

        assert dmtcp_processes.kill_until_gone(find, lambda seconds: None, 10000)
    # The shell, or first the child that it waits for: then it ends as that did.
    assert root.wait() in (-signal.SIGKILL, 128 + signal.SIGKILL)


def test_a_reused_pid_is_not_taken_for_the_process_that_had_it() -> None:
    me = dmtcp_processes.all_processes_now()[os.getppid()]
    other = me._replace(start=me.start + 1)
    assert dmtcp_processes.belonging(-1, [other], "/no/such/place") == set()


# --- the stand-in


def test_the_stand_in_is_for_every_user_to_run(tmp_path: Path) -> None:
    place = install(tmp_path / "dmtcp", "5.0")
    for name in ("launch", "command", "restart", "coordinator"):
        assert (place / f"dmtcp_{name}").stat().st_mode & 0o777 == 0o755
    shown_version = subprocess.run([place / "dmtcp_launch", "--version"], capture_output=True, text=True, timeout=LIMIT)
    assert shown_version.stdout.startswith("dmtcp_launch (DMTCP) 5.0\n")
    with pytest.raises(ValueError, match="no such fault"):
        install(tmp_path / "other", fault="nonsense")
