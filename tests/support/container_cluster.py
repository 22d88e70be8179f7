"""The container cluster of docker-compose.yml as tests use it: one deployment of their own, its jobs, its services."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.waiting import LIMIT, wait_until

ROOT = Path(__file__).parents[2]
PROJECT = "omfs-test"
NETWORK = "172.30.87"
NODES = ("n1", "n2", "n3")
PRIMARY, BACKUP = "head", "head2"
SHARED = "/srv/slurm/omfs"
"""The lease and omfsd's state, on both."""

TOLERANT = 600.0
"""Seconds that a build, a start, or a recovery may take on a busy machine."""

_ENVIRONMENT = {
    "COMPOSE_PROJECT_NAME": PROJECT,
    "COMPOSE_FILE": "docker-compose.yml:tests/containers/docker-compose.yml",
    "OMFS_NETWORK": NETWORK,
    "OMFS_PROMETHEUS_PORT": "19090",
}
_ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL"}

# Runs on the head: stops omfsd as soon as its journal says that a job is to be preempted, before or while the orders
# for that are sent, and says so.
_STOP_AT_FIRST_ORDER = """
import os, pathlib, signal, sys, time
states = {int(path.suffix[1:]): path for path in pathlib.Path(sys.argv[2]).glob("state.*")}
journal, pid = states[max(states)] / "journal", int(sys.argv[1])
size = journal.stat().st_size
print("watching", flush=True)
while True:
    now = journal.stat().st_size
    if now > size:
        with journal.open("rb") as stream:
            stream.seek(size)
            if b'"stopping"' in stream.read():
                os.kill(pid, signal.SIGSTOP)
                print("stopped", flush=True)
                break
    time.sleep(0.002)
"""


class ContainerCluster:
    """A deployment; ``submitted``: every job, with what it was for."""

    def __init__(self) -> None:
        self.submitted: dict[int, str] = {}

    # -- the deployment ------------------------------------------------------------------------------
    def up(self) -> None:
        """From images as the sources are now; empty of any earlier deployment's data."""
        subprocess.run([ROOT / "deploy" / "engine.sh", "image", "trixie"], check=True, timeout=TOLERANT)
        self.compose("build", "--quiet", limit=2 * TOLERANT)
        self.down()
        self.compose("up", "--detach", "--wait", "--wait-timeout", "500", limit=TOLERANT)

    def down(self) -> None:
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "2", limit=TOLERANT)

    def compose(self, *words: str, limit: float = LIMIT, check: bool = True) -> str:
        """``docker compose`` on this deployment."""
        return _run(["docker", "compose", *words], limit, check)

    def pause(self, host: str) -> None:
        """Freeze all of a container. On a busy machine the kernel may take longer than the engine waits, which then
        says "unable to freeze"."""
        inspect = ("docker", "inspect", "--format={{.State.Paused}}", self.container(host))

        def is_paused() -> bool:
            self.compose("pause", host, check=False)
            return _run(inspect, LIMIT, check=True).strip() == "true"

        wait_until(is_paused, f"{host} to be paused")

    def bash(self, text: str) -> str:
        """A command as somebody types it on the machine, with this deployment's environment."""
        return _run(["bash", "-c", text], TOLERANT, check=True)

    def container(self, host: str) -> str:
        return f"{PROJECT}-{host}-1"

    def on(self, host: str, *words: str, user: str = "", limit: float = LIMIT, check: bool = True) -> str:
        """Run a command in a host's container; its output."""
        as_user = ["--user", user] if user else []
        return _run(["docker", "exec", *as_user, self.container(host), *words], limit, check)

    def shell(self, host: str, text: str, user: str = "", check: bool = True) -> str:
        return self.on(host, "bash", "-c", text, user=user, check=check)

    # -- jobs ------------------------------------------------------------------------------------------
    def submit(self, script: str, *options: str, account: str, kind: str) -> int:
        """As alice, from the client, in her home directory."""
        text = script if script.startswith("#!") else f"#!/bin/bash\n{script}\n"
        words = ["sbatch", "--parsable", f"--account={account}", f"--job-name={kind}", "--time=30", *options]
        command = ["docker", "exec", "--interactive", self.container("client"), *words]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=LIMIT, env=_environment(), check=False
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        job = int(done.stdout.partition(";")[0])
        self.submitted[job] = kind
        return job

    def show(self, job: int) -> dict[str, str]:
        """The fields of ``scontrol show job``; empty if Slurm does not answer or no longer knows it."""
        text = self.on("client", "timeout", "10", "scontrol", "-o", "show", "job", str(job), check=False, limit=30)
        # The comment has words with "=" of its own.
        comment = re.search(r" Comment=(.*?) \w+=/", text)
        found = dict(re.findall(r"(\w+)=(\S*)", text))
        return found | ({"Comment": comment[1]} if comment else {})

    def state(self, job: int) -> str:
        return self.show(job).get("JobState", "")

    def story(self, job: int) -> str:
        """What failed tests show of a job."""
        why = self.on("head", "timeout", "20", "omfs", "why", str(job), check=False, limit=40)
        return f"{self.show(job)}\n{why}"

    def wait_state(self, job: int, *states: str, limit: float = LIMIT) -> str:
        def is_in() -> str:
            state = self.state(job)
            assert state not in _ENDED or state in states, f"job {job} is {state}: {self.story(job)}"
            return state if state in states else ""

        return wait_until(is_in, lambda: f"job {job} to be {states}: {self.story(job)}", limit)

    def wait_completed(self, *jobs: int, limit: float = TOLERANT) -> None:
        for job in jobs:
            self.wait_state(job, "COMPLETED", limit=limit)

    def wait_reported(self, job: int, words: str) -> None:
        """Until omfs-run has written this into the job's comment."""
        wait_until(lambda: words in self.show(job).get("Comment", ""), lambda: f"{words}: {self.story(job)}")

    def restarts(self, job: int) -> int:
        return int(self.show(job).get("Restarts", "0"))

    def file(self, name: str) -> str:
        """A file of alice's; empty if there is none."""
        return self.on("client", "cat", f"/home/alice/{name}", check=False)

    def accounting(self) -> dict[int, str]:
        """The final state of every job by sacct."""
        text = self.on("head", "sacct", "-n", "-P", "-X", "-S", "now-1day", "--format=JobIDRaw,State", "--allusers")
        rows = [line.split("|") for line in text.splitlines()]
        return {int(job): state.split()[0] for job, state in rows}

    # -- omfsd and Slurm ---------------------------------------------------------------------------------
    def omfs(self, *words: str, host: str = PRIMARY) -> Any:
        """A command of omfs on a head with --json; None if the daemon does not answer."""
        text = self.on(host, "timeout", "20", "omfs", *words, "--json", check=False, limit=40)
        with suppress(ValueError):
            return json.loads(text)
        return None

    def polls(self) -> bool:
        """Whether omfsd beside the primary acts, and sees Slurm."""
        status = self.status()
        return bool(status) and status["pair"]["active"] and status["last_error"] is None

    def status(self, host: str = PRIMARY) -> dict[str, Any]:
        """What omfsd there says; empty if it does not answer."""
        return self.omfs("status", host=host) or {}

    def is_active(self, host: str) -> bool:
        status = self.status(host)
        return bool(status) and status["pair"]["active"]

    def stands_by(self, host: str) -> bool:
        """Whether omfsd there does, and knows who is active."""
        status = self.status(host)
        return bool(status) and not status["pair"]["active"] and status["pair"]["text"].endswith(" is active")

    def pid(self, service: str, host: str = PRIMARY) -> str:
        """Of a supervised program on a head, in its container."""
        return self.shell(host, f"cat /run/cluster/{service}.pid").strip()

    def omfsd_pid(self) -> str:
        """Of the process that decides: the one that is not root's."""
        return wait_until(lambda: self.shell("head", "pgrep -u omfs -o -f omfsd", check=False).strip(), "omfsd")

    def stop_service(self, service: str, signal: str = "KILL", host: str = "head") -> None:
        """End a supervised program, which stays away until ``start_service``."""
        path = f"/run/cluster/{service}"
        self.shell(host, f"touch {path}.stopped && kill -{signal} $(cat {path}.pid)", user="root")

    def start_service(self, service: str, host: str = "head") -> None:
        self.shell(host, f"rm -f /run/cluster/{service}.stopped", user="root")

    def node_state(self, node: str) -> str:
        text = self.on("client", "timeout", "10", "sinfo", "-h", "-n", node, "-o", "%T", check=False, limit=30)
        return text.strip()

    def wait_usable(self) -> None:
        """Until Slurm answers, all nodes are up and empty, omfsd beside the primary acts, the other one stands by, and
        nothing is under way. An administrator's part is done: a node that Slurm drained for a job that it forgot is
        resumed (docs/guarantees.md)."""

        def is_usable() -> bool:
            states = [self.node_state(node) for node in NODES]
            for node, state in zip(NODES, states, strict=True):
                if state.startswith(("drain", "down")) and not state.endswith("*"):
                    self.resume_node(node)
            return (
                all(state == "idle" for state in states)
                and self.polls()
                and self.status().get("preemptions_under_way") == []
                and self.stands_by(BACKUP)
            )

        def seen() -> str:
            nodes = self.on("client", "sinfo", "-N", check=False)
            return f"idle nodes and a pair: {nodes}{self.status()}{self.status(BACKUP)}"

        wait_until(is_usable, seen, TOLERANT)

    def resume_node(self, node: str) -> None:
        self.on("head", "scontrol", "update", f"nodename={node}", "state=resume", check=False)

    def release_forgotten(self, jobs: Sequence[int]) -> None:
        """What an administrator does after slurmctld was killed right after it had started a job: the node is drained
        ("Duplicate jobid"), and the job held by Slurm (docs/guarantees.md)."""
        for node in NODES:
            if self.node_state(node).startswith("drain"):
                self.resume_node(node)
        for job in jobs:
            if self.show(job).get("Reason", "") == "launch_failed_requeued_held":
                self.on("head", "scontrol", "release", str(job), check=False)

    @contextmanager
    def stopped_at_first_order(self) -> Iterator[Callable[[], None]]:
        """omfsd is stopped in mid-preemption; the function given waits until it is. In the end it continues."""
        pid = self.omfsd_pid()
        words = ["docker", "exec", self.container("head"), "python3", "-c", _STOP_AT_FIRST_ORDER, pid, SHARED]
        watcher = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=_environment())
        assert watcher.stdout is not None
        assert watcher.stdout.readline().strip() == "watching"

        def wait() -> None:
            wait_until(lambda: watcher.poll() is not None, "omfsd's first order")
            assert watcher.stdout is not None and watcher.stdout.read().strip() == "stopped"

        try:
            yield wait
        finally:
            watcher.kill()
            watcher.wait(LIMIT)
            self.shell("head", f"kill -CONT {pid}", check=False)


def docker(*words: str, check: bool = True) -> str:
    """A command of docker itself."""
    return _run(["docker", *words], LIMIT, check)


def _environment() -> dict[str, str]:
    return dict(os.environ) | _ENVIRONMENT


def _run(words: Sequence[str], limit: float, check: bool) -> str:
    begun = time.monotonic()
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            env=_environment(),
            cwd=ROOT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        if check:
            raise AssertionError(f"{' '.join(words)}: not within {time.monotonic() - begun:.0f} s") from None
        return ""
    assert not check or done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout
