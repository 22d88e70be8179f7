"""The whole file as a model, beside its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.config.percent import percent
from omfs_daemon.policy.rules.classes import ClassRule
from omfs_daemon.config.value_types import _licence_name
from omfs_daemon.config.value_types import Seconds
from omfs_daemon.config.value_types import SomeSeconds
from omfs_daemon.config.value_types import Count
from omfs_daemon.config.value_types import SomeCount
from omfs_daemon.config.value_types import Switch
from omfs_daemon.config.value_types import Text
from omfs_daemon.config.value_types import AbsolutePath
from omfs_daemon.config.value_types import MethodName
from omfs_daemon.config.value_types import SafeWord
from omfs_daemon.config.value_types import Options
from omfs_daemon.config.value_types import Percent
from typing import Self
from pydantic import Field, model_validator
from omfs_daemon.errors import ConfigError
from omfs_daemon.cluster.accounts import AccountShare
from omfs_daemon.cluster.accounts import AccountTree


class Section(BaseModel):
    """What all tables of the file have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SlurmSection(Section):
    """How Slurm is asked and told."""

    gateway: Literal["auto", "commands", "pyslurm"] = Field(
        "auto",
        description='"commands": by Slurm\'s commands; "pyslurm": through PySlurm; "auto": PySlurm if it fits Slurm.',
        examples=["commands"],
    )
    conf: AbsolutePath | None = Field(
        None,
        description="The slurm.conf of the cluster. Left out: what Slurm's commands find by themselves.",
        examples=["/etc/slurm/slurm.conf"],
    )
    timeout_seconds: SomeSeconds = Field(
        10.0,
        description="How long one call to Slurm may take; after that Slurm counts as out of reach.",
        examples=[30.0],
    )
    poll_seconds: SomeSeconds = Field(
        0.5,
        description="Pause between two looks at Slurm; a look takes it about 0.1 ms per job.",
        examples=[2.5],
    )
    calls_per_second: SomeSeconds = Field(
        50.0,
        description="How often Slurm is called in a second at most, in the long run: orders go out at once, then looks "
        "wait. An order for several jobs counts once for each.",
        examples=[20.0],
    )


class DaemonSection(Section):
    """Where the daemon keeps its things, who may operate it, how it logs."""

    state_dir: AbsolutePath = Field(
        Path("/var/lib/omfs"),
        description="What must outlast a restart: the journal, changed entitlements, their audit log.",
        examples=["/srv/omfs"],
    )
    run_dir: AbsolutePath = Field(
        Path("/run/omfs"),
        description="Place of the control socket `omfs.sock` and of the plug-in's `heartbeat` file.",
        examples=["/run/omfs-test"],
    )
    operators_group: Text | None = Field(
        None,
        description="Unix group that may change entitlements, pause and resume, as root and SlurmUser may.",
        examples=["hpc-admins"],
    )
    dry_run: Switch = Field(
        False,
        description="Decide and tell, but order nothing from Slurm.",
        examples=[True],
    )
    log_format: Literal["json", "console"] = Field(
        "json",
        description='"json": one object a line, for machines; "console": for people.',
        examples=["console"],
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info",
        description='The least important messages that are logged: "debug", "info", "warning" or "error".',
        examples=["debug"],
    )
    failsafe_grace_seconds: Seconds = Field(
        300.0,
        description="How long the daemon may be gone before the failsafe releases all that it held.",
        examples=[600.0],
    )

    @property
    def socket(self) -> Path:
        return self.run_dir / "omfs.sock"

    @property
    def heartbeat(self) -> Path:
        return self.run_dir / "heartbeat"


class PolicySection(Section):
    """When jobs may be stopped, and how often."""

    quantum_seconds: Seconds = Field(
        1800.0,
        description="How long a job runs before it may be stopped for an entitled one (urgent: at once).",
        examples=[600.0],
    )
    min_runtime_max_seconds: Seconds = Field(
        0.0,
        description="The most that a job may ask for in place of quantum_seconds (--omfs-min-runtime). 0: nothing.",
        examples=[7200.0],
    )
    max_stops_per_hour: Count = Field(
        4,
        description="How often one job may be stopped within an hour.",
        examples=[2],
    )
    urgent_may_take_entitled: Switch = Field(
        True,
        description="Whether urgent jobs may stop jobs within entitlements when borrowers' are not enough.",
        examples=[False],
    )
    start_timeout_seconds: SomeSeconds = Field(
        60.0,
        description="How long a beneficiary may take to start after its victims let go, before it is undone.",
        examples=[120.0],
    )
    stop_timeout_seconds: SomeSeconds = Field(
        60.0,
        description="How long a victim may take to let go. Give it more than Slurm's KillWait.",
        examples=[90.0],
    )
    retry_after_seconds: Seconds = Field(
        300.0,
        description="How long nothing is stopped again for a beneficiary that a stop did not help.",
        examples=[900.0],
    )
    rank_depth: Count = Field(
        200,
        description="How many waiting jobs at most get a rank from omfsd; the rest keep Slurm's priority.",
        examples=[500],
    )
    max_stops_per_cycle: SomeCount = Field(
        64,
        description="How many jobs at most are stopped in one cycle, so that Slurm is not flooded.",
        examples=[16],
    )


class MetricsSection(Section):
    """The page for Prometheus."""

    enabled: Switch = Field(True, description="Whether metrics are served.", examples=[False])
    address: Text = Field(
        "127.0.0.1",
        description="The address to listen on. The page has no password: think before it leaves loopback.",
        examples=["10.0.0.1"],
    )
    port: int = Field(9345, gt=0, lt=65536, strict=True, description="The TCP port to listen on.", examples=[9346])


class EntitlementSection(Section):
    """What an account owns of the machine."""

    percent: Percent = Field(
        description="Percent of the parent's share, 0 to 100; of the whole machine without a parent.",
        examples=[50, 12.5],
    )
    parent: str = Field("", description="The account above, which must have an entitlement too.", examples=["science"])


class ClassSection(Section):
    """A class of jobs. The first class that matches a job counts; lists that are left out match every job."""

    name: Text = Field(description="The name that `omfs why` and the log use.", examples=["urgent"])
    partition: tuple[Text, ...] = Field((), description="Partitions of the class.", examples=[["urgent", "alarm"]])
    qos: tuple[Text, ...] = Field((), description="QOS of the class.", examples=[["urgent"]])
    account: tuple[Text, ...] = Field((), description="Accounts of the class.", examples=[["weather"]])
    urgent: Switch = Field(
        False,
        description="Start before all others, if need be by stopping regular jobs; never stopped themselves.",
        examples=[True],
    )
    methods: tuple[MethodName, ...] = Field(
        tuple(installed()),
        description="How a user may choose (omfs:method=NAME in the job's comment) that his job is stopped.",
        examples=[["suspend"]],
    )
    default: tuple[MethodName, ...] = Field(
        (),
        description="How jobs that choose nothing are stopped, best first. Empty: they are never stopped.",
        examples=[["requeue"]],
    )
    when_stop_fails: Literal["leave", "requeue"] = Field(
        "leave",
        description='A job that no method of its own can stop: "leave" it running, or "requeue" it and lose its work.',
        examples=["requeue"],
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.urgent and not (self.partition or self.qos or self.account):
            raise ValueError("an urgent class needs partition, qos or account: else every job would be urgent")
        if self.urgent and self.model_fields_set & {"methods", "default"}:
            raise ValueError("an urgent class has no methods and no default: urgent jobs are never stopped")
        if self.urgent and "when_stop_fails" in self.model_fields_set:
            raise ValueError("an urgent class has no when_stop_fails: urgent jobs are never stopped")
        if alien := [name for name in self.default if name not in self.methods]:
            raise ValueError(f"default {alien[0]!r} is not among its methods: {', '.join(self.methods)}")
        return self

    def rule(self) -> ClassRule:
        return ClassRule(
            self.name,
            partitions=frozenset(self.partition),
            qos=frozenset(self.qos),
            accounts=frozenset(self.account),
            urgent=self.urgent,
            methods=() if self.urgent else self.methods,
            default=self.default,
            last_resort="" if self.urgent or self.when_stop_fails == "leave" else self.when_stop_fails,
        )


class MethodSection(Section):
    """What the site knows better of a method than we do. What is left out is as `omfs methods` shows it."""

    stop_timeout_seconds: SomeSeconds | None = Field(
        None,
        description="How long a job may take to be stopped by it. Left out: 600 where its memory must be moved or "
        "written, else policy.stop_timeout_seconds.",
        examples=[900.0],
    )
    stop_seconds: Seconds | None = Field(
        None, description="How long a stop takes, whatever the size; `omfs methods fit` measures it.", examples=[1.5]
    )
    stop_bytes_per_second: SomeSeconds | None = Field(
        None, description="How fast memory is moved out of a node.", examples=[2.0e9]
    )
    back_seconds: Seconds | None = Field(
        None, description="How long it takes to bring a job back, whatever the size.", examples=[7.0]
    )
    back_bytes_per_second: SomeSeconds | None = Field(
        None, description="How fast memory is moved back into a node.", examples=[1.0e9]
    )
    options: Options = Field(
        default_factory=dict,
        description="What omfs-node is told besides, such as the driver of ve_swap (docs/ve-swap.md).",
        examples=[{"prefault": True}],
    )


class NodesSection(Section):
    """How omfs-node is reached on compute nodes; without it no method that works on nodes is used."""

    worker: Literal["none", "local", "ssh", "rsh"] = Field(
        "none",
        description='"ssh" or "rsh": ClusterShell\'s worker; "local": all nodes are on this host; "none".',
        examples=["ssh"],
    )
    command: Annotated[tuple[SafeWord, ...], Field(min_length=1)] = Field(
        ("/usr/libexec/omfs/omfs-node",),
        description="The command on the nodes, word by word; it is run as root.",
        examples=[["sudo", "/opt/omfs/omfs-node"]],
    )
    fanout: SomeCount = Field(64, description="How many nodes are talked to at a time.", examples=[32])
    probe_seconds: SomeSeconds = Field(
        60.0, description="Pause between two looks at what nodes can do and have room for.", examples=[300.0]
    )


class BookSection(Section):
    """A licence in slurm.conf that keeps the books of what a node has (docs/books.md)."""

    licence: Annotated[str, AfterValidator(_licence_name)] = Field(
        description="The name of the licence, with {node} for the name of the node.", examples=["ve_{node}"]
    )
    kind: Literal["memory", "devices"] = Field(
        description='What it counts: "memory" (freed by pageout) or "devices" (freed by ve_swap).',
        examples=["devices"],
    )
    anywhere: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")] | None = Field(
        None, description="The licence by which jobs ask for it on whichever node; omfsd chooses.", examples=["ve"]
    )


class Config(Section):
    """The whole file. Every table may be left out."""

    slurm: SlurmSection = SlurmSection()
    daemon: DaemonSection = DaemonSection()
    policy: PolicySection = PolicySection()
    metrics: MetricsSection = MetricsSection()
    nodes: NodesSection = NodesSection()
    methods: dict[MethodName, MethodSection] = Field(default_factory=dict)
    entitlements: dict[str, EntitlementSection] = Field(default_factory=dict)
    classes: tuple[ClassSection, ...] = Field((), alias="class")
    book: tuple[BookSection, ...] = ()

    @property
    def shares(self) -> tuple[AccountShare, ...]:
        return tuple(AccountShare(name, own.percent, own.parent) for name, own in self.entitlements.items())

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        AccountTree(self.shares)
        licences = [section.licence for section in self.book]
        if twice := [name for name in licences if licences.count(name) > 1]:
            raise ConfigError(
                f"book.licence = {twice[0]!r}: must be unique, but is given {licences.count(twice[0])} times"
            )
        names = [section.name for section in self.classes]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"class.name = {twice[0]!r}: must be unique, but is given {names.count(twice[0])} times")
        return self

NAME = "wake"
