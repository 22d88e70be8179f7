"""The transports to omfs-node: a child process, and ClusterShell.

A stand-in for ssh runs the command on this machine, hangs, or cannot connect.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest

from omfs_daemon.daemon.node_client.remote_transport import Remote
from omfs_daemon.daemon.node_client.transport import Local, Transport, request_text
from omfs_daemon.errors import ConfigError
from omfs_daemon.preemption.methods.node_work import NodeAction
from omfs_daemon.protocol import node_request
from tests.support.waiting import LIMIT

NODE = """#!{python}
import json, os, sys, time
parent = os.getppid()
request = json.load(sys.stdin)
node = request["node"]
while node == "slow" and os.getppid() == parent:  # nothing is left once whoever asked has given up
    time.sleep(0.1)
if node == "odd":
    print("<html>")
elif node == "loud":
    print("x" * 3000000)
elif node == "broken":
    sys.exit("no\\nsuch thing")
else:
    print(json.dumps({{"ok": True, "state": "out", "processes": len(node), "bytes": request["job"]}}))
"""
# As ssh is called: options, host, command as one word that the other side's shell reads.
SSH = """#!{python}
import os, sys
*options, host, command = sys.argv[1:]
with open({record!r}, "a") as out:
    print(*options, host, command, file=out)
if host == "down":
    print("ssh: connect to host down port 22: No route to host", file=sys.stderr)
    sys.exit(255)
os.execv("/bin/sh", ["sh", "-c", command])
"""


@pytest.fixture
def node_program(tmp_path: Path) -> Path:
    return _script(tmp_path / "omfs-node", NODE.format(python=sys.executable))


@pytest.fixture(params=["local", "remote"])
def transport(request: pytest.FixtureRequest, tmp_path: Path, node_program: Path) -> Transport:
    if request.param == "local":
        return Local([str(node_program)], grace=0.5)
    return remote(tmp_path, node_program, grace=0.5)


def remote(tmp_path: Path, node_program: Path, fanout: int = 64, grace: float = 5.0) -> Remote:
    ssh = _script(tmp_path / "ssh", SSH.format(python=sys.executable, record=str(tmp_path / "calls")))
    return Remote(
        [str(node_program)], ssh_path=str(ssh), ssh_options="-oFast=yes", fanout=fanout, connect_timeout=1, grace=grace
    )


def _script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_each_node_gets_its_request_and_gives_its_answer(transport: Transport) -> None:
    answers = transport.run(["n1", "node22"], {"do": "out", "job": 7}, LIMIT)
    assert {node: (a.ok, a.processes, a.moved) for node, a in answers.items()} == {
        "n1": (True, 2, 7),
        "node22": (True, 6, 7),
    }


def test_a_bad_node_does_not_spoil_the_others_answer(transport: Transport) -> None:
    nodes = ["n1", "slow", "odd", "loud", "broken"]
    for seconds in (0.5, 5, 50):  # a busy machine may need more for those that answer
        answers = transport.run(nodes, {"job": 1}, seconds)
        if [node for node in nodes if answers[node].why == "timeout"] == ["slow"]:
            break
    assert {node: a.why for node, a in answers.items()} == {
        "n1": "",
        "slow": "timeout",
        "odd": "bad_answer",
        "loud": "bad_answer",
        "broken": "unreachable",
    }
    assert answers["broken"].message == "exit 1: no such thing"


@pytest.mark.parametrize("name", ["n1;reboot", "n[1-4]", "@all", "-oProxyCommand=x", "a b", "", "n1\n"])
def test_an_odd_name_reaches_no_command(transport: Transport, name: str) -> None:
    answers = transport.run([name, "n1"], {"job": 1}, LIMIT)
    assert answers["n1"].ok
    assert answers[name].why == "unreachable"
    assert set(answers) == {name, "n1"}


def test_no_nodes(transport: Transport) -> None:
    assert transport.run([], {}, 1) == {}


def test_two_threads_at_once(transport: Transport) -> None:
    found: dict[int, object] = {}

    def ask(number: int) -> None:
        found[number] = transport.run(["n1"], {"job": number}, LIMIT)["n1"].moved

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert found == {number: number for number in range(6)}


def test_an_unreachable_host_reports_why(tmp_path: Path, node_program: Path) -> None:
    answers = remote(tmp_path, node_program).run(["down", "n1"], {"job": 1}, LIMIT)
    assert answers["n1"].ok
    assert answers["down"].why == "unreachable"
    assert answers["down"].message == "exit 255: ssh: connect to host down port 22: No route to host"


def test_the_command_line_of_ssh(tmp_path: Path, node_program: Path) -> None:
    hostile = {"job": 1, "options": {"x": "$(reboot) 'a' \"b\" ; \n"}}
    assert remote(tmp_path, node_program, fanout=1).run(["n1", "n2"], hostile, LIMIT)["n2"].ok
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 2
    assert all(call.startswith("-oFast=yes") and "-oBatchMode=yes" in call for call in calls)
    assert {tuple(call.split()[-2:]) for call in calls} == {("n1", str(node_program)), ("n2", str(node_program))}


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["/usr/bin/omfs node"], {}),
        (["/usr/bin/omfs-node", "$(x)"], {}),
        (["omfs-node"], {}),
        ([], {}),
        (["/usr/bin/omfs-node"], {"worker": "exec"}),
    ],
)
def test_commands_that_a_shell_could_read_otherwise_are_refused(command: list[str], options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        Remote(command, **options)  # type: ignore[arg-type]


def test_a_missing_program() -> None:
    answer = Local(["/nonexistent/omfs-node"]).run(["n1"], {}, 1)["n1"]
    assert (answer.why, answer.message) == (
        "unreachable",
        "cannot run /nonexistent/omfs-node: No such file or directory",
    )


def test_the_request_is_json_with_the_nodes_own_name() -> None:
    text = request_text({"do": "in", "job": 1}, "n1", 5)
    assert json.loads(text) == {"version": 1, "do": "in", "job": 1, "node": "n1", "timeout": 5}


def test_the_request_is_of_the_protocols_version_and_actions() -> None:
    request = json.loads(request_text({"do": "probe"}, "n1", 5.0))
    assert request == {"version": node_request.VERSION, "do": "probe", "node": "n1", "timeout": 5.0}
    assert {action.value for action in NodeAction} | {"probe"} == set(node_request.ACTIONS)
