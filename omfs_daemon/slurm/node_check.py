"""Check whether the nodes can carry out the methods of omfs-node; each finding has a fix. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from omfs_daemon.slurm.settings_check import Finding, Level


class NodeAnswer(NamedTuple):
    """A node's answer to a probe.

    failure  why it did not answer, "" if it did
    why_not  why each method cannot be used there, "" if it can; methods that the node does not know are missing
    """

    failure: str
    why_not: Mapping[str, str]


def wrong_worker(error: Exception) -> Finding:
    return Finding(Level.FAIL, "nodes", str(error), "correct [nodes] in the configuration")


def no_worker(methods: Sequence[str]) -> Finding:
    """``methods``: those of omfs-node that a class allows."""
    what = f"{', '.join(methods)} is allowed but never used: no way to reach the nodes is configured"
    return Finding(Level.WARN, "nodes", what, "set nodes.worker and nodes.command in the configuration")


def node_findings(methods: Sequence[str], answers: Mapping[str, NodeAnswer], command: Sequence[str]) -> list[Finding]:
    """On how many nodes each method can be used, and which nodes do not answer. ``command``: what runs omfs-node."""
    answered = [answer for answer in answers.values() if not answer.failure]
    found = [_usable(name, answered) for name in methods]
    silent = [(node, answer.failure) for node, answer in answers.items() if answer.failure]
    if silent:
        node, failure = silent[0]
        what = f"{len(silent)} of {len(answers)} do not answer, {node}: {failure}"
        found.append(Finding(Level.WARN, "nodes", what, f"try {' '.join(command)} on that node"))
    return found


def _usable(method: str, answered: Sequence[NodeAnswer]) -> Finding:
    """On how many nodes it can be used, and the most common reason why not on the others."""
    known = [answer.why_not[method] for answer in answered if method in answer.why_not]
    usable = known.count("")
    if known and usable == len(known):
        return Finding(Level.OK, method, f"can be used on all {usable} nodes that answer")
    why = Counter(filter(None, known)).most_common(1)
    what = f"can be used on {usable} of {len(answered)} nodes; elsewhere: {why[0][0] if why else 'not known there'}"
    return Finding(Level.WARN if usable else Level.FAIL, method, what, "see docs/methods.md for what it needs")
