"""A host in a container whose process 1 is systemd: Slurm with one node, and omfsd installed as a package does it."""

from __future__ import annotations

import io
import shlex
import subprocess
import tarfile
import tomllib
from pathlib import Path

from tests.support.waiting import LIMIT, wait_until

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "deploy" / "engine.sh"

SLURM_CONF = """\
ClusterName=service
SlurmctldHost=head
SlurmUser=omfs
AuthType=auth/munge
AuthInfo=cred_expire=5
StateSaveLocation=/var/lib/slurm-state
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PriorityType=priority/multifactor
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
SlurmdParameters=config_overrides
RequeueExitHold=101-109
JobFileAppend=1
ReturnToService=2
KillWait=20
NodeName=head CPUs=4
PartitionName=normal Nodes=ALL Default=YES
PartitionName=urgent Nodes=ALL
"""

OMFS_TOML = """\
[daemon]
user = "omfs"
login_address = "head:9346"
failsafe_grace_seconds = 5
[policy]
quantum_seconds = 0
[nodes]
worker = "local"
[[class]]
name = "urgent"
partition = ["urgent"]
urgent = true
[[class]]
name = "regular"
methods = ["application", "pageout", "requeue"]
default = ["requeue"]
"""

PROGRAM = """\
#!/usr/lib/omfs/bin/python
from omfs_daemon.{module} import run
run()
"""

PREPARE = """\
echo /usr/lib/omfs/source >"$(echo /usr/lib/omfs/lib/python3*/site-packages)/omfs.pth"
systemd-sysusers
systemd-tmpfiles --create omfs.conf
useradd --create-home user
mkdir -p /var/lib/slurm-state /var/spool/slurmd /var/log/slurm
chown omfs: /var/lib/slurm-state /var/log/slurm
head -c 1024 /dev/urandom >/etc/munge/munge.key
chown munge: /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
systemctl daemon-reload
systemctl start munge slurmctld slurmd
"""


class SystemdHost:
    """``suite``: of Debian. Started by ``start``, removed by ``remove``; the image stays."""

    def __init__(self, suite: str) -> None:
        self.suite = suite
        self.name = f"omfs-systemd-{suite}"
        self._environment = _engine()

    def start(self) -> None:
        self._docker("rm", "--force", self.name, check=False)
        self._build()
        legacy = Path("/sys/fs/cgroup/systemd")
        mount = legacy if legacy.is_dir() else legacy.parent
        self._docker(
            "run",
            "--detach",
            f"--name={self.name}",
            "--hostname=head",
            "--cap-add=ALL",
            "--security-opt=seccomp=unconfined",
            "--cgroupns=host",
            f"--volume={mount}:{mount}:rw",
            "--tmpfs=/run",
            "--tmpfs=/run/lock",
            f"omfs-systemd:{self.suite}",
            "/lib/systemd/systemd",
            # Newer ones want to be told that the host's control groups are old; they read their own command line.
            *(
                ("systemd.unified_cgroup_hierarchy=0", "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1")
                if mount == legacy
                else ()
            ),
        )
        wait_until(self._is_up, "systemd to be up")
        self._install()

    def remove(self) -> None:
        self._docker("rm", "--force", self.name, check=False)

    def run(self, *command: str, user: str = "root", check: bool = True, text: str = "") -> str:
        """What the command prints to either output; ``text``: its input."""
        done = self.run_for_code(*command, user=user, text=text)
        assert done.returncode == 0 or not check, f"{shlex.join(command)}: {done.stdout}"
        return done.stdout.strip()

    def run_for_code(self, *command: str, user: str = "root", text: str = "") -> subprocess.CompletedProcess[str]:
        return self._docker_call("exec", "--interactive", f"--user={user}", self.name, *command, text=text)

    def write(self, path: str, text: str) -> None:
        self.run("sh", "-c", f"mkdir -p {Path(path).parent} && cat >{path}", text=text)

    def drop_in(self, unit: str, text: str) -> None:
        """Of the test; "" removes it."""
        directory = f"/run/systemd/system/{unit}.d"
        if text:
            self.write(f"{directory}/test.conf", text)
        else:
            self.run("rm", "-rf", directory)
        self.run("systemctl", "daemon-reload")

    def shown(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit)

    def submit(self, script: str, *options: str) -> str:
        """The id of a user's job."""
        return self.run("sbatch", "--parsable", "--chdir=/tmp", *options, user="user", text=f"#!/bin/sh\n{script}\n")

    def job(self, job: str, field: str) -> str:
        """What ``squeue`` shows of a job (a letter of its --format); "" once it is gone."""
        return self.run("squeue", "--noheader", f"--format=%{field}", f"--jobs={job}", check=False)

    def _is_up(self) -> bool:
        return self.run("systemctl", "is-system-running", check=False) in ("running", "degraded")

    def _build(self) -> None:
        subprocess.run([ENGINE, "image", self.suite], env=self._environment, check=True, timeout=4 * LIMIT)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        files = {
            "Dockerfile": (ROOT / "deploy/container/systemd.Dockerfile").read_text(encoding="utf-8"),
            "requirements.txt": "\n".join(project["dependencies"]) + "\n",
        }
        command = ["docker", "build", "--quiet", f"--build-arg=SUITE={self.suite}", f"--tag=omfs-systemd:{self.suite}"]
        done = subprocess.run(
            [*command, "-"], input=_packed(files), env=self._environment, capture_output=True, timeout=4 * LIMIT
        )
        assert done.returncode == 0, done.stderr.decode()

    def _install(self) -> None:
        """What the package for the head node installs, below the same paths; then Slurm is started."""
        units = {path.name: path for path in (ROOT / "systemd").iterdir() if path.is_file()}
        files = {f"usr/lib/systemd/system/{name}": path.read_text(encoding="utf-8") for name, path in units.items()}
        for kind in ("sysusers.d", "tmpfiles.d"):
            files[f"usr/lib/{kind}/omfs.conf"] = (ROOT / f"systemd/{kind}/omfs.conf").read_text(encoding="utf-8")
        files |= {
            "usr/bin/omfsd": PROGRAM.format(module="cli.omfsd"),
            "usr/bin/omfs": PROGRAM.format(module="cli.main"),
            "usr/bin/omfs-run": PROGRAM.format(module="omfs_run.main"),
            "usr/libexec/omfs/omfs-node": PROGRAM.format(module="omfs_node.main"),
            "etc/omfs/omfs.toml": OMFS_TOML,
            "etc/slurm/slurm.conf": SLURM_CONF,
            "etc/slurm/cgroup.conf": "" if self.suite == "bookworm" else "CgroupPlugin=disabled\n",
        }
        if self.suite != "bookworm":  # whose slurmctld becomes SlurmUser by itself
            files["etc/systemd/system/slurmctld.service.d/user.conf"] = "[Service]\nUser=omfs\nGroup=omfs\n"
        for path in (ROOT / "omfs_daemon").rglob("*.py"):
            files[f"usr/lib/omfs/source/{path.relative_to(ROOT)}"] = path.read_text(encoding="utf-8")
        done = subprocess.run(
            ["docker", "exec", "--interactive", self.name, "tar", "--extract", "--directory=/"],
            input=_packed(files),
            env=self._environment,
            capture_output=True,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stderr.decode()
        self.run("sh", "-ec", PREPARE)
        wait_until(lambda: "idle" in self.run("sinfo", "--noheader", "--format=%T", check=False), "the node to be idle")

    def _docker(self, *arguments: str, check: bool = True) -> str:
        done = self._docker_call(*arguments)
        assert done.returncode == 0 or not check, f"docker {shlex.join(arguments)}: {done.stdout}"
        return done.stdout.strip()

    def _docker_call(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", *arguments],
            input=text,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=LIMIT,
        )


def _engine() -> dict[str, str]:
    """The environment in which ``docker`` reaches an engine, which is started if none runs."""
    done = subprocess.run([ENGINE, "run", "env", "-0"], capture_output=True, encoding="utf-8", timeout=4 * LIMIT)
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)


def _packed(files: dict[str, str]) -> bytes:
    """As root's, in an archive; what begins with ``#!`` is executable."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, text in files.items():
            content = text.encode()
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(content), 0o755 if text.startswith("#!") else 0o644
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
