"""What is made of a configuration: the rules of the policy, node licenses, time-outs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from omfs_daemon.cluster.preempt_methods import Pace
from omfs_daemon.config.schema import MethodSection
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.cluster.accounts import AccountShare
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.slurm.node_licenses import Book
from omfs_daemon.slurm.node_licenses import Books
from omfs_daemon.config.schema import Config


def rules(config: Config, shares: Iterable[AccountShare]) -> Rules:
    """What the policy goes by, with the entitlements that are in force now."""
    policy = config.policy
    return Rules(
        tree=AccountTree(shares),
        classes=tuple(section.rule() for section in config.classes),
        quantum=policy.quantum_seconds,
        min_runtime_max=policy.min_runtime_max_seconds,
        max_stops_per_hour=policy.max_stops_per_hour,
        max_stops_per_cycle=policy.max_stops_per_cycle,
        urgent_may_take_entitled=policy.urgent_may_take_entitled,
        rank_depth=policy.rank_depth,
        methods={name: method.traits for name, method in installed().items()},
        paces={name: _pace(method.pace, config.methods.get(name)) for name, method in installed().items()},
    )


def books(config: Config) -> Books:
    """The licences that stand for what nodes have."""
    return Books(Book(section.licence, section.kind, section.anywhere or "") for section in config.book)


def stop_timeouts(config: Config) -> dict[str, float]:
    """Seconds that a job may take to be stopped, of the methods that have a limit of their own."""
    careful = (name for name, method in installed().items() if method.traits.is_careful)
    own = {name: section.stop_timeout_seconds for name, section in config.methods.items()}
    given = {name: seconds for name, seconds in own.items() if seconds is not None}
    return dict.fromkeys(careful, _CAREFUL_STOP) | given


_CAREFUL_STOP = 600.0


def _pace(built_in: Pace, own: MethodSection | None) -> Pace:
    """What the site has measured, else what the method says of itself."""
    if own is None:
        return built_in
    measured = {
        "stop_seconds": own.stop_seconds,
        "stop_rate": own.stop_bytes_per_second,
        "back_seconds": own.back_seconds,
        "back_rate": own.back_bytes_per_second,
    }
    return replace(built_in, **{name: value for name, value in measured.items() if value is not None})
