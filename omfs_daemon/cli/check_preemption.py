"""The part of ``omfs check`` about preemption: what the methods in use need of Slurm, the nodes, and node licenses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omfs_daemon.cluster.nodes import Node
from omfs_daemon.config.build import class_methods, node_licenses, preempt_timeouts
from omfs_daemon.config.job_submit_conf import plugin_settings
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.node_client.node_answers import OmfsNodeAnswer
from omfs_daemon.daemon.node_client.service import options, slurm_on_nodes, transport
from omfs_daemon.daemon.node_client.transport import Transport
from omfs_daemon.errors import ConfigError, OmfsError
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.protocol.node_request import PROBE
from omfs_daemon.slurm.gateway import Gateway, SlurmSettings
from omfs_daemon.slurm.node_check import NodeAnswer, no_worker, node_findings, wrong_worker
from omfs_daemon.slurm.plugin_check import misread_class, plugin_settings_findings
from omfs_daemon.slurm.preemption_check import (
    cgroups,
    grants,
    job_output,
    node_license_findings,
    plug_in_findings,
    requeue_exit_hold,
    suspended_memory,
    timeouts,
    unknown_licenses,
)
from omfs_daemon.slurm.settings_check import Finding

_PROBE_SECONDS = 20.0


def preemption_findings(
    config: Config, gateway: Gateway, settings: SlurmSettings, nodes: Sequence[Node], plug_in: Mapping[str, str]
) -> list[Finding]:
    """``plug_in``: the settings of job_submit.lua. Probes the nodes if a way to reach them is configured."""
    methods = {name: installed()[name].traits for name in in_use(config)}
    launched = [name for name, method in methods.items() if method.launched]
    found = requeue_exit_hold(settings.values, launched)
    found += job_output(settings.values, [name for name, method in methods.items() if method.leaves])
    offered = {
        section.name: [installed()[name].traits for name in class_methods(section)]
        for section in config.classes
        if section.when_preemption_fails == "leave"
    }
    found += timeouts(settings.values, _kill_timeouts(config))
    found += suspended_memory(settings.values, offered)
    on_nodes = [name for name, method in methods.items() if method.on_nodes]
    found += cgroups(settings.values, launched, on_nodes)
    if "lua" in settings.values.get("JobSubmitPlugins", "").split(","):
        found += _plug_in(config, plug_in)
    kept = node_licenses(config).node_licenses
    if kept:
        try:
            found += node_license_findings(kept, nodes, gateway.licenses())
        except OmfsError as error:
            found.append(unknown_licenses(error))
        found += plug_in_findings(kept, plug_in.get("node_licenses", ""), plug_in.get("any_licenses", ""))
    if on_nodes:
        found += grants(settings.values, kept, nodes, {name: methods[name].frees for name in on_nodes})
        found += _on_nodes(config, on_nodes, [node.name for node in nodes if node.up])
    return found


def in_use(config: Config) -> list[str]:
    """The methods that a class names; what every class lets users choose by default is not asked for yet."""
    named = [name for section in config.classes for names in (section.methods or (), section.default) for name in names]
    return sorted(set(named))


def _kill_timeouts(config: Config) -> dict[str, float]:
    """Seconds that a victim may take whom Slurm kills, by the key that says so: one for methods without their own."""
    own, found = preempt_timeouts(config), {}
    for name in (name for name, method in installed().items() if method.traits.is_killed):
        key = f"methods.{name}" if name in own else "policy"
        found[f"{key}.preempt_timeout_seconds"] = own.get(name, config.policy.preempt_timeout_seconds)
    return found


def _plug_in(config: Config, found: Mapping[str, str]) -> list[Finding]:
    try:
        wanted = plugin_settings(config, ())
    except ConfigError as error:
        return [misread_class(error)]
    return plugin_settings_findings(wanted, plugin_settings(Config(), ()), found)


def _on_nodes(config: Config, methods: Sequence[str], nodes: Sequence[str]) -> list[Finding]:
    try:
        nodes_transport = transport(config)
    except OmfsError as error:
        return [wrong_worker(error)]
    if nodes_transport is None:
        return [no_worker(methods)]
    answers = {node: _checked(answer) for node, answer in _probed(config, nodes_transport, nodes).items()}
    return node_findings(methods, answers, config.nodes.command)


def _probed(config: Config, nodes_transport: Transport, nodes: Sequence[str]) -> dict[str, OmfsNodeAnswer]:
    request = {"do": PROBE, "options": options(config, installed()), "slurm": slurm_on_nodes(config)}
    return nodes_transport.run(nodes, request, _PROBE_SECONDS) if nodes else {}


def _checked(answer: OmfsNodeAnswer) -> NodeAnswer:
    failure = "" if answer.ok else answer.message or answer.why or "no reason given"
    why_not = {name: "" if one.usable else one.why or "no reason given" for name, one in answer.methods.items()}
    return NodeAnswer(failure, why_not)
