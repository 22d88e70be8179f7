"""The part of ``omfs check`` about preemption: what the methods in use need of Slurm, the nodes, and node licenses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from omfs_daemon.cluster.nodes import Node
from omfs_daemon.config.build import node_licenses
from omfs_daemon.config.job_submit_conf import in_step
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.node_client.node_answers import Answer
from omfs_daemon.daemon.node_client.service import options, slurm_on_nodes, transport
from omfs_daemon.daemon.node_client.transport import Transport
from omfs_daemon.errors import OmfsError
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.protocol.node_request import PROBE
from omfs_daemon.slurm.gateway import Gateway, SlurmSettings
from omfs_daemon.slurm.preemption_check import grants, node_license_findings, plug_in_findings, requeue_exit_hold
from omfs_daemon.slurm.settings_check import Finding, Level

_PROBE_SECONDS = 20.0


def preemption_findings(
    config: Config, gateway: Gateway, settings: SlurmSettings, nodes: Sequence[Node], plug_in: Mapping[str, str]
) -> list[Finding]:
    """``plug_in``: the settings of job_submit.lua. Probes the nodes if a way to reach them is configured."""
    methods = {name: installed()[name].traits for name in in_use(config)}
    found = requeue_exit_hold(settings.values, [name for name, m in methods.items() if m.launched])
    on_nodes = [name for name, method in methods.items() if method.on_nodes]
    if "lua" in settings.values.get("JobSubmitPlugins", "").split(","):
        found.append(in_step(config, plug_in))
    kept = node_licenses(config).node_licenses
    if kept:
        try:
            found += node_license_findings(kept, nodes, gateway.licenses())
        except OmfsError as error:
            found.append(
                Finding(Level.FAIL, "node licenses", str(error), "check that Slurm answers: scontrol show licenses")
            )
        found += plug_in_findings(kept, plug_in.get("node_licenses", ""), plug_in.get("any_licenses", ""))
    if on_nodes:
        found += grants(settings.values, kept, nodes, {name: methods[name].frees for name in on_nodes})
        found += _on_nodes(config, on_nodes, [node.name for node in nodes if node.up])
    return found


def in_use(config: Config) -> list[str]:
    """The methods that a class names; what every class lets users choose by default is not asked for yet."""
    named = [name for section in config.classes for names in (section.methods or (), section.default) for name in names]
    return sorted(set(named))


def _on_nodes(config: Config, methods: Sequence[str], nodes: Sequence[str]) -> list[Finding]:
    listed = ", ".join(methods)
    try:
        nodes_transport = transport(config)
    except OmfsError as error:
        return [Finding(Level.FAIL, "nodes", str(error), "correct [nodes] in the configuration")]
    if nodes_transport is None:
        what = f"{listed} is allowed but never used: no way to reach the nodes is configured"
        return [Finding(Level.WARN, "nodes", what, "set nodes.worker and nodes.command in the configuration")]
    answers = _probed(config, nodes_transport, nodes)
    silent = {node: answer for node, answer in answers.items() if not answer.ok}
    found = [_method(name, {node: answer for node, answer in answers.items() if answer.ok}) for name in methods]
    if silent:
        node, answer = next(iter(silent.items()))
        what = f"{len(silent)} of {len(answers)} do not answer, {node}: {answer.message or answer.why}"
        found.append(Finding(Level.WARN, "nodes", what, f"try {' '.join(config.nodes.command)} on that node"))
    return found


def _probed(config: Config, nodes_transport: Transport, nodes: Sequence[str]) -> dict[str, Answer]:
    request = {"do": PROBE, "options": options(config, installed()), "slurm": slurm_on_nodes(config)}
    return nodes_transport.run(nodes, request, _PROBE_SECONDS) if nodes else {}


def _method(name: str, answers: Mapping[str, Answer]) -> Finding:
    """On how many nodes it can be used, and the most common reason why not on the others."""
    facts = [answer.methods[name] for answer in answers.values() if name in answer.methods]
    usable = sum(one.usable for one in facts)
    if facts and usable == len(facts):
        return Finding(Level.OK, name, f"can be used on all {usable} nodes that answer")
    why = Counter(one.why or "no reason given" for one in facts if not one.usable).most_common(1)
    what = f"can be used on {usable} of {len(answers)} nodes; elsewhere: {why[0][0] if why else 'not known there'}"
    return Finding(Level.WARN if usable else Level.FAIL, name, what, "see docs/methods.md for what it needs")
