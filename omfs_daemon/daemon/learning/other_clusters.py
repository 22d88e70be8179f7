"""The other clusters of the site, as Slurm's commands show them; what was read is kept for a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import structlog

from omfs_daemon.cluster.snapshot import Snapshot, with_whole_nodes
from omfs_daemon.config.schema import Config
from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.run_command import CommandOutput, Runner, run_command
from omfs_daemon.slurm.gateway import Gateway

_SHARE_OF_TIME = 0.1
"""How much of the time a cluster may be asked, at most; how long an answer takes is what it costs there."""
_LEAST, _SILENT = 1.0, 15.0
"""Seconds for which a cluster is not asked again at least, and one that did not answer."""
_NAMES_KEEP = 60.0


class _Answer(NamedTuple):
    """``what``: a snapshot, or why there is none; until when it is kept."""

    at: float
    until: float
    what: Snapshot | str


class _Names(NamedTuple):
    at: float
    own: str
    others: Mapping[str, Path | None]


class OtherClusters:
    """Those of the configuration, each by its slurm.conf; without any, those in the same slurmdbd. Usable from several
    threads."""

    def __init__(
        self, config: Callable[[], Config], gateway: Gateway, clock: Callable[[], float], runner: Runner = run_command
    ) -> None:
        self._config, self._gateway, self._clock, self._runner = config, gateway, clock, runner
        self._lock = Lock()
        self._names: _Names | None = None
        self._locks: dict[str, Lock] = {}
        self._gateways: dict[tuple[str, Path | None], CommandGateway] = {}
        self._answers: dict[str, _Answer] = {}

    def names(self) -> tuple[str, Mapping[str, Path | None]]:
        """The name of our own cluster, and those of the others with their slurm.conf, None: by name in slurmdbd.

        GatewayError if our own does not answer; where slurmdbd does not, there are no others.
        """
        with self._lock:
            now = self._clock()
            if self._names is None or not 0 <= now - self._names.at < _NAMES_KEEP:
                self._names = self._asked_names(now)
            return self._names.own, self._names.others

    def _asked_names(self, now: float) -> _Names:
        settings, config = self._gateway.settings().values, self._config()
        own = settings.get("ClusterName", "")
        if config.cluster:
            return _Names(now, own, {one.name: one.conf for one in config.cluster if one.name != own})
        if settings.get("AccountingStorageType") != "accounting_storage/slurmdbd":
            return _Names(now, own, {})
        words = ("sacctmgr", "--noheader", "--parsable2", "list", "clusters", "format=Cluster,ControlHost")
        try:
            printed = self._runner(words, timeout=config.slurm.timeout_seconds, conf=config.slurm.conf).stdout
        except GatewayError as error:
            structlog.get_logger("predict").warning("clusters_not_asked", error=str(error))
            return _Names(now, own, {})
        rows = (line.split("|") for line in printed.splitlines())
        # One without a host is not registered, or its slurmctld has not run since.
        return _Names(now, own, {row[0]: None for row in rows if len(row) == 2 and row[1] and row[0] != own})

    def snapshot(self, name: str) -> Snapshot | str:
        """The cluster of this name among ``names``, as it was a few seconds ago; text: why it cannot be said."""
        _, others = self.names()
        if name not in others:
            return "it is not among the clusters of the site any more"
        with self._lock:
            lock = self._locks.setdefault(name, Lock())
        with lock:
            known, now = self._answers.get(name), self._clock()
            if known is None or not known.at <= now < known.until:
                known = self._answers[name] = self._asked(now, self._gateway_of(name, others[name]))
            return known.what

    def _asked(self, now: float, gateway: CommandGateway) -> _Answer:
        try:
            found = self._read(gateway)
        except GatewayError as error:
            return _Answer(now, self._clock() + _SILENT, f"it does not answer: {error}")
        ended = self._clock()
        return _Answer(now, ended + max(_LEAST, (ended - now) * (1 / _SHARE_OF_TIME - 1)), found)

    def _gateway_of(self, name: str, conf: Path | None) -> CommandGateway:
        slurm = self._config().slurm
        if (name, conf) not in self._gateways:
            runner = self._runner if conf is not None else _by_name(name, self._runner)
            made = CommandGateway(conf or slurm.conf, slurm.timeout_seconds, runner)
            self._gateways[name, conf] = made
        return self._gateways[name, conf]

    def _read(self, gateway: CommandGateway) -> Snapshot:
        taken = self._clock()
        gateway.settings()
        jobs = gateway.jobs()
        nodes = {node.name: node for node in gateway.nodes()}
        partitions = {partition.name: partition for partition in gateway.partitions()}
        found = {job.id: with_whole_nodes(job, nodes) if job.set_aside else job for job in jobs}
        return Snapshot(taken, found, nodes, partitions, limits=gateway.limits())


def _by_name(name: str, runner: Runner) -> Runner:
    """Slurm's commands ask slurmdbd where the slurmctld of this name is (squeue(1), --clusters)."""

    def run(
        arguments: Sequence[str],
        *,
        timeout: float,
        conf: Path | None = None,
        check: bool = True,
        variables: Mapping[str, str] | None = None,
    ) -> CommandOutput:
        named = {**(variables or {}), "SLURM_CLUSTERS": name}
        return runner(arguments, timeout=timeout, conf=conf, check=check, variables=named)

    return run
