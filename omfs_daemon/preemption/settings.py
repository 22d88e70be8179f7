"""What a cycle goes by, from the configuration; replaced as a whole on reload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omfs_daemon.preemption.methods.node_work import NodeTerms
from omfs_daemon.preemption.progress import Means
from omfs_daemon.preemption.methods.base import StopMethod
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.slurm.node_licenses import Books


@dataclass(frozen=True, slots=True)
class Settings:
    """Besides the rules: times in seconds; ``stop_by``: the stop time-out of methods that have one of their own."""

    rules: Rules = field(default_factory=Rules)
    methods: Mapping[str, StopMethod] = field(default_factory=installed)
    books: Books = field(default_factory=lambda: Books(()))
    start_timeout: float = 60.0
    stop_timeout: float = 60.0
    stop_by: Mapping[str, float] = field(default_factory=dict)
    nodes: NodeTerms = field(default_factory=NodeTerms)
    retry_after: float = 300.0
    max_age: float = 30.0
    dry_run: bool = False

    @property
    def means(self) -> Means:
        return Means(self.methods, self.stop_timeout, self.start_timeout, self.stop_by)
