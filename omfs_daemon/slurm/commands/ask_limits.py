"""Asks Slurm's commands, all at a time, what limits starts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from omfs_daemon.cluster.limits import SiteLimits
from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands import parse_limits
from omfs_daemon.slurm.commands.run_command import CommandOutput
from omfs_daemon.slurm.gateway import SlurmSettings
from omfs_daemon.slurm.site_check import enforced as enforced_in

Parsed = TypeVar("Parsed")


def ask_limits(run: Callable[..., CommandOutput], settings: SlurmSettings) -> SiteLimits:
    """``run`` runs a command. A part for which Slurm or slurmdbd gives no answer that can be read is None."""
    enforced = enforced_in(settings.values)
    with ThreadPoolExecutor(4) as aside:

        def ask(parse: Callable[[str], Parsed], *command: str) -> Future[Parsed]:
            return aside.submit(lambda: parse(run(*command).stdout))

        oneliner = ("scontrol", "--oneliner", "show")
        reservations = ask(parse_limits.parse_reservations, *oneliner, "reservations")
        licenses = ask(parse_limits.parse_site_licenses, *oneliner, "licenses")
        if not enforced:
            return SiteLimits(enforced, reservations=_answer(reservations), licenses=_answer(licenses))
        manager = ask(parse_limits.parse_association_manager, "scontrol", "show", "assoc_mgr")
        listed = ("show", "qos", "format=Name,Flags,UsageThres")
        flags = ask(parse_limits.parse_qos_flags, "sacctmgr", "--noheader", "--parsable2", *listed)
        known, read_flags = _answer(manager), _answer(flags)
        return SiteLimits(
            enforced=enforced,
            associations=None if known is None else known.associations,
            qos=None if known is None else parse_limits.with_flags(known.qos, read_flags or {}),
            reservations=_answer(reservations),
            licenses=_answer(licenses),
        )


def _answer(asked: Future[Parsed]) -> Parsed | None:
    try:
        return asked.result()
    except GatewayError:
        return None
