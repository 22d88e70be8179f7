"""The root process believes nothing that it can read from slurmctld or from the configuration."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from omfs_daemon.cluster.nodes import Node
from omfs_daemon.config.load import parse_config
from omfs_daemon.config.schema import WAKE_FILE, WAKE_LATER_FILE
from omfs_daemon.daemon.node_client.node_answers import MethodFacts, OmfsNodeAnswer
from omfs_daemon.daemon.node_client.transport import Request
from omfs_daemon.daemon.root_process import root_environment
from omfs_daemon.daemon.root_process.messages import MOST_BYTES, RootProcessError, read_reply, read_root_request
from omfs_daemon.daemon.root_process.root_client import RootClient
from omfs_daemon.daemon.root_process.root_process import RootProcess
from omfs_daemon.errors import ConfigError
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.squeue_fields import JobRow
from omfs_daemon.slurm.gateway import SlurmSettings
from tests.support.waiting import LIMIT

CONFIG = """
[slurm]
conf = "/etc/slurm/slurm.conf"
[daemon]
run_dir = "{run_dir}"
[nodes]
worker = "local"
[methods.pageout.options]
minimum_bytes = {minimum}
[[class]]
name = "regular"
methods = ["pageout", "requeue"]
"""
OUT = {"do": "out", "job": 7, "method": "pageout", "nodes": ["n1"], "timeout": 5.0}
OWNER = "1234"


class Slurm:
    """What the root process reads from slurmctld."""

    def __init__(self) -> None:
        self.slurm_user = os.getuid()
        self.found = {7: [row(7, nodes="n[1-2]")]}

    def rows(self, job_ids: Sequence[int]) -> list[JobRow]:
        return self.found.get(job_ids[0], [])

    def nodes(self, _names: Collection[str] = ()) -> list[Node]:
        return [Node(name, 4, 1 << 30) for name in ("n1", "n2", "n3")]

    def settings(self) -> SlurmSettings:
        return SlurmSettings("22.05.8", {"SlurmUser": f"slurm({self.slurm_user})"})


class Nodes:
    """A transport that keeps what it was asked; a node that is in ``slow`` answers once its event is set."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], Request]] = []
        self.slow: dict[str, threading.Event] = {}

    def run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, OmfsNodeAnswer]:
        for node in nodes:
            if node in self.slow:
                assert self.slow[node].wait(LIMIT)
        self.asked.append((list(nodes), request))
        facts = {"pageout": MethodFacts(True, free=5)}
        return {node: OmfsNodeAnswer(ok=True, state="out", processes=3, methods=facts) for node in nodes}


def row(job_id: int, uid: str = OWNER, nodes: str = "n1") -> JobRow:
    empty = JobRow(*[""] * len(JobRow._fields))
    return empty._replace(job_id=str(job_id), state="RUNNING", uid=uid, node_list=nodes)


class Stand:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "omfs.toml"
        self.wake, self.wake_later = directory / WAKE_FILE, directory / WAKE_LATER_FILE
        self.configure(100)
        self.slurm, self.nodes = Slurm(), Nodes()
        gateway = cast(CommandGateway, self.slurm)
        config = parse_config(self.path.read_text(), "test")
        self.root = RootProcess(config, self.path, gateway, self.nodes, os.getuid())

    def configure(self, minimum: int) -> None:
        self.path.write_text(CONFIG.format(run_dir=self.path.parent, minimum=minimum))

    def ask(self, **request: object) -> dict[str, OmfsNodeAnswer]:
        return read_reply(self.root.reply(json.dumps(request).encode()))


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


@pytest.fixture
def client(stand: Stand) -> Iterator[RootClient]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    serving = threading.Thread(target=stand.root.serve, args=(theirs,))
    serving.start()
    made = RootClient(ours, fanout=64)
    yield made
    made.close()
    serving.join(LIMIT)
    assert not serving.is_alive(), "it ends with omfsd"
    theirs.close()


# -- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"do":"kill","job":7}',
        b'{"do":"reload","path":"/tmp/mine.toml"}',
        b'{"do":"give_wake_files","uid":0}',
        b'{"do":"probe","nodes":"n1","timeout":5}',
        b'{"do":"ask","job":"7","nodes":["n1"]}',
        b'{"do":"ask","job":7,"nodes":["n1"],"uid":0}',
        b'{"do":"ask","job":7,"nodes":["n1"],"options":["--qos=high"]}',
        b'{"do":"ask","job":7}',
        *(
            json.dumps(OUT | wrong).encode()
            for wrong in (
                {"job": "7"},
                {"job": "7_1"},
                {"job": True},
                {"job": 0},
                {"job": 1 << 32},
                {"job": [7]},
                {"timeout": 0},
                {"timeout": 3601},
                {"timeout": float("nan")},
                {"nodes": [1]},
                {"resume": 1},
                {"uid": 0},
                {"options": {}},
                {"command": ["/bin/sh"]},
            )
        ),
        b'{"do":"reload"' + b" " * MOST_BYTES + b"}",
    ],
)
def test_anything_but_a_request_is_refused(stand: Stand, text: bytes) -> None:
    with pytest.raises(RootProcessError):
        read_root_request(text)
    with pytest.raises(RootProcessError):
        read_reply(stand.root.reply(text))
    assert not stand.nodes.asked


def test_owner_and_options_are_not_omfsds(stand: Stand) -> None:
    answers = stand.ask(**OUT, suspended=True)
    assert answers["n1"].ok and answers["n1"].methods["pageout"].free == 5
    ((nodes, request),) = stand.nodes.asked
    assert nodes == ["n1"]
    assert request == {
        "do": "out",
        "method": "pageout",
        "job": 7,
        "uid": int(OWNER),
        "suspended": True,
        "options": {"minimum_bytes": 100},
        "slurm": {"conf": "/etc/slurm/slurm.conf"},
    }


def test_a_task_of_an_array_is_not_taken_for_another(stand: Stand) -> None:
    stand.slurm.found[7] = [row(9, uid="9", nodes="n3"), row(7, nodes="n1"), row(8, uid="8", nodes="n1")]
    stand.ask(**OUT)
    assert stand.nodes.asked[0][1]["uid"] == int(OWNER)


@pytest.mark.parametrize("found", [[], [row(8)], [row(7, uid="0")], [row(7, uid="")], [row(7, uid="-1")]])
def test_jobs_of_root_unknown_ones_and_unreadable_ones_are_left_alone(stand: Stand, found: list[JobRow]) -> None:
    stand.slurm.found[7] = found
    with pytest.raises(RootProcessError):
        stand.ask(**OUT)
    assert not stand.nodes.asked


@pytest.mark.parametrize("method", ["ve_swap", "requeue", "../pageout", ""])
def test_only_methods_on_nodes_that_a_class_names(stand: Stand, method: str) -> None:
    with pytest.raises(RootProcessError, match="no method"):
        stand.ask(**OUT | {"method": method})
    assert not stand.nodes.asked


def test_only_nodes_where_slurm_shows_the_job(stand: Stand) -> None:
    answers = stand.ask(**OUT | {"nodes": ["n3", "n2", "evil.example.org", "-oProxyCommand=x"]})
    assert {node: answer.ok for node, answer in answers.items()} == {
        "n2": True,
        "n3": False,
        "evil.example.org": False,
        "-oProxyCommand=x": False,
    }
    assert [nodes for nodes, _ in stand.nodes.asked] == [["n2"]]


def test_only_slurms_nodes_are_probed(stand: Stand) -> None:
    stand.ask(do="probe", nodes=["n1", "n3", "evil"], timeout=5)
    ((nodes, request),) = stand.nodes.asked
    assert nodes == ["n1", "n3"] and request["options"] == {"pageout": {"minimum_bytes": 100}}


def test_a_reload_reads_the_options_from_the_file(stand: Stand) -> None:
    stand.configure(200)
    stand.ask(do="reload")
    stand.ask(**OUT)
    stand.path.write_text("[nonsense]")
    with pytest.raises(RootProcessError, match="nonsense"):
        stand.ask(do="reload")
    stand.ask(**OUT)
    assert [request["options"] for _, request in stand.nodes.asked] == [{"minimum_bytes": 200}] * 2


# -- the wake file ----------------------------------------------------------------------------------------------------


def test_the_wake_files_are_given_to_slurm_user(stand: Stand) -> None:
    stand.wake.touch()
    stand.wake_later.touch()
    stand.ask(do="give_wake_files")
    if os.getuid() == 0:
        stand.slurm.slurm_user = 12345
        stand.ask(do="give_wake_files")
        stand.ask(do="give_wake_files")
        assert stand.wake.stat().st_uid == stand.wake_later.stat().st_uid == 12345


@pytest.mark.parametrize("planted", ["nothing", "link", "hard link", "pipe", "directory", "another's"])
def test_nothing_else_is_given_away(stand: Stand, planted: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.touch()
    stand.wake.touch()
    match planted:
        case "link":
            stand.wake_later.symlink_to(precious)
        case "hard link":
            stand.wake_later.hardlink_to(precious)
        case "pipe":
            os.mkfifo(stand.wake_later)
        case "directory":
            stand.wake_later.mkdir()
        case "another's":
            stand.wake_later.touch()
            stand.root._user = stand.slurm.slurm_user = os.getuid() + 1
    with pytest.raises(RootProcessError):
        stand.ask(do="give_wake_files")
    assert precious.stat().st_uid == os.getuid()


# -- omfsd's side -----------------------------------------------------------------------------------------------------


def test_requests_do_not_wait_for_each_other(stand: Stand, client: RootClient) -> None:
    stand.nodes.slow["n1"] = threading.Event()
    request = {"do": "out", "job": 7, "method": "pageout", "uid": 0, "options": {"minimum_bytes": 0}}
    answers: dict[str, OmfsNodeAnswer] = {}
    slow = threading.Thread(target=lambda: answers.update(client.run(["n1"], request, 5)))
    slow.start()
    assert client.run(["n2"], request, 5)["n2"].ok
    assert client.run(["n2"], {"do": "probe"}, 5)["n2"].methods == {"pageout": MethodFacts(True, free=5)}
    stand.nodes.slow["n1"].set()
    slow.join(LIMIT)
    assert answers["n1"].ok and answers["n1"].processes == 3
    assert {asked["options"]["minimum_bytes"] for _, asked in stand.nodes.asked if "uid" in asked} == {100}  # type: ignore[index]


def test_a_refusal_is_each_nodes_answer(stand: Stand, client: RootClient) -> None:
    stand.slurm.found.clear()
    answers = client.run(["n1", "n2"], OUT, 5)
    assert [(answer.why, answer.ok) for answer in answers.values()] == [("root_process", False)] * 2
    stand.path.write_text("[nonsense]")
    with pytest.raises(ConfigError, match="nonsense"):
        client.reload()
    with pytest.raises(RootProcessError):
        client.give_wake_files()


def test_omfsd_works_on_if_the_root_process_has_ended() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client = RootClient(ours, fanout=64)
    theirs.close()
    with capture_logs() as logged:
        for _ in range(2):
            answer = client.run(["n1"], OUT, 5)["n1"]
            assert not answer.ok and "restart omfsd" in answer.message
        client.reload()
    assert [entry["event"] for entry in logged] == ["root_process_ended"]
    client.close()


def test_nothing_of_the_environment_reaches_what_runs_as_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    writable = tmp_path / "bin"
    writable.mkdir()
    writable.chmod(0o777)
    monkeypatch.setenv("PATH", f"{writable}:relative::/usr/bin:{tmp_path}/missing")
    monkeypatch.setenv("LD_PRELOAD", "/tmp/evil.so")  # noqa: S108
    monkeypatch.setenv("SLURM_CONF", "/opt/slurm/etc/slurm.conf")
    found = root_environment._clean_environment()
    assert found["PATH"] == "/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert found["SLURM_CONF"] == "/opt/slurm/etc/slurm.conf"
    assert set(found) == {"PATH", "LC_ALL", "HOME", "USER", "LOGNAME", "SLURM_CONF"}
