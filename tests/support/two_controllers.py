"""A private Slurm with a primary and a backup slurmctld, each on a "host" of its own: a UTS namespace with its name."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from omfs_daemon.testing.local_slurm.daemon_program import DaemonProgram
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape

BACKUP = "ctl2"
_ADDRESS = "127.0.0.2"

BOTH_SHAPE = Shape(
    options={
        "CommunicationParameters": "NoCtldInAddrAny",  # both use one port
        "SlurmctldTimeout": "10",
        "DebugFlags": "NO_CONF_HASH",
    }
)


def on_backup(command: list[str], hosts: Path) -> list[str]:
    """The command as on the backup's host; ``hosts``: its /etc/hosts."""
    script = f'mount --bind "{hosts}" /etc/hosts && hostname {BACKUP} && exec "$@"'
    return ["unshare", "--uts", "--mount", "sh", "-c", script, "sh", *command]


@dataclass(frozen=True)
class BackupProgram(DaemonProgram):
    """omfsd on the backup's host."""

    hosts: Path = Path("/etc/hosts")

    def start(self, code: str, *arguments: str, **options: object) -> subprocess.Popen[bytes]:
        command = on_backup([self.python, "-c", code, *arguments], self.hosts)
        return subprocess.Popen(command, env=os.environ | self.variables, **options)  # type: ignore[call-overload, no-any-return]


class TwoControllers:
    """``slurm`` has started with BOTH_SHAPE. Its own slurmctld becomes the primary one."""

    def __init__(self, slurm: LocalSlurm) -> None:
        self.slurm = slurm
        self.hosts = slurm.directory / "hosts"
        self.hosts.write_text(f"{Path('/etc/hosts').read_text()}\n{_ADDRESS} {BACKUP}\n")
        self._backup: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        slurm, conf = self.slurm, self.slurm.conf
        slurm.kill_controller()
        lines = conf.read_text().splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith("SlurmctldHost="))
        lines.insert(first + 1, f"SlurmctldHost={BACKUP}({_ADDRESS})")
        conf.write_text("\n".join([*lines, ""]))
        own = slurm.directory / BACKUP
        own.mkdir()
        for file in [*slurm.directory.glob("*.conf"), *slurm.directory.glob("*.lua")]:
            text = file.read_text()
            for name in ("slurmctld.pid", "slurmctld.log"):
                text = text.replace(name, f"{BACKUP}.{name}")
            (own / file.name).write_text(text)
        slurm.start_controller()
        self._backup = self.run_on_backup(["slurmctld", "-D"], {"SLURM_CONF": str(own / "slurm.conf")})
        slurm.wait_until(lambda: self.ping().count("is UP") == 2, "the backup slurmctld")
        for node in slurm.shape.node_names:  # they read at their start whom to tell
            slurm.stop_node(node)
            slurm.start_node(node)

    def wait_saved(self) -> None:
        """Until slurmctld has saved what it knows now: the backup reads it."""
        saved, now = self.slurm.directory / "state" / "job_state", time.time()
        self.slurm.wait_until(lambda: saved.exists() and saved.stat().st_mtime > now, "slurmctld to save its state")

    def run_on_backup(self, command: list[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        log = self.slurm.directory / "log" / f"{BACKUP}.stderr"
        with log.open("ab") as stream:
            return subprocess.Popen(
                on_backup(command, self.hosts),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                cwd=self.slurm.directory / "log",
                env={**os.environ, **variables},
                start_new_session=True,
            )

    def ping(self) -> str:
        return self.slurm.command("scontrol", "ping", check=False).stdout

    def stop_backup(self) -> None:
        if self._backup is not None:
            self._backup.send_signal(signal.SIGKILL)
            self._backup.wait()
            self._backup = None
