"""A random site, and what happens on it: users, administrators, failures of Slurm, of nodes, and of the daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.cluster.jobs import Hold, JobRequest
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.daemon.api.cycle_report import CycleReport
from omfs_daemon.errors import GatewayError
from omfs_daemon.preemption.records import JobEvent
from omfs_daemon.slurm.node_licenses import NodeLicense, NodeLicenses
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from omfs_daemon.testing.fake_slurm.fake_jobs import Record, Submission
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from omfs_daemon.testing.fake_slurm.people import Actor, People
from tests.support.fake_site import ORDERS, Fuse, Killed, Site, site_rules
from tests.support.watched_slurm import GATE, WatchedSlurm

Event = tuple[Any, ...]

TREES = {
    "flat": (("bio", 50, ""), ("physics", 50, "")),
    "nested": (("bio", 60, ""), ("dna", 50, "bio"), ("rna", 30, "bio"), ("physics", 40, "")),
    "uneven": (("bio", 25, ""), ("physics", 35, "")),
}
ACCOUNTS = ("bio", "physics", "chem", "dna", "rna")
METHODS = ("requeue", "suspend", "dmtcp")
LICENSES = {"fluent": 3}
TOOK = 1.0
"""Seconds that a call takes to which Slurm gives no answer."""


class Cluster(NamedTuple):
    """``nodes``: CPUs and GPUs of each; ``tree``: of ``TREES``; ``devices``: each node has one, which a license counts;
    ``last_resort``: as in a job class."""

    nodes: tuple[tuple[int, int], ...] = ((4, 0), (4, 0))
    tree: str = "flat"
    plugin: bool = True
    quantum: float = 0.0
    devices: bool = False
    last_resort: str = ""


class ModelFuse(Fuse):
    """What happens right before which act of the daemon."""

    def __init__(self) -> None:
        super().__init__()
        self.due: dict[int, list[Callable[[str], None]]] = {}

    def after_acts(self, number: int, happen: Callable[[str], None]) -> None:
        self.due.setdefault(self.acts + number, []).append(happen)

    def act(self, kind: str) -> None:
        super().act(kind)
        for happen in self.due.pop(self.acts, ()):
            happen(kind)

    def disarm(self) -> None:
        self.due.clear()
        self.kill_at = None


class ModelSite(Site):
    """``canceled``, ``shortened``: jobs that people have canceled, or given less time; ``events``: the history."""

    slurm_class = WatchedSlurm
    slurm: WatchedSlurm

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        nodes = [_node(number, cpus, gpus) for number, (cpus, gpus) in enumerate(cluster.nodes, start=1)]
        licenses, node_licenses = dict(LICENSES), NodeLicenses(())
        if cluster.devices:
            licenses |= {"ve": 9999, **{f"ve_{node.name}": 1 for node in nodes}}
            node_licenses = NodeLicenses([NodeLicense("ve_{node}", "devices", any="ve")])
        tree = AccountTree([Entitlement(name, percent, above) for name, percent, above in TREES[cluster.tree]])  # type: ignore[arg-type]
        self.events: list[JobEvent] = []
        self.canceled: set[int] = set()
        self.shortened: set[int] = set()
        self.cluster = cluster
        super().__init__(
            directory,
            replace(site_rules(cluster.quantum, METHODS, cluster.last_resort), tree=tree),
            licenses=licenses,
            plugin=cluster.plugin,
            partitions=("main", "urgent", "night"),
            nodes=nodes,
            node_licenses=node_licenses,
            retry_after=20,
            start_timeout=20,
            preempt_timeout=20,
        )
        self.people = People(self.slurm)
        self.gateway.faults.wait = self._wait

    def _wait(self) -> None:
        self.now += TOOK

    def start_daemon(self) -> None:
        if not isinstance(self.fuse, ModelFuse):
            self.fuse = ModelFuse()
        super().start_daemon()
        record = self.history_database.record_events

        def record_events(events: Iterable[JobEvent]) -> None:
            listed = list(events)
            self.events += listed
            record(listed)

        self.history_database.record_events = record_events  # type: ignore[method-assign]

    # -- time ------------------------------------------------------------------------------------------------
    def cycle_once(self, seconds: float) -> CycleReport | None:
        """One cycle and so many seconds; None if the daemon died in it, and was started again."""
        self.slurm.note_saved()
        exits, began = self.slurm.exits, self.now
        try:
            report = self.step(seconds)
            if report.plan is not None:
                self.slurm.observed_exits = exits
                self.slurm.unobserved = {job: at for job, at in self.slurm.unobserved.items() if at >= began}
            return report
        except Killed:
            self.die()
            self.fuse.kill_at = None
            self.start_daemon()
            self.now += seconds
            return None

    def live(self) -> list[Record]:
        """Jobs that have not ended, by id."""
        self.slurm.catch_up()
        return [record for _, record in sorted(self.slurm.records.items()) if record.state != "ENDED"]


def _node(number: int, cpus: int, gpus: int) -> Node:
    return Node(f"n{number}", cpus, 8000 << 20, gres=(("gpu", gpus),) if gpus else ())


# -- users -------------------------------------------------------------------------------------------------------
def submit(site: ModelSite, account: str, kind: str, shape: str, cpus: int, run_time: int) -> None:
    """``kind``: its method, "" for a job that must be admitted, or "urgent"; ``shape``: what is special about it."""
    is_urgent = kind == "urgent"
    more: dict[str, Any] = {}
    request: dict[str, Any] = {"cpus": cpus, "nodes": 1, "max_nodes": 1}
    live = site.live()
    match shape:
        case "two nodes":
            request |= {"nodes": 2, "max_nodes": 2, "cpus": max(2, cpus)}
        case "exclusive":
            request |= {"exclusive": True}
        case "gpu":
            request |= {"gres": (("gpu", 1),)}
        case "array":
            more |= {"array": (1, 2, 3)}
        case "device":
            more |= {"licenses": (("ve", 1),)} if site.cluster.devices else {"licenses": (("fluent", 1),)}
        case "after" if live:
            more |= {"after": (live[-1].array_id or live[-1].id,)}
        case "begin":
            more |= {"begin": site.now + 5.0}
        case "ignores TERM":
            more |= {"ignores_term": True}
        case "no requeue":
            more |= {"requeue": False}
    if kind == "dmtcp":
        more |= {"launched": OmfsRunBehavior(seconds=1.5)}
    is_placed = shape == "device" and site.cluster.devices
    if (kind in ("", "urgent") and site.cluster.plugin and not is_urgent) or is_placed:
        more |= {"hold": Hold.USER, "admin_comment": SUBMIT_MARK}
    partition = "urgent" if is_urgent else "main"
    comment = f"omfs:method={kind}" if kind in METHODS else ""
    with site.slurm.acting(GATE):
        number = site.slurm.submit(
            Submission(
                JobRequest(partitions=(partition,), **request),
                user=account,
                account=account,
                run_time=float(run_time),
                comment=comment,
                **more,
            )
        )
        site.submitted.append(number)
        if more.get("hold"):
            site.slurm.holders[number] = GATE


# -- people --------------------------------------------------------------------------------------------------------
def by_hand(site: ModelSite, actor: Actor, act: str, index: int) -> None:
    """Somebody does something to one of the jobs that have not ended."""
    live = site.live()
    if not live:
        return
    record = live[index % len(live)]
    number, people, slurm = record.id, site.people, site.slurm
    of_array = [one.id for one in slurm.records_of(record.array_id or number)]
    with slurm.acting(actor):
        match act:
            case "hold" | "uhold":
                people.hold(number, actor, by_user=act == "uhold")
            case "release":
                people.release(number, actor)
            case "requeue":
                people.requeue(number)
            case "requeuehold":
                people.requeue_hold(number)
            case "suspend":
                people.suspend(number, actor)
            case "resume":
                people.resume(number, actor)
            case "cancel":
                site.canceled.update(of_array)
                people.cancel(number)
            case "top":
                people.top(number, actor)
                slurm.changed.update(one.id for one in live if one.uid == record.uid)
            case "nice" | "negative nice":
                people.set_nice(number, actor, 50 if act == "nice" else -50)
            case "priority":
                people.set_priority(number, actor, 5)
            case "partition":
                people.set_partition(number, actor, "night")
            case "urgent partition" if actor is not Actor.OWNER:
                people.set_partition(number, actor, "urgent")
            case "QOS":
                people.set_qos(number, actor, "low")
            case "account":
                people.set_account(number, actor, "bio" if record.what.account == "physics" else "physics")
            case "nodes":
                people.set_nodes(number, actor, f"n{1 + index % len(slurm.fake_nodes)}")
            case "time limit":
                site.shortened.update(of_array)
                people.set_time_limit(number, actor, 40.0)
            case "comment":
                people.set_comment(number, actor, "words")
            case "method":
                people.set_comment(number, actor, "omfs:method=suspend")
            case "AdminComment":
                people.set_admin_comment(number, actor, "words")
            case "dependency":
                people.set_dependency(number, actor, live[0].array_id or live[0].id) if record is not live[0] else None
            case "begin":
                people.set_begin(number, actor, site.now + 8.0)
            case "licenses":
                people.set_licenses(number, actor, ("fluent", 1))
        if act in ("nice", "negative nice", "priority", "nodes"):
            slurm.changed.add(number)


ACTS = (
    "hold", "uhold", "release", "requeue", "requeuehold", "suspend", "resume", "cancel", "top", "nice", "negative nice",
    "priority", "partition", "urgent partition", "QOS", "account", "nodes", "time limit", "comment", "method",
    "AdminComment", "dependency", "begin", "licenses",
)  # fmt: skip


# -- everything ------------------------------------------------------------------------------------------------------
def happen(site: ModelSite, event: Event) -> None:
    """One event that costs no time."""
    match event:
        case ("submit", account, kind, shape, cpus, run_time):
            submit(site, account, kind, shape, cpus, run_time)
        case ("by hand", actor, act, index):
            by_hand(site, actor, act, index)
        case ("node down", number):
            with site.slurm.acting("a failure"):
                site.slurm.node_down(_name(site, number))
        case ("node up", number):
            site.slurm.node_up(_name(site, number))
        case ("drain", number):
            site.slurm.drain(_name(site, number))
        case ("fault", fault, method, times):
            site.gateway.faults.inject(fault, (method,), times=times)
        case ("away", calls):
            site.gateway.faults.inject(Fault.DEAD, times=calls)
        case ("kill omfsd", acts):
            site.fuse.kill_at = site.fuse.acts + acts
        case ("kill slurmctld", age, fails):
            site.slurm.crash(age, fails)
        case ("at", acts, later):
            _fuse(site).after_acts(acts, lambda kind: _meanwhile(site, later, kind))


def _meanwhile(site: ModelSite, event: Event, kind: str) -> None:
    """It happens right before an act of the daemon's, or within it."""
    happen(site, event)
    if event[0] == "kill slurmctld" and kind.split()[-1] in ORDERS:
        raise GatewayError("Unable to contact slurm controller (connect failure)")


def _fuse(site: ModelSite) -> ModelFuse:
    assert isinstance(site.fuse, ModelFuse)
    return site.fuse


def _name(site: ModelSite, number: int) -> str:
    return f"n{1 + number % len(site.slurm.fake_nodes)}"


def calm(site: ModelSite) -> None:
    """From now on nothing goes wrong, and nobody does anything."""
    site.gateway.faults.clear()
    _fuse(site).disarm()


def play(site: ModelSite, events: Sequence[Event], check: Callable[[], None], settle: Callable[[], None]) -> None:
    """``check``: after each cycle; ``settle``: between, where the events say so."""
    for event in events:
        match event:
            case ("wait", seconds):
                end = site.now + seconds
                while site.now < end:
                    site.cycle_once(0.5 if seconds <= 3 else 1.5)
                    check()
            case ("settle",):
                settle()
            case _:
                happen(site, event)
