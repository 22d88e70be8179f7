"""Processor time (user and system) of the commands that people wait for, and of omfsd until it first asks Slurm.

Prints a table and writes ``build/bench/commands.json``: for each command ``seconds``, the median of its runs, and
``limit``, what it may take at most; beside them ``python -c pass`` and, where a private Slurm can run (as root),
``squeue``. The commands ask a daemon that answers for a fake cluster with running and preempted jobs; the first
question of omfsd goes to a stand-in for scontrol, which reads the processor time that its parent has used.

    python -m benchmarks.commands [--runs N] [OUTPUT]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from omfs_daemon.cluster.jobs import JobRequest
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.config.load import load
from omfs_daemon.daemon import log
from omfs_daemon.daemon.api.callers import operators
from omfs_daemon.daemon.api.control_socket import ControlServer
from omfs_daemon.daemon.process import Service
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape

ROOT = Path(__file__).parents[1]
OUTPUT = Path("build/bench/commands.json")
RUNS = 15
COMMAND_LIMIT, DAEMON_LIMIT = 0.25, 0.4
NODES, CPUS = 4, 4

_OMFS = (sys.executable, "-c", "from omfs_daemon.cli.main import run; run()")
_OMFSD = (sys.executable, "-c", "from omfs_daemon.cli.omfsd import run; run()")
_CONFIG = """\
[slurm]
gateway = "commands"
[daemon]
state_dir = "{directory}/state"
run_dir = "{directory}/run"
[policy]
quantum_seconds = 0
[metrics]
enabled = false
[entitlements.bio]
percent = 50
[entitlements.physics]
percent = 50
[[class]]
name = "regular"
default = ["requeue"]
"""
_SCONTROL = """\
#!/bin/sh
read -r stat < /proc/$PPID/stat
set -- ${{stat##*) }}
[ -e {found} ] || echo $((${{12}} + ${{13}})) > {found}
exit 1
"""


class Measured(NamedTuple):
    """``seconds``: the median; ``limit``: None for what only serves as a comparison."""

    seconds: float
    limit: float | None


def processor_seconds(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """Of a process and its children; RuntimeError if it fails."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        errors.seek(0)
        printed = errors.read()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {printed.decode(errors='replace')}")
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def daemon(directory: Path) -> Iterator[Path]:
    """A daemon beside a fake cluster that is full; the path of its configuration."""
    path = directory / "omfs.toml"
    path.write_text(_CONFIG.format(directory=directory))
    nodes = [Node(f"n{number}", CPUS, 8000 << 20) for number in range(1, NODES + 1)]
    slurm = FakeSlurm(time.time, nodes, [Partition("main", frozenset(node.name for node in nodes))])
    with (directory / "log").open("w") as stream, contextlib.ExitStack() as stack:
        log.set_up("json", "info", stream)
        service = Service(load(path), path, FakeGateway(slurm))
        stack.callback(service.close)
        for account, count in (("bio", NODES), ("physics", NODES)):
            for _ in range(count):
                slurm.submit(Submission(JobRequest(CPUS, partitions=("main",)), account=account, run_time=3600))
            for _ in range(5):
                service.once()
        stack.enter_context(ControlServer(directory / "run" / "omfs.sock", service.answers, operators(None, None)))
        yield path


def commands(directory: Path, runs: int) -> dict[str, Measured]:
    found = {}
    with daemon(directory) as config:
        words = (["--help"], ["--version"], ["status"], ["plan"], ["why", "1"], ["history"])
        lines = {f"omfs {' '.join(line)}": [*_OMFS, "--config", str(config), *line] for line in words}
        lines["python -c pass"] = [sys.executable, "-c", "pass"]
        seconds: dict[str, list[float]] = {name: [] for name in lines}
        for _ in range(runs):  # in turn, so that what else the machine does meets all of them
            for name, line in lines.items():
                seconds[name].append(processor_seconds(line))
    for name, measured in seconds.items():
        limit = COMMAND_LIMIT if name.startswith("omfs") else None
        found[name] = Measured(statistics.median(measured), limit)
    return found


def first_poll(directory: Path, runs: int) -> Measured:
    """Of omfsd, until it runs scontrol for the first time."""
    found, tools = directory / "ticks", directory / "bin"
    tools.mkdir()
    (tools / "scontrol").write_text(_SCONTROL.format(found=found))
    (tools / "scontrol").chmod(0o755)
    config = directory / "omfsd.toml"
    config.write_text(_CONFIG.format(directory=directory / "omfsd"))
    (directory / "omfsd").mkdir()
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}
    seconds = []
    for _ in range(runs):
        line = [*_OMFSD, "--config", str(config), "--once"]
        subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, check=False)  # there is no Slurm
        seconds.append(int(found.read_text()) / os.sysconf("SC_CLK_TCK"))
        found.unlink()
    return Measured(statistics.median(seconds), DAEMON_LIMIT)


def squeue(directory: Path, runs: int) -> Measured | None:
    """Of a private Slurm without jobs; None where none can run."""
    if os.geteuid() or not shutil.which("slurmctld"):
        return None
    slurm = LocalSlurm(directory / "slurm", Shape(NODES, CPUS))
    try:
        slurm.start()
        environment = os.environ | {"SLURM_CONF": str(slurm.conf)}
        return Measured(statistics.median(processor_seconds(["squeue"], environment) for _ in range(runs)), None)
    finally:
        slurm.stop()


def table(found: Mapping[str, Measured]) -> str:
    """A line for each command: seconds, the most allowed, and times what ``python -c pass`` takes."""
    base = found["python -c pass"].seconds
    lines = [f"{'processor time':<24}{'seconds':>9}{'limit':>7}{'x python':>10}"]
    for name, (seconds, limit) in found.items():
        lines.append(f"{name:<24}{seconds:>9.3f}{'' if limit is None else f'{limit:g}':>7}{seconds / base:>10.1f}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 if one takes longer than its limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commands")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("output", nargs="?", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="omfs-bench-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        found = commands(directory, options.runs)
        found["omfsd to its first poll"] = first_poll(directory, options.runs)
        if (measured := squeue(directory, options.runs)) is not None:
            found["squeue"] = measured
    print(table(found))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    content = {name: {"seconds": round(seconds, 4), "limit": limit} for name, (seconds, limit) in found.items()}
    options.output.write_text(json.dumps(content, indent=1) + "\n")
    print(f"written to {options.output}")
    return int(any(limit is not None and seconds > limit for seconds, limit in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
