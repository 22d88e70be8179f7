"""What must be so of Slurm, the journal, and the accounts before the first cycle, and after a reload."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from omfs_daemon import __version__
from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.cluster.job_refs import brief_ref
from omfs_daemon.config.load import check_entitlements
from omfs_daemon.daemon.api.cycle_report import CycleReport, LatestPoll, error_kind
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.daemon.store.journal import Journal, refuse_other_cluster
from omfs_daemon.errors import ConfigError, GatewayError, OmfsError
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.slurm.gateway import Gateway, SlurmSettings
from omfs_daemon.slurm.releases import untested_release
from omfs_daemon.slurm.site_check import parent_differences


class StartCheck:
    """``settings`` and ``entitlements`` return those in force. ``on_slurm_uid`` is called when SlurmUser's uid is
    known. ``may_act``: raises OmfsError if this daemon must do nothing now."""

    def __init__(
        self,
        gateway: Gateway,
        journal: Journal,
        latest: LatestPoll,
        metrics: Metrics,
        settings: Callable[[], Settings],
        entitlements: Callable[[], tuple[Entitlement, ...]],
        clock: Callable[[], float],
        may_act: Callable[[], None] = lambda: None,
    ) -> None:
        self._gateway = gateway
        self._journal = journal
        self._latest = latest
        self._metrics = metrics
        self._settings = settings
        self._entitlements = entitlements
        self._clock = clock
        self._may_act = may_act
        self._log = structlog.get_logger("omfsd")
        self._is_passed = False
        self.is_trial = False
        """Whether the state is a copy, of which the jobs are another daemon's."""
        self.on_slurm_uid: Callable[[int], None] = lambda _uid: None

    def again(self) -> None:
        """Check everything before the next cycle."""
        self._is_passed = False

    def refused(self) -> CycleReport | None:
        """Why no cycle can run: until Slurm has answered once, and where another daemon acts; else None."""
        if why := self.why_not_to_act():
            return CycleReport(self._clock(), why, error=why)
        if self._is_passed:
            return None
        try:
            settings = self._gateway.settings()
            refuse_unfit(settings)
            self._check_cluster(settings.values.get("ClusterName", ""))
        except GatewayError as error:
            text = f"Slurm does not answer ({error}): waiting, nothing is decided"
            return CycleReport(self._clock(), text, error=str(error), slurm_error=error_kind(error))
        except OmfsError as error:
            return CycleReport(self._clock(), str(error), error=str(error))
        self._check_accounts()
        self._note_dry_run()
        if warning := untested_release(settings.version):
            self._log.warning("slurm_release_untested", version=settings.version, message=warning)
        self._is_passed = True
        self._latest.slurm_version = settings.version
        self._latest.slurm_uid = uid = _uid_in(settings.values.get("SlurmUser", ""))
        if uid is not None:
            self.on_slurm_uid(uid)
        self._metrics.slurm.observe_versions(__version__, settings.version)
        return None

    def why_not_to_act(self) -> str:
        """Also what keeps the right to act: to be called every few seconds."""
        try:
            self._may_act()
        except OmfsError as error:
            return str(error)
        return ""

    def _check_cluster(self, name: str) -> None:
        if self._settings().dry_run:
            refuse_other_cluster(self._journal.path, self._journal.state, name)
        else:
            self._journal.belong_to(name)

    def _note_dry_run(self) -> None:
        state = self._journal.state
        left = {*state.held, *state.preempted, *(ref for each in state.preemptions.values() for ref in each.refs)}
        if left and self._settings().dry_run and not self.is_trial:
            text = "they stay held or preempted during a dry run: `omfs failsafe` releases them after its grace time"
            self._log.warning("dry_run_leaves_jobs", jobs=sorted(map(brief_ref, left)), message=text)

    def _check_accounts(self) -> None:
        """Neither a slurmdbd that is away nor a deleted account ends the work: entitlements may be old."""
        try:
            rows = self._gateway.accounts()
            check_entitlements(self._entitlements(), rows)
        except (ConfigError, GatewayError) as error:
            self._log.warning("accounts_not_confirmed", error=str(error), message="the entitlements stay in force")
            return
        for text in parent_differences(self._entitlements(), rows or ()):
            self._log.warning("parent_differs", message=text)


def refuse_unfit(settings: SlurmSettings) -> None:
    """OmfsError under priority/basic: there the owner of a job can release any hold by ``nice=``."""
    kind = settings.values.get("PriorityType", "")
    if kind != "priority/multifactor":
        raise OmfsError(
            f"slurm.conf: PriorityType = {kind}: must be priority/multifactor (its weights may all be 0): "
            "under priority/basic the owner of a job can release any hold"
        )


def _uid_in(text: str) -> int | None:
    """The number in ``slurm(64030)``."""
    found = text[text.find("(") + 1 : text.find(")")]
    return int(found) if found.isdecimal() else None
