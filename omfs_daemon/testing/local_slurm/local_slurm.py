"""A private real Slurm on this host for the demo and the tests; it starts in a second or two and leaves nothing."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from omfs_daemon.errors import GatewayError, OmfsError
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.run_command import CommandOutput, run_command
from omfs_daemon.slurm.releases import SlurmRelease
from omfs_daemon.testing.local_slurm import munge, own_processes, slurmdbd
from omfs_daemon.testing.local_slurm.slurm_conf import Shape, cluster_name, device_files, gres_conf, slurm_conf

_PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "sinfo", "squeue", "scancel", "munge", "munged", "setpriv")
_PACKAGES = "slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins"
_COMMAND_LIMIT = 60.0
_STOP_LIMIT = 10.0
_POLL = 0.05
_PORTS = range(18100, 32000)  # below Linux's ephemeral ports
_LOG_TAIL = 5


class LocalSlurmError(OmfsError):
    """The private Slurm cannot be started or ended; the message names what is missing or quotes its log."""


@dataclass(frozen=True)
class SubmitGate:
    """Use our job_submit.lua: ``plugin`` is the script, ``settings`` are lines of its ``omfs_job_submit.conf``; those
    about omfsd's ``user`` are added."""

    plugin: Path
    settings: dict[str, str]
    user: str = "root"

    def lines(self) -> str:
        uid = pwd.getpwnam(self.user).pw_uid
        settings = {"daemon_uid": str(uid), "privileged_uids": f"0,{uid}", **self.settings}
        return "".join(f"{name}={value}\n" for name, value in settings.items())


class LocalSlurm:
    """A Slurm with its own daemons, ports, directories and (if needed) munged.

    Other users submit too, so ``directory`` must be one that they can enter. ``base_port``: slurmctld's port, the nodes
    use the following ones; None finds free ones. ``files``: more files beside slurm.conf, as text by name
    (``plugstack.conf``). ``accounting``: with slurmdbd, that knows this; with the one of the cluster ``beside``, which
    has started, so that commands can name both (``--clusters``). ``limit``: seconds within which it must have started.
    Needs root, because jobs run as their owners.
    """

    def __init__(
        self,
        directory: Path,
        shape: Shape | None = None,
        *,
        base_port: int | None = None,
        gate: SubmitGate | None = None,
        files: Mapping[str, str] | None = None,
        accounting: slurmdbd.Accounting | None = None,
        beside: LocalSlurm | None = None,
        limit: float = 240.0,
    ) -> None:
        self.directory = directory.resolve()
        self.shape = shape or Shape()
        self.conf = self.directory / "slurm.conf"
        self.output = self.directory / "output"
        self._base_port = base_port
        self._gate = gate
        self._files = dict(files or {})
        self._accounting = accounting
        self._beside = beside
        self._socket: Path | None = None
        self._limit = limit
        self._munged: subprocess.Popen[bytes] | None = None
        self._database: subprocess.Popen[bytes] | None = None
        self._slurmdbd: subprocess.Popen[bytes] | None = None
        self._controller: subprocess.Popen[bytes] | None = None
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- start and end -----------------------------------------------------------------------------
    def start(self) -> None:
        """Start all daemons and wait until every node accepts jobs; LocalSlurmError if one does not."""
        _require_root_and_programs(self._accounting is not None)
        _require_user(self.shape.slurm_user)
        own_processes.end_all_in(self.directory)
        try:
            self._make_directories()
            self._socket = self._munge_socket() if self._beside is None else self._beside._socket
            self._write_configuration(self._socket)
            if self._accounting is not None:
                self._start_accounting(self._accounting)
            self.start_controller()
            for node in self.shape.node_names:
                self._start_slurmd(node)
            self.wait_until(self._nodes_ready, "nodes that accept jobs")
        except BaseException:
            self._end_everything()
            raise

    def stop(self) -> None:
        """End daemons, jobs and what they left running; may be called twice."""
        left = self._end_everything()
        if left:
            pids = ", ".join(str(process.pid) for process in left)
            raise LocalSlurmError(f"processes of {self.directory} do not end: {pids}")

    def kill_controller(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End slurmctld; running jobs continue."""
        _end(self._controller, how)
        self._controller = None

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self._controller = self._daemon("slurmctld", "-D")
        self.wait_until(self._controller_answers, "an answer of slurmctld")

    def start_slurmdbd(self) -> None:
        """Start slurmdbd on the database there is, and wait until it answers."""
        environment = slurmdbd.database_environment(self.directory / "database")
        self._slurmdbd = self._daemon("slurmdbd", "-D", environment=environment)
        self.wait_until(lambda: self.command("sacctmgr", "show", "cluster", check=False).code == 0, "slurmdbd")

    def kill_slurmdbd(self) -> None:
        """End slurmdbd; slurmctld goes on with what it knows."""
        _end(self._slurmdbd, signal.SIGKILL)
        self._slurmdbd = None

    def stop_node(self, node: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End the slurmd of one node; Slurm shows it as down only after SlurmdTimeout."""
        _end(self._nodes.pop(node, None), how)

    def start_node(self, node: str) -> None:
        """Start the slurmd of one node and wait until the node accepts jobs."""
        self._start_slurmd(node)
        self.wait_until(lambda: self._nodes_ready((node,)), f"node {node}")

    # -- use ---------------------------------------------------------------------------------------
    def gateway(self, timeout: float = _COMMAND_LIMIT) -> CommandGateway:
        """The command adapter for this cluster."""
        return CommandGateway(self.conf, timeout)

    def command(
        self, *arguments: str, check: bool = True, uid: int | str | None = None, stdin: str = ""
    ) -> CommandOutput:
        """Run one of Slurm's commands on this cluster, as the user ``uid`` (a number or a name) if given."""
        prefix = as_user(uid) if uid is not None else []
        arguments = (*prefix, *arguments)
        return run_command(arguments, timeout=_COMMAND_LIMIT, conf=self.conf, check=check, stdin=stdin, cwd=self.output)

    def submit(self, script: str, *sbatch_arguments: str, uid: int | str | None = None) -> int:
        """Submit a script (text beginning with ``#!``) or one line to wrap; returns the raw job id."""
        is_script = script.startswith("#!")
        arguments = ["sbatch", "--parsable", *sbatch_arguments, *([] if is_script else [f"--wrap={script}"])]
        printed = self.command(*arguments, uid=uid, stdin=script if is_script else "").stdout
        return int(printed.strip().partition(";")[0])

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while the daemons run; LocalSlurmError with the end of the log after the limit."""
        end = time.monotonic() + self._limit
        while not condition():
            self._require_alive()
            if time.monotonic() > end:
                raise LocalSlurmError(f"waited {self._limit:g} s for {what}: {self._log_tail('slurmctld')}")
            time.sleep(_POLL)

    # -- inside ------------------------------------------------------------------------------------
    def _make_directories(self) -> None:
        for name in (".", "state", "spool", "log", "output"):
            path = self.directory / name
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o755)
        for name in ("state", "log"):
            shutil.chown(self.directory / name, self.shape.slurm_user)
        self.output.chmod(0o1777)
        for node in self.shape.node_names:
            (self.directory / "spool" / node).mkdir(exist_ok=True)

    def _munge_socket(self) -> Path | None:
        if munge.works():
            return None
        self._munged, own_socket = munge.start_munged(self.directory / "munge")
        self.wait_until(lambda: munge.works(own_socket), "munged")
        return own_socket

    def _write_configuration(self, munge_socket: Path | None) -> None:
        if self._base_port is None:
            self._base_port = _free_ports(self.shape.nodes + 2)
        shape = self.shape
        if self._accounting is not None:
            port = self._slurmdbd_port
            shape = replace(shape, options=slurmdbd.slurm_conf_options(port, munge_socket) | dict(shape.options))
            if self._beside is None:
                slurmdbd.write_slurmdbd_conf(self.directory, port, self.shape.slurm_user, munge_socket)
        text = slurm_conf(self.directory, shape, self._base_port, munge_socket, lua=self._gate is not None)
        self.conf.write_text(text)
        (self.directory / "gres.conf").write_text(gres_conf(self.directory, self.shape))
        if cgroup_conf := SlurmRelease.of(run_command(["slurmd", "-V"], timeout=_COMMAND_LIMIT).stdout).cgroup_conf:
            (self.directory / "cgroup.conf").write_text(cgroup_conf)
        for device in device_files(self.directory, self.shape):
            device.parent.mkdir(exist_ok=True)
            device.touch()
        for name, text in self._files.items():
            (self.directory / name).write_text(text)
        if self._gate is not None:
            shutil.copy(self._gate.plugin, self.directory / "job_submit.lua")
            (self.directory / "omfs_job_submit.conf").write_text(self._gate.lines())

    @property
    def _slurmdbd_port(self) -> int:
        owner = self._beside or self
        if owner._base_port is None:
            raise LocalSlurmError(f"the cluster in {owner.directory} has not started")
        return owner._base_port + owner.shape.nodes + 1

    def _start_accounting(self, known: slurmdbd.Accounting) -> None:
        """MariaDB and slurmdbd, which knows all accounts before slurmctld asks for them."""
        if self._beside is None:
            self._start_database()
        for qos in known.qos:
            self.command("sacctmgr", "--immediate", "add", "qos", qos)
        accounts = self.directory / "accounts"
        accounts.write_text(known.text(cluster_name(self.directory)))
        self.command("sacctmgr", "--immediate", "load", str(accounts))

    def _start_database(self) -> None:
        database = self.directory / "database"
        shutil.rmtree(database, ignore_errors=True)
        try:
            self._database = slurmdbd.start_database(database, self.shape.slurm_user)
        except subprocess.CalledProcessError as error:
            raise LocalSlurmError(f"MariaDB cannot be set up: {self._log_tail('mariadbd')}") from error
        self.wait_until(slurmdbd.database_socket(database).is_socket, "MariaDB")
        self.start_slurmdbd()

    def _start_slurmd(self, node: str) -> None:
        self._nodes[node] = self._daemon("slurmd", "-D", "-N", node)

    def _daemon(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        errors = self.directory / "log" / f"{arguments[0]}.stderr"
        with errors.open("ab") as stream:
            return subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                cwd=self.directory / "log",
                env={**os.environ, "SLURM_CONF": str(self.conf), **(environment or {})},
                start_new_session=True,
            )

    def _controller_answers(self) -> bool:
        try:
            printed = run_command(["scontrol", "ping"], timeout=_COMMAND_LIMIT, conf=self.conf, check=False).stdout
        except GatewayError:
            return False
        return "is UP" in printed

    def _nodes_ready(self, names: tuple[str, ...] | None = None) -> bool:
        wanted = set(names or self.shape.node_names)
        try:
            return wanted <= {node.name for node in self.gateway().nodes() if node.up}
        except GatewayError:
            return False

    def _require_alive(self) -> None:
        daemons = {
            "munged": self._munged,
            "mariadbd": self._database,
            "slurmdbd": self._slurmdbd,
            "slurmctld": self._controller,
            **self._nodes,
        }
        for name, process in daemons.items():
            if process is not None and process.poll() is not None:
                raise LocalSlurmError(f"{name} ended with exit code {process.returncode}: {self._log_tail(name)}")

    def _log_tail(self, name: str) -> str:
        logs = {"munged": "munge/munged.log", "mariadbd": "database/mariadbd.log"}
        log = self.directory / logs.get(name, f"log/{name}.log")
        try:
            lines = log.read_text(errors="replace").splitlines()
        except OSError:
            return f"no log in {log}"
        return " | ".join(lines[-_LOG_TAIL:]) or f"{log} is empty"

    def _end_everything(self) -> list[psutil.Process]:
        self.kill_controller(signal.SIGTERM)
        for node in list(self._nodes):
            self.stop_node(node)
        for process in (self._slurmdbd, self._database, self._munged):
            _end(process, signal.SIGTERM)
        self._slurmdbd = self._database = self._munged = None
        return own_processes.end_all_in(self.directory)


def _require_root_and_programs(is_accounting: bool) -> None:
    if os.geteuid() != 0:
        raise LocalSlurmError("a private Slurm needs root, because it runs jobs as the users who submit them")
    programs = _PROGRAMS + (slurmdbd.PROGRAMS if is_accounting else ())
    packages = f"{_PACKAGES} {slurmdbd.PACKAGES}" if is_accounting else _PACKAGES
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise LocalSlurmError(f"not installed: {', '.join(missing)} (Debian: apt-get install {packages})")


def _require_user(name: str) -> None:
    try:
        pwd.getpwnam(name)
    except KeyError:
        raise LocalSlurmError(f"no user {name}, as whom slurmctld runs: useradd --system {name}") from None


def _free_ports(count: int) -> int:
    """The first of ``count`` consecutive ports that are free; tried at random, as others search too."""
    bases = list(range(_PORTS.start, _PORTS.stop - count, count))
    random.shuffle(bases)
    for base in bases:
        if all(_is_free(port) for port in range(base, base + count)):
            return base
    raise LocalSlurmError(f"no {count} free consecutive ports between {_PORTS.start} and {_PORTS.stop}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def as_user(uid: int | str) -> list[str]:
    user = pwd.getpwuid(uid) if isinstance(uid, int) else pwd.getpwnam(uid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--init-groups"]


def _end(process: subprocess.Popen[bytes] | None, how: signal.Signals) -> None:
    if process is None or process.poll() is not None:
        return
    process.send_signal(how)
    try:
        process.wait(_STOP_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_LIMIT)
