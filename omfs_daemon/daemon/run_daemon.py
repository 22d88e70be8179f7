"""Runs omfsd: as its user, with the gateway that fits, until it ends."""

from __future__ import annotations

import resource
from contextlib import ExitStack, suppress
from pathlib import Path

import structlog

from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.garbage import collect_garbage_seldom
from omfs_daemon.daemon.heartbeat import EPOCH_FILE
from omfs_daemon.daemon.pair import Pair
from omfs_daemon.daemon.process import Service
from omfs_daemon.daemon.root_process.own_user import own_user
from omfs_daemon.daemon.signals import Signals
from omfs_daemon.daemon.start_check import refuse_unfit
from omfs_daemon.daemon.systemd_notify import Notifier
from omfs_daemon.daemon.trial import on_a_copy
from omfs_daemon.errors import ConfigError, GatewayError

OPEN_FILES = 4096
"""More than all connections and commands at once can take; systemd's default soft limit is 1,024."""


def _raise_file_limit() -> None:
    """As far as the hard limit allows it. How many are open: ``process_open_fds``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run_daemon(config: Config, config_path: Path, once: bool, dry_run: bool) -> int:
    """Run the daemon on the cluster that the configuration names; returns the exit code. A single cycle of a dry run
    works on a copy of the state, also beside a running daemon."""
    from omfs_daemon.config.open_gateway import open_gateway

    collect_garbage_seldom()
    _raise_file_limit()
    is_trial = once and (dry_run or config.daemon.dry_run)
    with ExitStack() as opened:
        root = opened.enter_context(own_user(config, config_path, make=not is_trial))
        gateway, why = opened.enter_context(open_gateway(config.slurm))
        config = opened.enter_context(on_a_copy(config)) if is_trial else config
        if root is not None:
            root.greet()
        elif config.daemon.user is not None and Notifier().is_service:
            text = "no work on nodes that needs root, and no questions to Slurm: the unit sets no OMFS_ROOT_SOCKET"
            structlog.get_logger("omfsd").warning("unit_outdated", message=text)
        structlog.get_logger("omfsd").info("gateway_selected", gateway=gateway.name, message=why)
        cluster = ""
        with suppress(GatewayError):  # Slurm is away: the loop waits for it, and checks then
            settings = gateway.settings()
            refuse_unfit(settings)
            cluster = settings.values.get("ClusterName", "")
        shared = config.daemon.shared_directory
        if shared is not None and (once or dry_run):
            text = "use both together, or daemon.dry_run on both hosts: the other omfsd may act"
            raise ConfigError(f"--once, --dry-run: with daemon.shared_directory, {text}")
        if shared is not None:
            return Pair(config, shared, config_path, gateway, root, cluster).serve()
        (config.daemon.run_dir / EPOCH_FILE).unlink(missing_ok=True)  # of a pair that is one no longer
        signals = Signals()
        service = Service(config, config_path, gateway, always_dry=dry_run, root=root, cluster=cluster, signals=signals)
        try:
            if once:
                report = service.trial() if is_trial else service.once()
                return 0 if report.error is None else 1
            signals.catch()
            return service.serve()
        finally:
            service.close()
