"""The part of ``omfs check`` about real-time classes."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cli.check_preemption import in_use
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.config.build import rules
from omfs_daemon.config.schema import Config
from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.gateway import Gateway, SlurmSettings
from omfs_daemon.slurm.realtime_check import Promise, SlowestMethod, realtime_findings
from omfs_daemon.slurm.settings_check import Finding, kill_wait


def promises(config: Config) -> list[Promise]:
    """What the real-time classes promise."""
    return [
        Promise(section.name, section.partition, terms.bound, max(terms.act_at))
        for section in config.classes
        if (terms := section.realtime_terms) is not None
    ]


def slowest_method(config: Config, settings: SlurmSettings, nodes: Sequence[Node]) -> SlowestMethod | None:
    """Of the methods that classes name; a job that is requeued may use all of KillWait."""
    site = rules(config, ())
    size = max((node.memory for node in nodes), default=0)
    found = []
    for name in in_use(config):
        traits, speed = site.method(name), site.speeds[name]
        seconds = speed.preempt_seconds + size / speed.preempt_rate
        found.append(SlowestMethod(name, max(seconds, kill_wait(settings.values)) if traits.is_killed else seconds))
    return max(found, key=lambda one: one.seconds, default=None)


def check_realtime(config: Config, gateway: Gateway, settings: SlurmSettings, nodes: Sequence[Node]) -> list[Finding]:
    """None without such classes."""
    made = promises(config)
    if not made:
        return []
    try:
        partitions = gateway.partitions()
    except GatewayError:
        return []  # what Slurm does not answer is reported already
    return realtime_findings(made, partitions, slowest_method(config, settings, nodes))
