"""``omfs`` on a login node: no socket of omfsd's there, but its login address, and a munged with the cluster's key."""

from __future__ import annotations

import json
import pwd
import socket
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.daemon.api.munge import Munge
from omfs_daemon.slurm.munge_conf import munge_socket
from tests.support.daemons import Daemon
from tests.support.munged import as_user
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

OWNER, OTHER = "nobody", "daemon"


class LoginNode:
    """A configuration with only what a login node needs."""

    def __init__(self, daemon: Daemon) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        text = daemon.config.read_text()
        daemon.config.write_text(text.replace("[daemon]\n", f'[daemon]\nlogin_address = "{self.address}"\n'))
        self.config = daemon.directory / "login.toml"
        self.config.write_text(
            f'[slurm]\nconf = "{daemon.slurm.conf}"\n'
            f'[daemon]\nuser = "{daemon.program.user}"\nlogin_address = "{self.address}"\nrun_dir = "/nonexistent"\n'
        )

    def omfs(self, user: str, *words: str) -> subprocess.CompletedProcess[str]:
        """In this process, as that user: a process of theirs may not read this clone."""
        CliRunner().invoke(app, ["-c", str(self.config), *words])  # imports what it needs, as root
        with as_user(pwd.getpwnam(user).pw_uid):
            done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["-c", str(self.config), *words])
        return subprocess.CompletedProcess(("omfs", *words), done.exit_code, done.stdout, done.stderr)


def test_owners_ask_about_their_own_jobs_and_nobody_operates(daemon: Daemon) -> None:
    node = LoginNode(daemon)
    daemon.start()
    daemon.wait_running(*(daemon.submit("bio", "--time=60", method="requeue", uid=OWNER) for _ in range(4)))
    waits = daemon.submit("bio", "--time=60", method="requeue", uid=OWNER)
    wait_until(lambda: daemon.ask("when", str(waits), check=False).get("jobs"), "an estimate of the start")

    for words in (("why", str(waits)), ("when", str(waits)), ("status",)):
        daemon.omfs(*words)  # imports what tables need, as root
    why = node.omfs(OWNER, "why", str(waits))
    assert (why.returncode, why.stderr) == (0, "")
    assert f"job {waits} of {OWNER} in bio" in why.stdout
    when = node.omfs(OWNER, "when", str(waits))
    assert (when.returncode, when.stderr) == (0, "") and f"job {waits} of {OWNER}" in when.stdout
    assert json.loads(node.omfs(OWNER, "status", "--json").stdout)["preempted"] == []

    for user in (OTHER, daemon.program.user, "root"):
        refused = node.omfs(user, "why", str(waits))
        assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", f"omfs: job {waits}: is not yours\n")
        only_own = node.omfs(user, "when", str(waits))
        assert only_own.returncode == 1 and f"job {waits} of" not in only_own.stdout
    for words in (("pause",), ("release", str(waits)), ("entitlements", "set", "bio", "1"), ("shadow",)):
        denied = node.omfs("root", *words)
        assert denied.returncode == 4 and "only on omfsd's own host" in denied.stderr
        assert denied.stderr.count("\n") == 1
    assert daemon.ask("status")["paused"] is None

    daemon.stop()
    gone = node.omfs(OWNER, "why", str(waits))
    assert (gone.returncode, gone.stderr) == (3, f"omfs: {node.address}: no omfsd listens here; is it running?\n")


def test_hostile_lines_at_the_address_leave_the_daemon_at_work(daemon: Daemon) -> None:
    node = LoginNode(daemon)
    daemon.start()
    host, port = node.address.split(":")
    munge = Munge(munge_socket(daemon.slurm.conf))
    with as_user(pwd.getpwnam(OWNER).pw_uid):
        of_another = munge.encode(b'{"op": "pause"}', pwd.getpwnam(daemon.program.user).pw_uid)
    for line in (b"\0" * 1000, b"x" * 1_000_000, b"MUNGE:AAAA:", of_another, of_another):
        with socket.create_connection((host, int(port))) as connection:
            try:
                connection.sendall(line + b"\n")
                assert connection.recv(1000) in (b"", *(b"omfs-refusal %b\n" % word for word in _WORDS))
            except ConnectionError:
                assert len(line) > 100_000, "it is not read to its end"
    assert daemon.ask("status")["paused"] is None
    assert node.omfs(OWNER, "status").returncode == 0
    assert "Traceback" not in Path(daemon.log).read_text()


_WORDS = (b"invalid", b"too_long", b"replayed")
