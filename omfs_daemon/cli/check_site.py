"""The part of ``omfs check`` about who can go round the rules, the names in classes, and what omfsd depends on."""

from __future__ import annotations

import grp
import socket
from collections.abc import Sequence

from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.config.load import check_accounts
from omfs_daemon.config.schema import Config
from omfs_daemon.errors import ConfigError, GatewayError
from omfs_daemon.slurm.class_check import ClassNames, KnownNames, class_findings
from omfs_daemon.slurm.commands.site_names import munge_failure, qos_names
from omfs_daemon.slurm.gateway import AccountRow, Gateway, SlurmSettings
from omfs_daemon.slurm.settings_check import Finding, SiteFacts, accounts_finding, slurm_user
from omfs_daemon.slurm.site_check import (
    account_of,
    enforcement_finding,
    metrics_finding,
    munge_finding,
    parents_findings,
    private_data_finding,
    slurmdbd_answers,
    slurmdbd_away,
    unknown_group,
    user_top_finding,
)


def site_findings(config: Config, gateway: Gateway, settings: SlurmSettings, facts: SiteFacts) -> list[Finding]:
    """Slurm answers; slurmdbd may be away."""
    values, classes = settings.values, class_names(config)
    administers = facts.uid in (0, slurm_user(values)) or bool(facts.admin_level)
    found = [
        enforcement_finding(values, classes, facts.entitlements),
        user_top_finding(values),
        private_data_finding(values, facts.uid, administers),
    ]
    return [
        *(finding for finding in found if finding is not None),
        *_names(config, gateway, settings, classes, facts.entitlements),
    ]


def host_findings(config: Config) -> list[Finding]:
    """What can be said without Slurm."""
    failure = munge_failure(config.slurm.conf, config.slurm.timeout_seconds)
    found = [] if failure is None else [munge_finding(failure)]
    if config.metrics.enabled:
        found.append(_metrics(config))
    group = config.daemon.operators_group
    if group is not None and not _is_group(group):
        found.append(unknown_group(group))
    return found


def class_names(config: Config) -> list[ClassNames]:
    return [ClassNames(one.name, one.partition, one.qos, one.account) for one in config.classes]


def _names(
    config: Config,
    gateway: Gateway,
    settings: SlurmSettings,
    classes: Sequence[ClassNames],
    entitlements: Sequence[Entitlement],
) -> list[Finding]:
    try:
        rows = gateway.accounts()
        qos = qos_names(settings, config.slurm.timeout_seconds, config.slurm.conf)
    except GatewayError as error:
        return [slurmdbd_away(error), *class_findings(classes, KnownNames(_partitions(gateway), None, None))]
    answers = slurmdbd_answers(rows)
    accounts = None if rows is None else {row.name for row in rows}
    return [
        *([answers] if answers is not None else []),
        *_accounts(config, rows),
        *parents_findings(entitlements, rows),
        *class_findings(classes, KnownNames(_partitions(gateway), qos, accounts)),
    ]


def _accounts(config: Config, rows: Sequence[AccountRow] | None) -> list[Finding]:
    """Whether slurmdbd knows the accounts that the file names."""
    try:
        check_accounts(config, rows)
    except ConfigError as error:
        return [account_of(error)]
    return [accounts_finding(rows)]


def _partitions(gateway: Gateway) -> set[str] | None:
    try:
        return {partition.name for partition in gateway.partitions()}
    except GatewayError:
        return None


def _is_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _metrics(config: Config) -> Finding:
    """Whether the address is one of this host, and who reaches it. The port is not tried: omfsd may have it already."""
    address, port = config.metrics.address, config.metrics.port
    try:
        meant = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, first = meant[0]
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.bind((first[0], 0))
    except (OSError, UnicodeError) as error:  # a name that cannot be one in DNS is a UnicodeError
        return metrics_finding(address, port, (), getattr(error, "strerror", None) or str(error))
    return metrics_finding(address, port, {str(each[4][0]) for each in meant})
