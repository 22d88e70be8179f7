"""The rules of the policy, node licenses and timeouts that a configuration gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.cluster.exemptions import NOBODY_EXEMPT, Exemptions
from omfs_daemon.cluster.preempt_methods import MethodSpeed
from omfs_daemon.cluster.scope import Scope
from omfs_daemon.config.class_section import ClassSection
from omfs_daemon.config.schema import Config, MethodSection
from omfs_daemon.policy.rules.classes import REGULAR, JobClassRule, Rules
from omfs_daemon.policy.rules.realtime_terms import JobSize
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS, installed
from omfs_daemon.slurm.node_licenses import NodeLicense, NodeLicenses


def rules(config: Config, entitlements: Iterable[Entitlement], exemptions: Exemptions = NOBODY_EXEMPT) -> Rules:
    """The rules of the policy, with the entitlements and exemptions that are in force now."""
    policy = config.policy
    return Rules(
        tree=AccountTree(entitlements),
        classes=tuple(_class_rule(section) for section in config.classes),
        quantum=policy.quantum_seconds,
        min_runtime_max=policy.min_runtime_max_seconds,
        max_preemptions_per_hour=policy.max_preemptions_per_hour,
        max_preemptions_per_cycle=policy.max_preemptions_per_cycle,
        urgent_may_take_entitled=policy.urgent_may_take_entitled,
        rank_depth=policy.rank_depth,
        methods={name: method.traits for name, method in installed().items()},
        speeds={name: _speed(method.speed, config.methods.get(name)) for name, method in installed().items()},
        unmatched=UNMATCHED,
        job_size=JobSize(policy.narrow_percent, policy.short_seconds),
        scope=scope_of(config),
        exemptions=exemptions,
    )


def scope_of(config: Config) -> Scope:
    """The jobs that omfsd may touch."""
    return Scope(frozenset(config.scope.partitions or ()), frozenset(config.scope.accounts or ()))


UNMATCHED = replace(REGULAR, methods=tuple(BUILT_IN_TRAITS))
"""The rule for jobs of no class."""


def class_methods(section: ClassSection) -> tuple[str, ...]:
    """The methods that users may choose in a class; none in an urgent or real-time one."""
    if section.is_first:
        return ()
    return tuple(installed()) if section.methods is None else section.methods


def _class_rule(section: ClassSection) -> JobClassRule:
    return JobClassRule(
        section.name,
        partitions=frozenset(section.partition),
        qos=frozenset(section.qos),
        accounts=frozenset(section.account),
        urgent=section.urgent,
        methods=class_methods(section),
        default=section.default,
        last_resort=""
        if section.is_first or section.when_preemption_fails == "leave"
        else section.when_preemption_fails,
        signal=section.signal,
        realtime=section.realtime_terms,
    )


def node_licenses(config: Config) -> NodeLicenses:
    """The licenses that stand for resources of nodes."""
    return NodeLicenses(
        NodeLicense(section.license, section.kind, section.anywhere or "") for section in config.node_license
    )


def preempt_timeouts(config: Config) -> dict[str, float]:
    """Seconds that a preemption may take, by method, for the methods that do not use policy.preempt_timeout_seconds."""
    careful = (name for name, method in installed().items() if method.traits.is_careful)
    own = {name: section.preempt_timeout_seconds for name, section in config.methods.items()}
    configured = {name: seconds for name, seconds in own.items() if seconds is not None}
    return dict.fromkeys(careful, _CAREFUL_TIMEOUT) | configured


_CAREFUL_TIMEOUT = 600.0


def _speed(own: MethodSpeed, section: MethodSection | None) -> MethodSpeed:
    """The site's measurements, else the method's own values."""
    if section is None:
        return own
    measured = {
        "preempt_seconds": section.preempt_seconds,
        "preempt_rate": section.preempt_bytes_per_second,
        "resume_seconds": section.resume_seconds,
        "resume_rate": section.resume_bytes_per_second,
    }
    return replace(own, **{name: value for name, value in measured.items() if value is not None})
