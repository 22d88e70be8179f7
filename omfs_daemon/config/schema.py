"""The configuration file as pydantic models, one per table."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.config.class_section import ClassSection
from omfs_daemon.config.cluster_section import ClusterSection
from omfs_daemon.config.login_place import host_port
from omfs_daemon.config.predict_section import PredictSection
from omfs_daemon.config.section import Section
from omfs_daemon.config.socket_path import DEFAULT_RUN_DIR, SOCKET_NAME
from omfs_daemon.config.value_types import (
    AbsolutePath,
    Count,
    MethodOptions,
    Percent,
    PercentOfMachine,
    SafeWord,
    Seconds,
    SlurmName,
    SomeCount,
    SomeSeconds,
    Switch,
    Text,
    license_name,
)
from omfs_daemon.errors import ConfigError

WAKE_FILE = "wake"
"""In run_dir: job_submit.lua opens and closes it to wake omfsd for a job that may be urgent."""
WAKE_LATER_FILE = "wake_later"
"""In run_dir: job_submit.lua and epilog_slurmctld open and close it for whatever else happens."""


def _login_address(text: str) -> str:
    host_port(text)
    return text


class SlurmSection(Section):
    """How omfsd talks to Slurm."""

    gateway: Literal["auto", "commands", "pyslurm"] = Field(
        "auto",
        description='"commands": by Slurm\'s commands; "pyslurm": through PySlurm; "auto": PySlurm if it fits Slurm.',
        examples=["commands"],
    )
    conf: AbsolutePath | None = Field(
        None,
        description="The slurm.conf of the cluster. Default: what Slurm's commands find by themselves.",
        examples=["/etc/slurm/slurm.conf"],
    )
    timeout_seconds: SomeSeconds = Field(
        10.0,
        description="Timeout of one call to Slurm, after which Slurm counts as unreachable.",
        examples=[30.0],
    )
    poll_seconds: SomeSeconds = Field(
        1.5,
        description="Interval between two polls of Slurm while nothing happens; a poll costs slurmctld about 0.1 ms "
        "per job. A slow one is followed by a longer rest.",
        examples=[2.5],
    )
    calls_per_second: SomeSeconds = Field(
        50.0,
        description="Most calls to Slurm per second, on average: orders are sent at once, and polls wait for them. "
        "An order for several jobs counts once for each.",
        examples=[20.0],
    )


class DaemonSection(Section):
    """User, directories, operators and log of the daemon."""

    user: Text | None = Field(
        None,
        description="The user that omfsd becomes when root starts it: SlurmUser, or one of its own with "
        "AdminLevel=Administrator in slurmdbd. Default: whoever starts it.",
        examples=["omfs"],
    )
    state_dir: AbsolutePath = Field(
        Path("/var/lib/omfs"),
        description="Directory of what must survive a restart: the journal, changed entitlements, their audit log.",
        examples=["/srv/omfs"],
    )
    shared_directory: AbsolutePath | None = Field(
        None,
        description="Directory that two omfsd on two hosts share (docs/high-availability.md): only the one beside the "
        "active slurmctld acts. It must belong to omfsd's user. Default: one omfsd.",
        examples=["/srv/slurm/omfs"],
    )
    run_dir: AbsolutePath = Field(
        DEFAULT_RUN_DIR,
        description="Directory of the control socket `omfs.sock` and of the plug-in's `heartbeat` file.",
        examples=["/run/omfs-test"],
    )
    operators_group: Text | None = Field(
        None,
        description="Unix group that may change entitlements, pause and resume, as root and SlurmUser may.",
        examples=["hpc-admins"],
    )
    login_address: Annotated[Text, AfterValidator(_login_address)] | None = Field(
        None,
        description="The address at which omfsd answers users of other hosts, by MUNGE, about their own jobs; with "
        "`user`. There, a file with these two keys tells commands where to ask. Default: nobody is answered there.",
        examples=["head:9346"],
    )
    dry_run: Switch = Field(
        False,
        description="Decide and report, but send no orders to Slurm.",
        examples=[True],
    )
    log_format: Literal["auto", "journal", "json", "console"] = Field(
        "auto",
        description='"journal": systemd\'s journal, with a field for each value; "json": one object per line; '
        '"console": for people; "auto": journal as a service, else json.',
        examples=["console"],
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info",
        description='The least important messages that are logged: "debug", "info", "warning" or "error".',
        examples=["debug"],
    )
    failsafe_grace_seconds: Seconds = Field(
        300.0,
        description="How long the daemon may be down before the failsafe releases all jobs that it held.",
        examples=[600.0],
    )

    @property
    def socket(self) -> Path:
        return self.run_dir / SOCKET_NAME

    @property
    def heartbeat(self) -> Path:
        return self.run_dir / "heartbeat"


class ScopeSection(Section):
    """Which jobs omfsd may touch; it leaves all others to Slurm. Without this table: all jobs."""

    partitions: Annotated[tuple[SlurmName, ...], Field(min_length=1)] | None = Field(
        None,
        description="Partitions in scope; entitlements are parts of their nodes. A job that names several is in scope "
        "if all of them are. Default: all partitions.",
        examples=[["batch"]],
    )
    accounts: Annotated[tuple[SlurmName, ...], Field(min_length=1)] | None = Field(
        None,
        description="Accounts in scope; accounts below them are named themselves. Default: all accounts.",
        examples=[["bio", "physics"]],
    )


class PolicySection(Section):
    """When jobs may be preempted, and how often."""

    quantum_seconds: Seconds = Field(
        1800.0,
        description="How long a job runs before it may be preempted for an entitled job (for an urgent one: at once).",
        examples=[600.0],
    )
    min_runtime_max_seconds: Seconds = Field(
        0.0,
        description="The most that a job may ask for instead of quantum_seconds (--omfs-min-runtime). 0: nothing.",
        examples=[7200.0],
    )
    max_preemptions_per_hour: Count = Field(
        4,
        description="How often one job may be preempted within an hour, except for urgent jobs; and for how many of "
        "a user's jobs that end at once others are preempted without a wait (docs/policy.md).",
        examples=[2],
    )
    urgent_may_take_entitled: Switch = Field(
        True,
        description="Whether urgent jobs may preempt jobs within entitlements if borrowers' jobs are not enough.",
        examples=[False],
    )
    narrow_percent: PercentOfMachine = Field(
        100 * 4096 / 49152,
        description="A job of at most so many percent of the cluster's CPUs is narrow (for real-time classes).",
        examples=[10.0],
    )
    short_seconds: SomeSeconds = Field(
        7200.0,
        description="A job whose time limit is at most that is short (for real-time classes).",
        examples=[3600.0],
    )
    start_timeout_seconds: SomeSeconds = Field(
        60.0,
        description="How long a preemptor may take to start once its victims have freed their resources; "
        "after that the preemption is undone.",
        examples=[120.0],
    )
    preempt_timeout_seconds: SomeSeconds = Field(
        60.0,
        description="How long a victim may take to free its resources. Must be more than Slurm's KillWait.",
        examples=[90.0],
    )
    retry_after_seconds: Seconds = Field(
        300.0,
        description="How long nobody is preempted for jobs like a preemptor that did not start; doubled each time.",
        examples=[900.0],
    )
    ask_slurm: Switch = Field(
        True,
        description="Whether Slurm is asked, by a request in the name of an urgent job's owner, if it would start the "
        "job; only where that is not certain.",
        examples=[False],
    )
    rank_depth: Count = Field(
        200,
        description="How many pending jobs at most get a rank from omfsd; the rest keep Slurm's priority.",
        examples=[500],
    )
    max_preemptions_per_cycle: SomeCount = Field(
        64,
        description="How many jobs at most are preempted in one cycle, so that Slurm is not flooded.",
        examples=[16],
    )


class MetricsSection(Section):
    """Metrics for Prometheus."""

    enabled: Switch = Field(True, description="Whether metrics are served.", examples=[False])
    address: Text = Field(
        "127.0.0.1",
        description="The address to listen on. There is no password: anybody who reaches it can read the metrics.",
        examples=["10.0.0.1"],
    )
    port: int = Field(9345, gt=0, lt=65536, strict=True, description="The TCP port to listen on.", examples=[9346])


class EntitlementSection(Section):
    """What an account owns of the cluster."""

    percent: Percent | None = Field(
        None,
        description="Percent of the parent's entitlement, 0 to 100; of the whole cluster without a parent.",
        examples=[50, 12.5],
    )
    cpus: Annotated[int, Field(ge=0, lt=1_000_000_000, strict=True)] | None = Field(
        None,
        description="CPUs, instead of percent, however many nodes are up.",
        examples=[8],
    )
    parent: str = Field("", description="The parent account, which must have an entitlement too.", examples=["science"])

    @model_validator(mode="after")
    def _has_one_amount(self) -> Self:
        if (self.percent is None) == (self.cpus is None):
            raise ValueError("needs percent or cpus" if self.cpus is None else "has percent and cpus: give one of them")
        return self

    def entitlement(self, name: str) -> Entitlement:
        return Entitlement(name, self.percent or Fraction(0), self.parent, self.cpus)


class MethodSection(Section):
    """What the site has measured or set for a method. Defaults: as `omfs methods` shows them."""

    preempt_timeout_seconds: SomeSeconds | None = Field(
        None,
        description="How long a preemption by this method may take. Default: 600 if the job's memory must be moved or "
        "written, else policy.preempt_timeout_seconds.",
        examples=[900.0],
    )
    preempt_seconds: Seconds | None = Field(
        None,
        description="How long a preemption takes besides moving memory; `omfs methods fit` measures it.",
        examples=[1.5],
    )
    preempt_bytes_per_second: SomeSeconds | None = Field(
        None, description="How fast memory is moved off a node.", examples=[2.0e9]
    )
    resume_seconds: Seconds | None = Field(
        None, description="How long it takes to resume or restart a job besides moving memory.", examples=[7.0]
    )
    resume_bytes_per_second: SomeSeconds | None = Field(
        None, description="How fast memory is moved back to a node.", examples=[1.0e9]
    )
    options: MethodOptions = Field(
        default_factory=dict,
        description="More options for omfs-node, such as the driver of ve_swap (docs/ve-swap.md).",
        examples=[{"prefault": True}],
    )


class NodesSection(Section):
    """How omfs-node is reached on compute nodes; needed by the methods that work on nodes."""

    worker: Literal["none", "local", "ssh", "rsh"] = Field(
        "none",
        description='"ssh" or "rsh": ClusterShell\'s worker; "local": all nodes are on this host; "none".',
        examples=["ssh"],
    )
    command: Annotated[tuple[SafeWord, ...], Field(min_length=1)] = Field(
        ("/usr/libexec/omfs/omfs-node",),
        description="The command on the nodes as a list of words; it is run as root.",
        examples=[["sudo", "/opt/omfs/omfs-node"]],
    )
    fanout: SomeCount = Field(64, description="How many nodes are contacted at a time.", examples=[32])
    probe_seconds: SomeSeconds = Field(
        60.0, description="Interval between two probes of what nodes can do and have room for.", examples=[300.0]
    )


class NodeLicenseSection(Section):
    """A license in slurm.conf that counts a resource of one node (docs/node-licenses.md)."""

    license: Annotated[str, AfterValidator(license_name)] = Field(
        description="The name of the license, with {node} for the name of the node.", examples=["ve_{node}"]
    )
    kind: Literal["memory", "devices"] = Field(
        description='What it counts: "memory" (freed by pageout) or "devices" (freed by ve_swap).',
        examples=["devices"],
    )
    anywhere: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")] | None = Field(
        None, description="The license with which jobs ask for it on any node; omfsd chooses the node.", examples=["ve"]
    )


class Config(Section):
    """The whole file. Every table may be left out."""

    slurm: SlurmSection = SlurmSection()
    daemon: DaemonSection = DaemonSection()
    scope: ScopeSection = ScopeSection()
    policy: PolicySection = PolicySection()
    metrics: MetricsSection = MetricsSection()
    predict: PredictSection = PredictSection()
    nodes: NodesSection = NodesSection()
    methods: dict[str, MethodSection] = Field(default_factory=dict)
    entitlements: dict[str, EntitlementSection] = Field(default_factory=dict)
    classes: tuple[ClassSection, ...] = Field((), alias="class")
    node_license: tuple[NodeLicenseSection, ...] = ()
    cluster: tuple[ClusterSection, ...] = ()

    @property
    def all_entitlements(self) -> tuple[Entitlement, ...]:
        return tuple(own.entitlement(name) for name, own in self.entitlements.items())

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        AccountTree(self.all_entitlements)
        _require_unique("node_license.license", [section.license for section in self.node_license])
        _require_unique("class.name", [section.name for section in self.classes])
        _require_unique("cluster.name", [section.name for section in self.cluster])
        return self


def _require_unique(key: str, names: list[str]) -> None:
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"{key} = {twice[0]!r}: must be unique, but is given {names.count(twice[0])} times")
