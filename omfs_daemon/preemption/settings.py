"""A cycle's settings, from the configuration; replaced as a whole on reload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omfs_daemon.policy.rules.classes import REGULAR, Rules
from omfs_daemon.preemption.methods.base import PreemptMethod
from omfs_daemon.preemption.methods.node_work import NodeWorkSettings
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.preemption.progress import MethodSettings
from omfs_daemon.slurm.node_licenses import NodeLicenses

_OBSERVED_WITHIN = 0.5
"""Seconds from a pass of Slurm's scheduler until the daemon has observed it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds; ``preempt_timeouts``: by method, where it has a timeout of its own. ``scheduler_pass``: within
    which Slurm looks at a job that was released. ``may_ask``: whether Slurm can be asked a question."""

    rules: Rules = field(default_factory=lambda: Rules(methods={}, unmatched=REGULAR))
    methods: Mapping[str, PreemptMethod] = field(default_factory=installed)
    node_licenses: NodeLicenses = field(default_factory=lambda: NodeLicenses(()))
    start_timeout: float = 60.0
    preempt_timeout: float = 60.0
    preempt_timeouts: Mapping[str, float] = field(default_factory=dict)
    nodes: NodeWorkSettings = field(default_factory=NodeWorkSettings)
    retry_after: float = 300.0
    scheduler_pass: float = 1.0
    may_ask: bool = False
    max_age: float = 30.0
    dry_run: bool = False

    @property
    def method_settings(self) -> MethodSettings:
        proof = self.scheduler_pass + _OBSERVED_WITHIN
        return MethodSettings(self.methods, self.preempt_timeout, self.start_timeout, self.preempt_timeouts, proof)

    @property
    def promise(self) -> float:
        """Seconds within which an account gets the CPUs that it is entitled to, if its jobs fit and each step takes as
        long as it may. Jobs that were preempted before run longer."""
        quantum = max(self.rules.quantum, self.rules.min_runtime_max)
        return quantum + max((self.preempt_timeout, *self.preempt_timeouts.values())) + self.start_timeout
