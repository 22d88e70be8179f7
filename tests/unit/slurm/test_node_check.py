"""Whether the nodes can carry out the methods of omfs-node."""

from __future__ import annotations

from omfs_daemon.slurm.node_check import NodeAnswer, node_findings
from omfs_daemon.slurm.settings_check import Finding, Level

USABLE = NodeAnswer("", {"pageout": ""})
NO_SWAP = NodeAnswer("", {"pageout": "no_swap_space"})
UNKNOWN = NodeAnswer("", {})
SILENT = NodeAnswer("exit 255: no route", {})


def findings(*answers: NodeAnswer) -> list[Finding]:
    nodes = {f"n{number}": answer for number, answer in enumerate(answers, start=1)}
    return node_findings(["pageout"], nodes, ["ssh", "omfs-node"])


def test_on_how_many_nodes_a_method_can_be_used() -> None:
    (found,) = findings(USABLE, USABLE)
    assert (found.level, found.what) == (Level.OK, "can be used on all 2 nodes that answer")
    (found,) = findings(USABLE, NO_SWAP, UNKNOWN)
    assert (found.level, found.what) == (Level.WARN, "can be used on 1 of 3 nodes; elsewhere: no_swap_space")
    (found,) = findings(UNKNOWN)
    assert (found.level, found.what) == (Level.FAIL, "can be used on 0 of 1 nodes; elsewhere: not known there")


def test_nodes_that_do_not_answer() -> None:
    usable, silent = findings(SILENT, USABLE, SILENT)
    assert usable.level is Level.OK
    assert silent == Finding(
        Level.WARN, "nodes", "2 of 3 do not answer, n1: exit 255: no route", "try ssh omfs-node on that node"
    )
    assert findings()[0].level is Level.FAIL
