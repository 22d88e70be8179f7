"""omfsd gives up root for good, and the root process ends with it, however that ends."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from omfs_daemon.testing.local_slurm.daemon_program import daemon_program
from tests.support.daemons import ROOT
from tests.support.waiting import LIMIT, wait_until

USER = "nobody"
CODE = """
import json, os, sys
from pathlib import Path
from omfs_daemon.config.load import load
from omfs_daemon.daemon.root_process.own_user import own_user
from omfs_daemon.errors import ConfigError
path = Path(sys.argv[1])
def may_return():
    try:
        os.setresuid(0, 0, 0)
    except PermissionError:
        return False
    return True
try:
    with own_user(load(path), path, make=True) as root:
        print(json.dumps({
            "uids": os.getresuid(), "gids": os.getresgid(), "groups": os.getgroups(), "may_return": may_return(),
            "home": os.environ["HOME"], "asks": root is not None,
        }), flush=True)
        sys.stdin.read()
except ConfigError as error:
    print(json.dumps({"error": str(error)}))
"""


class Place:
    """A configuration of root's in a directory that all may enter, and omfsd's beginning as a process."""

    def __init__(self, directory: Path) -> None:
        directory.chmod(0o755)
        self.config = directory / "omfs.toml"
        self.state, self.run = directory / "state", directory / "run"
        self.write(USER)
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, user: str) -> None:
        self.config.write_text(f'[daemon]\nuser = "{user}"\nstate_dir = "{self.state}"\nrun_dir = "{self.run}"\n')

    def start(self, *prefix: str) -> dict[str, object]:
        """What it says once it is another user."""
        program = daemon_program(USER)
        assert program.user == USER, f"{ROOT} and a Python with its packages must be readable for {USER}"
        command = [*prefix, program.python, "-c", CODE, str(self.config)]
        environment = os.environ | program.variables
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        said: dict[str, object] = json.loads(self.process.stdout.readline())
        return said

    def end(self) -> None:
        if self.process is not None:
            self.process.communicate(timeout=LIMIT)


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="omfs-user-") as directory:
        made = Place(Path(directory))
        try:
            yield made
        finally:
            made.end()


def test_root_is_given_up_and_the_directories_are_the_users(place: Place) -> None:
    user = pwd.getpwnam(USER)
    said = place.start()
    assert said == {
        "uids": [user.pw_uid] * 3,
        "gids": [user.pw_gid] * 3,
        "groups": [user.pw_gid],
        "may_return": False,
        "home": user.pw_dir,
        "asks": True,
    }
    assert [(path.stat().st_uid, path.stat().st_mode & 0o777) for path in (place.state, place.run)] == [
        (user.pw_uid, 0o700),
        (user.pw_uid, 0o755),
    ]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_root_process_ends_with_omfsd(place: Place, how: signal.Signals) -> None:
    place.start()
    assert place.process is not None
    (root,) = psutil.Process(place.process.pid).children()
    assert root.uids().effective == 0 and psutil.Process(place.process.pid).uids().effective != 0
    place.process.send_signal(how)
    place.process.wait(LIMIT)
    wait_until(lambda: not root.is_running() or root.status() == psutil.STATUS_ZOMBIE, "the root process to end")


def test_started_as_the_user_it_needs_no_root(place: Place) -> None:
    user = pwd.getpwnam(USER)
    for path in (place.state, place.run):
        path.mkdir()
        os.chown(path, user.pw_uid, -1)
    said = place.start("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
    assert said["uids"] == [user.pw_uid] * 3 and said["asks"] is False


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("no such user", "must be a user of this host"),
        ("another", "must be started as root or as that user"),
        ("writable", "must not be writable for nobody"),
        ("writable directory", "must not be writable for nobody"),
        ("unreadable", "cannot be read by nobody"),
        ("root's state", "chown -R nobody "),
        ("writable state", "must not be writable for others: chmod go-w "),
    ],
)
def test_what_would_not_be_safe_or_not_work_is_refused_at_start(place: Place, wrong: str, why: str) -> None:
    prefix = []
    match wrong:
        case "no such user":
            place.write("omfs-nobody-here")
        case "another":
            prefix = ["setpriv", "--reuid=5", "--regid=60", "--clear-groups"]
        case "writable":
            place.config.chmod(0o666)
        case "writable directory":
            place.config.parent.chmod(0o1777)  # as /tmp: safe for what is in it, not for the configuration
        case "unreadable":
            place.config.chmod(0o600)
        case "root's state":
            place.state.mkdir()
        case "writable state":
            place.state.mkdir()
            os.chown(place.state, pwd.getpwnam(USER).pw_uid, -1)
            place.state.chmod(0o770)
    assert why in str(place.start(*prefix)["error"])
