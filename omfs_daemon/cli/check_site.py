"""The part of ``omfs check`` about who can go round the rules, the names in classes, and what omfsd depends on."""

from __future__ import annotations

import grp
import os
import socket
from collections.abc import Sequence
from errno import EROFS
from pathlib import Path

from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.config.daemon_user import uid_of_daemon
from omfs_daemon.config.load import check_accounts
from omfs_daemon.config.login_place import HostPort, host_port
from omfs_daemon.config.schema import Config, DaemonSection
from omfs_daemon.daemon.api.munge import Munge, MungeError
from omfs_daemon.daemon.leadership.leadership import ANSWERS_WITHIN
from omfs_daemon.daemon.leadership.lease import read_names
from omfs_daemon.daemon.leadership.lease_directory import LeaseDirectory
from omfs_daemon.daemon.leadership.timed_calls import TimedCalls
from omfs_daemon.errors import ConfigError, GatewayError
from omfs_daemon.slurm.class_check import ClassNames, KnownNames, class_findings
from omfs_daemon.slurm.commands.site_names import munge_failure, qos_names
from omfs_daemon.slurm.gateway import AccountRow, Gateway, SlurmSettings
from omfs_daemon.slurm.munge_conf import munge_socket
from omfs_daemon.slurm.settings_check import Finding, SiteFacts, accounts_finding, slurm_user
from omfs_daemon.slurm.site_check import (
    account_of,
    enforcement_finding,
    expansion_finding,
    is_unspecified,
    login_finding,
    metrics_finding,
    munge_finding,
    parents_findings,
    private_data_finding,
    shared_directory_finding,
    shared_directory_unseen,
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
        expansion_finding(values),
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
    if config.daemon.login_address is not None:
        found.append(_login(config, config.daemon.login_address))
    if config.daemon.shared_directory is not None:
        found.append(_shared(config.daemon, config.daemon.shared_directory))
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
    """Whether the address is one of this host, and who reaches it."""
    address, port = config.metrics.address, config.metrics.port
    return metrics_finding(address, port, *_addresses(HostPort(address, port)))


def _login(config: Config, where: str) -> Finding:
    """The same, and whether munge works for omfsd as it must."""
    place, metrics = host_port(where), config.metrics
    addresses, failure = _addresses(place)
    theirs, _ = _addresses(HostPort(metrics.address, metrics.port))
    meet = addresses & theirs or any(is_unspecified(each) for each in addresses | theirs)
    is_metrics = metrics.enabled and metrics.port == place.port and bool(meet)
    return login_finding(where, addresses, is_metrics, failure, _munge_fault(munge_socket(config.slurm.conf)))


def _shared(daemon: DaemonSection, path: Path) -> Finding:
    """Whether omfsd can have a lease there."""
    directory = LeaseDirectory(path)

    def look() -> str:
        directory.refuse_foreign(uid_of_daemon(daemon))
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            raise OSError(EROFS, os.strerror(EROFS))
        return read_names(file.name for file in path.iterdir()).odd

    failure, odd = "", ""
    try:
        odd = TimedCalls(ANSWERS_WITHIN).run(look)
    except PermissionError:
        return shared_directory_unseen(str(path))
    except OSError as error:
        failure = f"{path}: {error.strerror or error}"
    except ConfigError as error:
        failure = str(error)
    return shared_directory_finding(str(path), failure, odd and str(path / odd))


def _munge_fault(socket: str | None) -> str:
    """Why this process cannot write a credential and read it; "" if it can."""
    try:
        munge = Munge(socket)
        munge.decode(munge.encode(b"omfs check", os.geteuid()))
    except MungeError as error:
        return str(error)
    return ""


def _addresses(place: HostPort) -> tuple[set[str], str]:
    """What it means, and why no program of this host can listen there; "" if one can. The port is not tried: omfsd may
    have it already."""
    try:
        meant = socket.getaddrinfo(*place, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, first = meant[0]
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.bind((first[0], 0))
    except (OSError, UnicodeError) as error:  # a name that cannot be one in DNS is a UnicodeError
        return set(), getattr(error, "strerror", None) or str(error)
    return {str(each[4][0]) for each in meant}, ""
