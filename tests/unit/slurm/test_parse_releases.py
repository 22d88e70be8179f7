"""The command gateway over what each release of Slurm was recorded to print: one expectation for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from math import inf
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Allocation, Hold, Job, JobRequest, JobState
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.errors import GatewayError, ParseError
from omfs_daemon.slurm import releases
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.gateway import LicenseRow, OrderRefusal, SlurmSettings
from omfs_daemon.slurm.releases import SlurmRelease
from tests.support.recorded_slurm import FIXTURES, Replay, read_ids
from tests.support.recording_scenarios import HOSTILE, RECORDINGS, UNKNOWN

MB = 1024**2
PENDING = JobState.PENDING
ONE = JobRequest(1)
HEAVY = JobRequest(4, nodes=2, memory_per_cpu=1000 * MB, min_cpus_per_node=2, excluded_nodes=frozenset({"n3", "n4"}))
TYPED = JobRequest(1, gres=(("gpu", 2), ("gpu:a100", 2), ("ve", 1)), partitions=("main", "urgent"))
DAY = 86400.0
TASKS_ARE_MOST_NODES = SlurmRelease(26, 5)
"""Since then a waiting job that names no number of nodes shows one for each task as its most; before, what it fills."""
RELEASES = [str(release) for release in releases.TESTED]


class Played:
    """A recorded's questions put to its records: the answers by question, GatewayErrors among them."""

    def __init__(self, directory: Path, recorded: str) -> None:
        self.ids = read_ids(directory)
        self.release = SlurmRelease.of(directory.parent.name)
        self._names = {str(job_id): name for name, job_id in self.ids.items()} | {str(UNKNOWN): "unknown"}
        replay = Replay(directory)
        gateway = CommandGateway(runner=replay)
        self.answers: dict[str, object] = {}
        for what, question in RECORDINGS[recorded].questions(self.ids):
            try:
                self.answers[what] = question(gateway)
            except GatewayError as error:
                self.answers[what] = error
        assert not replay.left, "recorded, and never asked for"

    @property
    def throttle(self) -> int:
        """How many tasks of the array may run at a time, which squeue --array of newer releases does not show."""
        return 0 if self.release >= (23, 2) else 2

    def jobs(self) -> dict[str, Job]:
        """The listed jobs by name."""
        listed = self.answers["jobs"]
        assert isinstance(listed, list)
        by_id = {job.id: job for job in listed}
        assert len(by_id) == len(listed)
        return {name: timeless(by_id[job_id]) for name, job_id in self.ids.items() if job_id in by_id}

    def job(self, name: str) -> Job | None:
        found = self.answers[name]
        assert found is None or isinstance(found, Job)
        return timeless(found) if found else None

    def refused(self, what: str) -> set[str]:
        """Names of the jobs (and of tasks, ``array_2``) that were refused."""
        answer = self.answers[what]
        assert isinstance(answer, list), f"{what}: {answer}"
        assert all(isinstance(refusal, OrderRefusal) and refusal.message for refusal in answer)
        parts = (refusal.ref.partition("_") for refusal in answer)
        return {self._names[job_id] + line + tasks for job_id, line, tasks in parts}


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


def played(release: str, recorded: str) -> Played:
    return Played(FIXTURES / release / recorded, recorded)


def timeless(job: Job) -> Job:
    """Without what depends on the moment of recording: seconds, whose turn is next, whether a held job was looked at
    before, and whether the main scheduler (UNLIMITED) or the backfill one (365 days) started it."""
    turn = job.reason in ("Priority", "Resources") or "reserved for jobs in higher priority" in job.reason
    waits = job.state is PENDING
    looked_at = job.eligible is not None and job.hold is Hold.NONE
    return replace(
        job,
        submit=min(job.submit, 1.0),
        start=job.start and 1.0,
        deadline=min(job.deadline, 1.0) if job.deadline < inf else inf,
        eligible=inf if job.eligible == inf else 1.0 if looked_at else None,
        run_time=job.run_time if waits else 0.0,
        time_limit=inf if job.time_limit >= 365 * DAY else job.time_limit,
        reason="" if turn else job.reason,
    )


def waits(recorded: Played, name: str, request: JobRequest = ONE, /, **more: object) -> Job:
    """A job of ``nobody`` that waits for its turn, but for what is told; ``request`` without what is usual here."""
    job_id = recorded.ids[name]
    is_up_to_slurm = not request.max_nodes and request.nodes == 1 and more.get("state", PENDING) is PENDING
    most = request.cpus if is_up_to_slurm and recorded.release >= TASKS_ARE_MOST_NODES else request.nodes
    memory = request.memory_per_cpu if request.memory_per_cpu or request.memory_per_node else 100 * MB
    request = replace(
        request,
        max_nodes=request.max_nodes or most,
        memory_per_cpu=memory,
        partitions=request.partitions or ("main",),
    )
    usual: dict[str, object] = {"ref": str(job_id), "name": name, "partition": "main", "priority": 1, "eligible": 1.0}
    usual |= {"user": "nobody", "uid": 65534, "submit": 1.0, "state": PENDING, "account": ""}
    return Job(id=job_id, request=request, **(usual | more))  # type: ignore[arg-type]


def runs(
    recorded: Played, name: str, allocations: tuple[Allocation, ...], request: JobRequest = ONE, /, **more: object
) -> Job:
    usual: dict[str, object] = {"state": JobState.RUNNING, "start": 1.0, "allocations": allocations}
    return waits(recorded, name, request, **(usual | more))


def held(recorded: Played, name: str, request: JobRequest = ONE, /, **more: object) -> Job:
    usual: dict[str, object] = {"hold": Hold.USER, "reason": "JobHeldUser", "priority": 0, "eligible": None}
    return waits(recorded, name, request, **(usual | more))


def dependent(recorded: Played, name: str, /, **more: object) -> Job:
    return waits(recorded, name, **({"reason": "Dependency", "eligible": inf} | more))


def assert_seen(found: dict[str, Job], expected: list[Job], ids: dict[str, int]) -> None:
    """These jobs, all of them, and nothing else; what differs is named."""
    by_id = {job.id: job for job in found.values()}
    assert by_id.keys() == {job.id for job in expected}
    names = {job_id: name for name, job_id in ids.items()}
    faults = [
        f"{names[job.id]}: {field.name} is {getattr(by_id[job.id], field.name)}, not {getattr(job, field.name)}"
        for job in expected
        for field in fields(Job)
        if getattr(by_id[job.id], field.name) != getattr(job, field.name)
    ]
    assert not faults, "\n".join(faults)


def test_every_kind_of_job_that_waits(release: str) -> None:
    recorded = played(release, "waiting")
    array = recorded.ids["array"]
    rest = {"ref": f"{array}_[1-3,5-6]", "array_id": array, "task_ids": (1, 2, 3, 5, 6)}
    task = {"ref": f"{array}_4", "array_id": array, "task_ids": (4,), "hold": Hold.ADMIN, "reason": "JobHeldAdmin"}
    aftercorr = recorded.ids["aftercorr"]
    found = recorded.jobs()
    wide = waits(recorded, "wide", JobRequest(6, nodes=2, memory_per_cpu=200 * MB))
    threads = held(recorded, "threads", JobRequest(8, min_cpus_per_node=2))
    most = 4 if recorded.release >= TASKS_ARE_MOST_NODES else 0
    blocker = tuple(Allocation(f"n{number}", 4, 400 * MB) for number in (1, 2, 3, 4))
    expected = [
        runs(recorded, "blocker", blocker, JobRequest(16, nodes=4), account="physics", time_limit=DAY + 7380),
        waits(recorded, "plain"),
        held(recorded, "held"),
        held(recorded, "held by us", hold=Hold.ADMIN, reason="JobHeldAdmin"),
        waits(recorded, "priced", nice=7, time_limit=5400, licenses=(("fluent", 1), ("mem_n1", 3), ("ve_n1", 2))),
        # What Slurm shows of these leaves open whether 3 nodes are a limit, and whether the memory is each CPU's.
        replace(wide, request=replace(wide.request, max_nodes=0)),
        waits(recorded, "heavy", HEAVY),
        waits(
            recorded, "choosy", replace(ONE, features="fast&ve", gres=(("ve", 1),), required_nodes=frozenset({"n1"}))
        ),
        waits(recorded, "typed", TYPED),
        waits(recorded, "gpus", JobRequest(2, gres=(("gpu", 2),))),
        waits(recorded, "gpus of tasks", JobRequest(2, gres=(("gpu", 2),))),
        held(recorded, "gpus with CPUs", JobRequest(4, max_nodes=1, min_cpus_per_node=4, gres=(("gpu", 2),))),
        held(recorded, "open", JobRequest(2, nodes=2, max_nodes=4)),
        replace(threads, request=replace(threads.request, max_nodes=most)),
        held(recorded, "tasks by node", JobRequest(4, nodes=2, max_nodes=2, min_cpus_per_node=2)),
        held(recorded, "due", time_limit=300.0, deadline=1.0),
        waits(recorded, "alone", replace(ONE, exclusive=True)),
        waits(recorded, "alone with his own", replace(ONE, exclusive=True), exclusive_user=True),
        waits(recorded, "crowd"),
        waits(recorded, "whole", replace(ONE, exclusive=True, partitions=("whole",)), partition="whole"),
        waits(recorded, "later", reason="BeginTime"),
        waits(recorded, "for ever", requeue=False, comment="omfs:method=suspend"),
        held(recorded, "hostile", JobRequest(2), name=HOSTILE, comment=HOSTILE, account=HOSTILE.lower()),
        dependent(recorded, "after"),
        dependent(recorded, "afterany"),
        dependent(recorded, "afterok"),
        dependent(recorded, "afternotok"),
        dependent(recorded, "one of two"),
        dependent(recorded, "both"),
        dependent(recorded, "single", name="plain", singleton=True),
        held(recorded, "held after", eligible=inf),
        waits(recorded, "array", JobRequest(2), array_throttle=recorded.throttle, **rest),
        held(recorded, "array 4", JobRequest(2), name="array", **task),
        held(recorded, "after array", eligible=inf),
        dependent(recorded, "aftercorr", ref=f"{aftercorr}_2", array_id=aftercorr, task_ids=(2,)),
    ]
    assert_seen(found, expected, recorded.ids)


def test_every_kind_of_job_that_has_started(release: str) -> None:
    recorded = played(release, "started")
    array = recorded.ids["array"]
    on = {node: replace(ONE, required_nodes=frozenset({node})) for node in ("n1", "n2", "n3", "n4")}
    task = {"name": "array", "array_id": array}
    uneven = JobRequest(4, nodes=2, required_nodes=frozenset({"n1", "n2"}))
    first = (("mem_n1", 3), ("ve_n1", 1))
    gpu = replace(on["n2"], gres=(("gpu", 1), ("gpu:a100", 1), ("ve", 1)))
    requeued = {"reason": "job requeued in held state", "restarts": 1}
    n4 = (Allocation("n4", 1, 100 * MB),)
    suspended = {"state": JobState.SUSPENDED, "priority": 0}
    limited = {"reason": "JobArrayTaskLimit", "eligible": None}
    expected = [
        held(recorded, "special exit", restarts=1, special_exit=True),
        held(recorded, "requeued", JobRequest(2), **requeued),
        held(recorded, "array 1", on["n4"], ref=f"{array}_1", task_ids=(1,), **task, **requeued),
        runs(recorded, "array 2", n4, on["n4"], ref=f"{array}_2", task_ids=(2,), **task),
        runs(recorded, "array 3", n4, on["n4"], ref=f"{array}_3", task_ids=(3,), **task),
        waits(
            recorded,
            "array",
            on["n4"],
            ref=f"{array}_[4-5]",
            task_ids=(4, 5),
            array_throttle=recorded.throttle,
            **task,
            **limited,
        ),
        runs(
            recorded,
            "first",
            (Allocation("n1", 3, 300 * MB),),
            replace(on["n1"], cpus=3, gres=(("ve", 1),)),
            licenses=first,
        ),
        runs(recorded, "gpu", (Allocation("n2", 1, 100 * MB),), gpu, time_limit=5400),
        runs(
            recorded,
            "uneven",
            (Allocation("n1", 1, 100 * MB), Allocation("n2", 3, 300 * MB)),
            uneven,
            name=HOSTILE,
            account="physics",
        ),
        runs(recorded, "suspended", (Allocation("n3", 4, 400 * MB),), replace(on["n3"], cpus=4), **suspended),
        runs(recorded, "guest", (Allocation("n3", 4, 200 * MB),), replace(on["n3"], cpus=4, memory_per_cpu=50 * MB)),
        runs(recorded, "leaving", n4, on["n4"], state=JobState.COMPLETING),
    ]
    found = recorded.jobs()
    assert found.pop("array 4") == found["array"], "one of the waiting rest"
    assert_seen(found, expected, recorded.ids)


def test_single_jobs_are_found(release: str) -> None:
    started, waiting = played(release, "started"), played(release, "waiting")
    assert started.job("unknown") is None
    for name in ("done", "failed", "cancelled"):
        ended = started.job(name)
        assert ended is not None and ended.state is JobState.ENDED
    for recorded, names in (
        (started, ["uneven", "array 1"]),
        (waiting, ["hostile", "held after", "for ever", "array"]),
    ):
        listed = recorded.jobs()
        assert [recorded.job(name) for name in names] == [listed[name] for name in names]


def test_the_cluster(release: str) -> None:
    recorded = played(release, "started")
    settings, partitions = recorded.answers["settings"], recorded.answers["partitions"]
    assert isinstance(settings, SlurmSettings)
    assert str(SlurmRelease.of(settings.version)) == release
    assert settings.values["PriorityType"] == "priority/multifactor"
    assert settings.values["SelectTypeParameters"] == "CR_CORE_MEMORY"
    everywhere = frozenset({"n1", "n2", "n3", "n4"})
    assert partitions == [
        Partition("main", everywhere, is_default=True),
        Partition("urgent", everywhere),
        Partition("small", frozenset({"n3", "n4"}), priority_tier=7),
        Partition("whole", frozenset({"n3", "n4"}), exclusive=True),
    ]
    assert recorded.answers["licenses"] == [
        LicenseRow("fluent", 5, 0),
        LicenseRow("mem_n1", 8, 3),
        LicenseRow("ve_n1", 2, 1),
    ]
    assert recorded.answers["accounts"] is None


def test_nodes(release: str) -> None:
    nodes = played(release, "nodes").answers["nodes"]
    assert isinstance(nodes, list)
    assert [(node.name, node.cpus, node.memory) for node in nodes] == [(f"n{i}", 4, 8000 * MB) for i in (1, 2, 3, 4)]
    assert [(node.up, node.cpus_taken, node.memory_taken // MB) for node in nodes] == [
        (True, 3, 900),
        (False, 1, 100),
        (False, 0, 0),
        (False, 0, 0),
    ]
    assert [node.features for node in nodes] == [{"fast", "ve"}, {"fast"}, set(), set()]
    gpus = (("gpu", 3), ("gpu:a100", 2), ("gpu:v100", 1), ("ve", 2))
    assert [node.gres for node in nodes] == [(("ve", 2),), gpus, (), ()]
    assert [node.partitions for node in nodes[1:3]] == [("main", "urgent"), ("main", "urgent", "small", "whole")]


REFUSED = {
    "hold": {"unknown", "ended", "array_77"},
    "hold an array": set(),
    "release": {"unknown", "ended", "array_77"},
    "rank": {"unknown", "ended"},
    "pin": set(),
    "unpin": set(),
    "pin with licenses": set(),
    "pin an unknown job": {"unknown"},
    "pin to an unknown node": {"held"},
    "pin a running job": {"one"},
    "pin with unknown licenses": {"held"},
    "pin with too many licenses": {"held"},
    "licenses": set(),
    "no licenses": {"unknown"},
    "licenses of a suspended job": {"suspended"},
    "licenses of a leaving job": {"leaving"},
    "unknown licenses": {"held", "one"},
    "too many licenses": {"held", "one"},
    "comment": {"unknown"},
    "not to be requeued": {"blocker"},
    "allow requeue": {"unknown"},
    "requeue": {"unknown"},
    "suspend": {"unknown", "waits", "ended", "array_77"},
    "suspend again": set(),
    "resume": {"unknown", "waits", "ended", "one"},
    "signal": set(),
    "unknown signal": {"one"},
    "signal to a waiting job": {"held"},
    "signal to an ended job": {"ended"},
    "signal to an unknown job": {"unknown"},
}


def test_who_refuses_which_order(release: str) -> None:
    recorded = played(release, "orders")
    assert {what: recorded.refused(what) for what in recorded.answers} == REFUSED


def test_without_the_right_every_order_is_refused(release: str) -> None:
    recorded = played(release, "denied")
    assert all(recorded.refused(what) for what in recorded.answers)
    assert recorded.refused("hold") == {"running", "held"}


def test_no_slurmctld_is_no_refusal(release: str) -> None:
    answers = played(release, "away").answers
    assert answers and all(isinstance(answer, GatewayError) for answer in answers.values())


def test_an_unknown_command_is_no_answer() -> None:
    with pytest.raises(AssertionError, match="not recorded"):
        Replay(FIXTURES / RELEASES[0] / "away")(["squeue", "--me"], timeout=1.0)


class TestReleases:
    @pytest.mark.parametrize(
        ("text", "release"),
        [("slurm-wlm 22.05.8", (22, 5)), ("24.11.5", (24, 11)), ("slurm 26.05.0-0rc1", (26, 5)), ("25.5", (25, 5))],
    )
    def test_of_a_version(self, text: str, release: tuple[int, int]) -> None:
        assert SlurmRelease.of(text) == release

    @pytest.mark.parametrize("text", ["", "slurm", "26"])
    def test_of_no_version(self, text: str) -> None:
        with pytest.raises(ParseError):
            SlurmRelease.of(text)

    def test_those_that_were_tried_have_records(self) -> None:
        assert sorted(path.name for path in FIXTURES.iterdir()) == RELEASES

    @pytest.mark.parametrize(
        ("version", "known"), [("22.05.8", True), ("26.05.5", True), ("25.11.2", False), ("27.02.0", False)]
    )
    def test_an_untested_one_is_reported(self, version: str, known: bool) -> None:
        warning = releases.untested_release(version)
        assert (warning == "") is known
        assert known or all(word in warning for word in (version, "22.05", "24.11", "26.05"))

    def test_every_state_that_a_release_knows_as_waiting_is_asked_for(self) -> None:
        """Another is an error there."""
        assert {SlurmRelease.of(name).waiting_states for name in ("22.05", "24.11")} == {"pending,special_exit"}
        assert SlurmRelease(26, 5).waiting_states.endswith(",expediting")
